//! Batches: operations that run together, a call alone or those of a group.
//!
//! They may belong to several communicators. Leaves to `work` what each does, and to `watch` their
//! deadlines. Invariants: every operation is started before any is waited for; each completes on
//! its own, at the latest at its own deadline; two batches of streams have the same order on every
//! communicator and stream that they share.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::slice;
use std::sync::Arc;

use futures_util::future::{FutureExt, join_all};

use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::transport::{Started, Waiting};

use super::collective::collective;
use super::stream::Stream;
use super::stream_order::{StreamPosition, with_issue_lock};
use super::ticket::Ticket;
use super::watch::Watch;
use super::work::Work;

/// An operation that threads of this process execute and that has no sequence number yet.
pub struct HostRequest {
    pub communicator: Arc<Communicator>,
    /// The stream to queue it on; `None`: the thread of the caller executes it.
    pub stream: Option<Arc<Stream>>,
    /// The caller waits for it: it starts when all stream batches before it have completed.
    pub is_for_caller: bool,
    pub work: Work<'static>,
}

/// Gives all requests their sequence numbers in this order, starts them all, and waits for those
/// that are on no stream. Returns the first error of a start, else the first of those completed
/// here.
pub fn run_batch(requests: Vec<HostRequest>) -> Result<()> {
    let (issued, here) = begin(requests);
    issued.and(here.run())
}

/// Gives all requests their sequence numbers, and queues those that are on streams. The caller must
/// run the batch of those that are not.
pub fn begin(requests: Vec<HostRequest>) -> (Result<()>, Batch<'static>) {
    let mut here = Batch::default();
    let issued = with_issue_lock(|| issue(requests, &mut here));
    (issued, here)
}

fn issue(requests: Vec<HostRequest>, here: &mut Batch<'static>) -> Result<()> {
    let mut result = Ok(());
    let mut queued: Vec<(Arc<Stream>, Batch<'static>)> = Vec::new();
    for HostRequest { communicator, stream, is_for_caller, work } in requests {
        let added = match stream {
            None => here.add(communicator, work),
            // An abort closes the stream of the communicator's device calls.
            Some(stream) => stream
                .check_open()
                .map_err(|closed| communicator.as_reported(closed))
                .and_then(|()| {
                    let same = queued.iter().position(|(other, _)| Arc::ptr_eq(other, &stream));
                    let index = same.unwrap_or_else(|| {
                        queued.push((stream, Batch::default()));
                        queued.len() - 1
                    });
                    queued[index].1.add_to_stream(communicator, work, is_for_caller)
                }),
        };
        result = result.and(added);
    }
    // Only now, when all have their sequence numbers: batches of one group must not wait for each
    // other.
    for (stream, mut batch) in queued {
        batch.join_stream_order();
        stream.push(move || batch.run());
    }
    result
}

#[derive(Default)]
pub struct Batch<'a> {
    tickets: Vec<Ticket>,
    /// One for each ticket.
    works: Vec<Work<'a>>,
    /// For a batch of a stream: its positions among the stream batches of its communicators.
    positions: Vec<StreamPosition>,
}

impl<'a> Batch<'a> {
    /// Gives a call its sequence number, or registers a message. The batch must then be run.
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

    /// As `add`, for a batch of a stream.
    fn add_to_stream(
        &mut self,
        communicator: Arc<Communicator>,
        work: Work<'a>,
        is_for_caller: bool,
    ) -> Result<()> {
        let mut ticket = work.begin(communicator)?;
        if !is_for_caller {
            ticket.queue_on_stream();
        }
        self.tickets.push(ticket);
        self.works.push(work);
        Ok(())
    }

    /// Takes a position among the stream batches of each of its communicators, for which their
    /// later operations wait.
    fn join_stream_order(&mut self) {
        for ticket in &self.tickets {
            let (communicator, order) = (&ticket.communicator, &ticket.communicator.stream_order);
            if self.positions.iter().any(|other| Arc::ptr_eq(&other.order, order)) {
                continue;
            }
            let is_here = |other: &&Ticket| Arc::ptr_eq(&other.communicator, communicator);
            let mut state = communicator.lock();
            self.positions.push(state.queued.next_batch(order));
            if self.tickets.iter().filter(is_here).any(Ticket::is_collective) {
                let position = Arc::new(state.queued.next_collectives(order));
                self.tickets.iter().filter(is_here).for_each(|ticket| ticket.hold(&position));
            }
        }
    }

