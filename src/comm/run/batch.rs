//! Operations that have begun and run together: a call alone, or those of a group.
//!
//! They may belong to several communicators. Invariants: each is started before any is waited for;
//! each ends by itself, at the latest at its own deadline; and of two batches of streams one is
//! before the other on all communicators and streams that they share.

use std::cell::OnceCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{FutureExt, join_all};

use crate::comm::cuda;
use crate::comm::{Communicator, OnCuda, Tried};
use crate::error::{Error, Result};
use crate::parker;
use crate::runtime;
use crate::transport::shm::bell;

use super::stream::Stream;
use super::stream_order::InBacklog;
use super::ticket::Ticket;
use super::watch::Watch;
use super::work::{Work, collective};
use crate::transport::shm::Started;

/// Held while operations that belong together get their numbers and their places on streams, so
/// that nothing comes between them: no batch is before another here and behind it there.
static ISSUING: Mutex<()> = Mutex::new(());

pub fn while_nobody_issues<T>(body: impl FnOnce() -> T) -> T {
    let _issuing = ISSUING.lock().unwrap_or_else(PoisonError::into_inner);
    body()
}

/// An operation that was asked for and has no number yet.
pub struct Request<'a> {
    pub communicator: Arc<Communicator>,
    /// The stream to queue it on; without one, whoever asks waits for it.
    pub stream: Option<Arc<Stream>>,
    /// If it is to be made in the order of a CUDA stream.
    pub cuda: Option<OnCuda>,
    pub work: Work<'a>,
}

impl Request<'static> {
    /// Runs the operation to its end, or queues it.
    pub fn run(mut self) -> Result<()> {
        if self.stream.is_some() || self.cuda.is_some() {
            return run_together(vec![self]);
        }
        match self.communicator.make_briefly_on_host(&mut self.work) {
            Tried::Ended => Ok(()),
            Tried::Begun(begun) => begun.go_on(self.work),
            Tried::Refused => run_alone(self.communicator, self.work),
        }
    }
}

/// Gives all requests their numbers in this order, starts them all, and waits for those that are on
/// no stream. Returns the error of the first that could not be started, or else that failed here.
pub fn run_together(requests: Vec<Request<'static>>) -> Result<()> {
    if requests.iter().any(|request| request.cuda.is_some()) {
        return cuda::run_together(requests);
    }
    let (issued, here) = begin(requests);
    issued.and(here.run())
}

/// Gives all requests their numbers, and queues those that are on streams. The rest is to be run.
pub fn begin(requests: Vec<Request<'static>>) -> (Result<()>, Batch<'static>) {
    let mut here = Batch::default();
    let issued = while_nobody_issues(|| issue(requests, &mut here));
    (issued, here)
}

fn issue(requests: Vec<Request<'static>>, here: &mut Batch<'static>) -> Result<()> {
    let mut result = Ok(());
    let mut queued: Vec<(Arc<Stream>, Batch<'static>)> = Vec::new();
    for Request { communicator, stream, work, .. } in requests {
        let added = match stream {
            None => here.add(communicator, work),
            Some(stream) => stream.check_open().and_then(|()| {
                let same = queued.iter().position(|(other, _)| Arc::ptr_eq(other, &stream));
                let index = same.unwrap_or_else(|| {
                    queued.push((stream, Batch::default()));
                    queued.len() - 1
                });
                queued[index].1.add(communicator, work)
            }),
        };
        result = result.and(added);
    }
    // When all have their numbers: batches of one group do not wait for each other.
    for (stream, mut batch) in queued {
        batch.join_backlog();
        stream.push(batch);
    }
    result
}

#[derive(Default)]
pub struct Batch<'a> {
    tickets: Vec<Ticket>,
    /// One for each ticket.
    works: Vec<Work<'a>>,
    /// Its places behind the batches of streams before it, if it is one itself.
    in_backlog: Vec<InBacklog>,
}

impl<'a> Batch<'a> {
    /// Gives a call its number, or notes a message. The batch must then be run.
    pub fn add(
        &mut self,
        communicator: Arc<Communicator>,
        work: impl Into<Work<'a>>,
    ) -> Result<()> {
        let work = work.into();
        self.tickets.push(work.begin(communicator)?);
        self.works.push(work);
        Ok(())
    }

    /// Makes it a batch of a stream: later batches of its communicators wait for it.
    fn join_backlog(&mut self) {
        for ticket in &self.tickets {
            let communicator = &ticket.communicator;
            if !self.in_backlog.iter().any(|InBacklog(other)| Arc::ptr_eq(other, communicator)) {
                communicator.lock().stream_batches += 1;
                self.in_backlog.push(InBacklog(Arc::clone(communicator)));
            }
        }
    }

