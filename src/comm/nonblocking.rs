//! Issues requests, and waits for them.
//!
//! Leaves to `message_request` what a request is, and to `request_set` those that no call waits
//! for. Invariant: a request is issued with its position among messages, or nothing has changed.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::message::{Incoming, Outgoing};
use crate::transport::Waiting;

use super::Communicator;
use super::message_request::MessageRequest;
use super::run::Work;

/// How often a wait writes to the log which ranks it waits for.
const REPORT: Duration = Duration::from_secs(10);

/// Begins to send a message.
pub fn isend(
    communicator: &Arc<Communicator>,
    outgoing: Outgoing<'static>,
) -> Result<Arc<MessageRequest>> {
    communicator.check_is_on_host(&Work::Send(outgoing))?;
    if communicator.has_sent(&outgoing) {
        return Ok(MessageRequest::sent(communicator));
    }
    issue(communicator, Work::Send(outgoing))
}

/// Begins to receive a message.
pub fn irecv(
    communicator: &Arc<Communicator>,
    incoming: Incoming<'static>,
) -> Result<Arc<MessageRequest>> {
    let source = incoming.call.wanted.source;
    let work = Work::Recv(incoming);
    communicator.check_is_on_host(&work)?;
    let request = issue(communicator, work)?;
    if let Some(source) = source {
        communicator.mesh.messages.connect(source);
    }
    Ok(request)
}

fn issue(communicator: &Arc<Communicator>, work: Work<'static>) -> Result<Arc<MessageRequest>> {
    let requests = &communicator.requests;
    requests.start()?;
    let demand = work.demand(communicator.me().rank);
    let sends = matches!(work, Work::Send(_));
    let ticket = work.begin(Arc::clone(communicator))?;
    let request = match work {
        Work::Send(outgoing) => MessageRequest::send(ticket, outgoing, demand, &requests.live),
        Work::Recv(incoming) => MessageRequest::receive(ticket, incoming, demand, &requests.live),
        Work::Collective(_) | Work::Other(_) => unreachable!("only messages have requests"),
    };
    let has_completed = request.test()?;
    if sends {
        // The caller does not drive the network for what the first poll has written.
        communicator.waiting(demand).hand_over();
    }
    if !has_completed && !requests.add(&request) {
        request.end(Communicator::ended_before_requests());
    }
    Ok(request)
}

/// Waits until one of the requests has completed. Returns the index of the first that has. Fails
/// if another call waits for one of them.
pub fn wait_any(requests: &[Arc<MessageRequest>]) -> Result<usize> {
    let mut waited = WaitedFor { requests, begun: 0 };
    for request in requests {
        request.begin_wait()?;
        waited.begun += 1;
    }
    let waiting = requests.iter().fold(Waiting::default(), |all, one| all.and(one.waiting()));
    let first = Cell::new(0);
    let mut one_has_completed = pin!(poll_fn(|context| {
        let mut before: Option<&Arc<MessageRequest>> = None;
        for (index, request) in requests.iter().enumerate() {
            if !before.is_some_and(|before| before.is_of_communicator_of(request)) {
                request.progress();
            }
            before = Some(request);
            if request.poll(context) {
                first.set(index);
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }));
    // Many complete in the first poll, so the clock is not read before.
    if waiting.poll(one_has_completed.as_mut()).is_ready() {
        return Ok(first.get());
    }
    let mut report = Instant::now() + REPORT;
    loop {
        let now = Instant::now();
        requests.iter().for_each(|request| request.check_deadline(now));
        if report <= now {
            requests.iter().take(1).for_each(|request| request.report_straggler());
            report = now + REPORT;
        }
        let deadlines = requests.iter().filter_map(|request| request.times());
        let until = deadlines.map(|(_, deadline)| deadline).fold(report, Instant::min);
        if waiting.wait(one_has_completed.as_mut(), until).is_some() {
            return Ok(first.get());
        }
    }
}

/// Requests that this thread waits for, of which it has begun to wait for the first.
struct WaitedFor<'a> {
    requests: &'a [Arc<MessageRequest>],
    begun: usize,
}

impl Drop for WaitedFor<'_> {
    fn drop(&mut self) {
        self.requests[..self.begun].iter().for_each(|request| request.end_wait());
    }
}

impl Communicator {
    /// Sends a short message to a rank of this host, if nothing must be waited for.
    fn has_sent(&self, outgoing: &Outgoing<'_>) -> bool {
        let state = self.lock();
        self.check_open(&state, &outgoing.call()).is_ok()
            && self.mesh.messages.send_at_once(outgoing)
    }

    /// Fails if a buffer is in the memory of a device.
    fn check_is_on_host(&self, work: &Work<'_>) -> Result<()> {
        if self.queries_driver && self.is_on_device(work)? {
            let what = "a request needs a buffer in host memory; for memory of a device, use \
                        nexarSendTag and nexarRecvTag on a CUDA stream";
            return Err(Error::Argument(what.to_owned()));
        }
        Ok(())
    }
}