    /// Executes all operations on the calling thread. Returns the error of the first that failed,
    /// in the order in which they were added.
    pub fn run(self) -> Result<()> {
        self.run_each().into_iter().fold(Ok(()), Result::and)
    }

    /// Executes all operations on the calling thread. Returns the result of each.
    pub fn run_each(self) -> Vec<Result<()>> {
        let Self { tickets, works, positions } = self;
        let results: Vec<_> = tickets.iter().map(|_| OnceCell::new()).collect();
        let waiting = waiting(&tickets, &works);
        let each =
            tickets.iter().zip(&results).zip(works).map(|((ticket, result), work)| async move {
                if ticket.waits_for_streams() {
                    ticket.wait_for_streams().await;
                }
                let ended = ticket.end(work.perform(ticket).await);
                // A late operation has its result already.
                let _ = result.set(ended);
            });
        let mut all = Box::pin(join_all(each).map(drop));
        run_to_completion(&tickets, &results, waiting, all.as_mut());
        // Each operation that this drop cancels has failed its communicator, so nothing is sent
        // behind a message that breaks off here.
        drop(all);
        drop(positions);
        results.into_iter().map(|result| result.into_inner().expect(EACH_HAS_RESULT)).collect()
    }
}

const EACH_HAS_RESULT: &str = "each operation has completed or failed";

/// Executes one operation that is on no stream: a batch of one, without its lists and boxes.
pub fn run_alone(communicator: Arc<Communicator>, work: Work<'_>) -> Result<()> {
    let ticket = work.begin(communicator)?;
    run_begun(&ticket, work, None)
}

/// Executes one operation that has its ticket. `started`: the epoch in which the fast path has
/// begun it, if it has.
pub fn run_begun(ticket: &Ticket, mut work: Work<'_>, started: Option<Started>) -> Result<()> {
    let result = OnceCell::new();
    let waiting = waiting(slice::from_ref(ticket), slice::from_ref(&work));
    {
        let only = pin!(async {
            if ticket.waits_for_streams() {
                ticket.wait_for_streams().await;
            }
            let performed = match work {
                Work::Collective(ref mut op) => collective(ticket, op, started).await,
                other => Box::pin(other.perform(ticket)).await,
            };
            let _ = result.set(ticket.end(performed));
        });
        run_to_completion(slice::from_ref(ticket), slice::from_ref(&result), waiting, only);
    }
    result.into_inner().expect(EACH_HAS_RESULT)
}

/// How the thread of a batch waits for it.
fn waiting(tickets: &[Ticket], works: &[Work<'_>]) -> Waiting {
    let each = tickets.iter().zip(works).map(|(ticket, work)| {
        let communicator = &ticket.communicator;
        communicator.waiting(work.demand(communicator.me().rank))
    });
    each.fold(Waiting::default(), Waiting::and)
}

/// Delivers the messages that have arrived in shared memory for the communicators of a batch.
/// Collectives do that too, or a peer could wait for room in a ring before it joins them.
fn progress(tickets: &[Ticket]) {
    let mut last: Option<&Arc<Communicator>> = None;
    for Ticket { communicator, .. } in tickets {
        if !last.is_some_and(|last| Arc::ptr_eq(last, communicator)) {
            communicator.mesh.messages.progress();
        }
        last = Some(communicator);
    }
}

/// Polls `all`, which sets the result of each ticket, to completion. Sets an error as the result of
/// each operation that is late, or of all if one panics.
fn run_to_completion(
    tickets: &[Ticket],
    results: &[OnceCell<Result<()>>],
    waiting: Waiting,
    mut all: Pin<&mut dyn Future<Output = ()>>,
) {
    let mut all = pin!(poll_fn(|context| {
        progress(tickets);
        all.as_mut().poll(context)
    }));
    let mut watch = Watch::new(tickets, results);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // Many batches complete in the first poll, so the clock is not read before.
        if waiting.poll(all.as_mut()).is_ready() {
            return;
        }
        while let Some(until) = watch.next() {
            if waiting.wait(all.as_mut(), until).is_some() {
                break;
            }
        }
    }));
    if let Err(panic) = ended {
        watch.fail_all(|| Error::from_panic(&*panic));
    }
}