    /// Runs all operations to their end on the calling thread. Returns the error of the first, in
    /// the order in which they were added, that failed.
    pub fn run(self) -> Result<()> {
        self.run_each().into_iter().fold(Ok(()), Result::and)
    }

    /// As `run`, with what became of each.
    pub fn run_each(self) -> Vec<Result<()>> {
        let Self { tickets, works, in_backlog } = self;
        let results: Vec<_> = tickets.iter().map(|_| OnceCell::new()).collect();
        let way = Way::of(&tickets, &works);
        // Polled in this order at first, which is that of messages.
        let each =
            tickets.iter().zip(&results).zip(works).map(|((ticket, result), work)| async move {
                if ticket.behind > 0 {
                    ticket.come().await;
                }
                let ended = ticket.end(work.perform(ticket).await);
                // One that was late has its result.
                let _ = result.set(ended);
            });
        let mut all = Box::pin(join_all(each).map(drop));
        run_to_the_end(&tickets, &results, way, all.as_mut());
        // What has not ended has failed its communicator: nothing is sent behind a message that is
        // broken off here.
        drop(all);
        drop(in_backlog);
        results.into_iter().map(|result| result.into_inner().expect(EACH_HAS_ENDED)).collect()
    }
}

const EACH_HAS_ENDED: &str = "each operation has ended or failed";

/// Runs one operation that is on no stream: a batch of one, without its lists and boxes.
pub fn run_alone(communicator: Arc<Communicator>, work: Work<'_>) -> Result<()> {
    let ticket = work.begin(communicator)?;
    run_begun(&ticket, work, None)
}

/// As `run_alone`, with its ticket; a collective may have been begun as a brief one.
pub fn run_begun(ticket: &Ticket, work: Work<'_>, started: Option<Started>) -> Result<()> {
    let result = OnceCell::new();
    let way = Way::of(slice::from_ref(ticket), slice::from_ref(&work));
    {
        let only = pin!(async {
            if ticket.behind > 0 {
                ticket.come().await;
            }
            let performed = match work {
                Work::Collective(op) => collective(ticket, op, started).await,
                other => Box::pin(other.perform(ticket)).await,
            };
            let _ = result.set(ticket.end(performed));
        });
        run_to_the_end(slice::from_ref(ticket), slice::from_ref(&result), way, only);
    }
    result.into_inner().expect(EACH_HAS_ENDED)
}

/// How a batch is waited for.
#[derive(Clone, Copy)]
enum Way {
    /// Nothing of it is over the network.
    Here,
    /// Some of it is in shared memory; another thread drives the network. `crowded`: there are more ranks
    /// than processors.
    Shared { crowded: bool },
    /// The caller's thread drives the network meanwhile.
    Driving { leaves_work: bool },
    /// Another thread drives it: nobody knows how long functions of the program take, and heartbeats
    /// must not wait for them.
    Driven,
}

impl Way {
    fn of(tickets: &[Ticket], works: &[Work<'_>]) -> Self {
        if !tickets.iter().any(|ticket| ticket.communicator.is_over_network()) {
            return Self::Here;
        }
        let pairs = tickets.iter().zip(works).filter(|(_, work)| !work.is_message());
        let crowded = pairs.filter_map(|(ticket, _)| ticket.communicator.is_crowded());
        if let Some(crowded) = crowded.reduce(|one, other| one || other) {
            return Self::Shared { crowded };
        }
        if works.iter().any(Work::calls_program) {
            return Self::Driven;
        }
        let mut pairs = tickets.iter().zip(works);
        let leaves_work =
            pairs.any(|(ticket, work)| work.leaves_work(ticket.communicator.place().rank));
        Self::Driving { leaves_work }
    }
}

/// Polls `all`, which sets the result of each ticket, until it ends. What is late or panics has a
/// result too.
fn run_to_the_end(
    tickets: &[Ticket],
    results: &[OnceCell<Result<()>>],
    way: Way,
    mut all: Pin<&mut dyn Future<Output = ()>>,
) {
    let mut watch = Watch::new(tickets, results);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // Much ends at once, and then nobody looks at the clock.
        let is_here = matches!(way, Way::Here | Way::Shared { .. });
        if is_here && parker::poll(all.as_mut()).is_ready() {
            return;
        }
        while let Some(until) = watch.next() {
            let ended = match way {
                Way::Here => parker::block_on(all.as_mut(), until),
                Way::Shared { crowded } => bell::block_on(all.as_mut(), until, crowded),
                Way::Driving { leaves_work } => runtime::drive(all.as_mut(), until, leaves_work),
                Way::Driven => runtime::wait(all.as_mut(), until),
            };
            if ended.is_some() {
                break;
            }
        }
    }));
    if let Err(panic) = ended {
        watch.fail_all(|| Error::from_panic(&*panic));
    }
}
