//! A request: a send or a receive that the caller does not wait for when it issues it.
//!
//! It has its position among messages from the call that issues it, and its deadline counts from
//! there. The call that tests it or waits for it polls it; while no call does, the thread of
//! `request_set`. Leaves matching and the protocol to `messaging`. Invariants:
//! - one thread polls a request at a time, under its lock, and at most one call of the program
//!   waits for it;
//! - a request completes once. Its ticket has then ended, and its buffer is not used any more;
//! - a request that is given up fails its communicator, unless it is a receive that is withdrawn.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::message::{Envelope, Incoming, Outgoing};
use crate::messaging;
use crate::rank::Rank;
use crate::transport::{Demand, Receive, Waiting};

use super::Communicator;
use super::run::{Ticket, agreed};

/// Source and envelope of a message that was received. `None` for a send.
pub type Reported = Option<(Rank, Envelope)>;

type Transfer = Pin<Box<dyn Future<Output = Result<Reported>> + Send>>;

pub struct MessageRequest {
    /// For the text of its error: a request does not keep a destroyed communicator.
    communicator: Weak<Communicator>,
    state: Mutex<RequestState>,
}

struct RequestState {
    stage: RequestStage,
    /// Whether a call of the program waits for the request, and so polls it.
    is_waited_for: bool,
    /// The waker of the last poll, for another thread that completes the request.
    waker: Option<Waker>,
    /// The waker of the thread of the set, once that thread watches the request.
    watcher: Option<Waker>,
}

#[expect(clippy::large_enum_variant, reason = "a request has an allocation of its own")]
enum RequestStage {
    Live(LiveRequest),
    Completed(Result<Reported>),
    /// The program has its result.
    Consumed,
}

/// A request that has not completed. Its fields are dropped in this order.
struct LiveRequest {
    step: RequestStep,
    ticket: Ticket,
    demand: Demand,
    issued: Instant,
    _counted: CountedRequest,
}

#[expect(clippy::large_enum_variant, reason = "a request has an allocation of its own")]
enum RequestStep {
    /// A receive that has matched no message.
    Posted(Receive, Incoming<'static>),
    Transfer(Transfer),
    /// It has ended, or its poll has panicked.
    Ended,
}

/// The number of live requests of a communicator.
pub type LiveCount = Arc<AtomicUsize>;

/// Counts as a live request of its communicator until dropped.
struct CountedRequest(LiveCount);

impl CountedRequest {
    fn new(live: &LiveCount) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(live))
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The outcome of a request that is asked to be withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    Withdrawn,
    /// It has matched a message, or is a send.
    NotAnyMore,
}

impl MessageRequest {
    /// A send that has completed in the call that issued it.
    pub fn sent(communicator: &Arc<Communicator>) -> Arc<Self> {
        Self::new(Arc::downgrade(communicator), RequestStage::Completed(Ok(None)))
    }

    pub fn send(
        ticket: Ticket,
        outgoing: Outgoing<'static>,
        demand: Demand,
        live: &LiveCount,
    ) -> Arc<Self> {
        let (communicator, turn) = (Arc::clone(&ticket.communicator), ticket.turn());
        let transfer = Box::pin(async move {
            messaging::send(&communicator.mesh, turn, outgoing).await.map(|()| None)
        });
        Self::live(ticket, RequestStep::Transfer(transfer), demand, live)
    }

    pub fn receive(
        ticket: Ticket,
        incoming: Incoming<'static>,
        demand: Demand,
        live: &LiveCount,
    ) -> Arc<Self> {
        let posted = ticket.posted();
        Self::live(ticket, RequestStep::Posted(posted, incoming), demand, live)
    }

    fn live(ticket: Ticket, step: RequestStep, demand: Demand, live: &LiveCount) -> Arc<Self> {
        let communicator = Arc::downgrade(&ticket.communicator);
        let (issued, _counted) = (Instant::now(), CountedRequest::new(live));
        let live = LiveRequest { step, ticket, demand, issued, _counted };
        Self::new(communicator, RequestStage::Live(live))
    }

    fn new(communicator: Weak<Communicator>, stage: RequestStage) -> Arc<Self> {
        let state = RequestState { stage, is_waited_for: false, waker: None, watcher: None };
        Arc::new(Self { communicator, state: Mutex::new(state) })
    }

    pub fn has_completed(&self) -> bool {
        !matches!(self.lock().stage, RequestStage::Live(_))
    }

    /// Takes the result of a request that has completed. `None` if it has not.
    pub fn consume(&self) -> Option<Result<Reported>> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.stage, RequestStage::Consumed) {
            RequestStage::Completed(result) => Some(result),
            other => {
                state.stage = other;
                None
            }
        }
    }

    /// Stores the text of an error of a call on the request, for the communicator's last error.
    pub fn remember(&self, error: String) {
        if let Some(communicator) = self.communicator.upgrade() {
            communicator.remember(error);
        }
    }

    pub fn is_of_communicator_of(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.communicator, &other.communicator)
    }

    /// How a thread waits for the request, where it is not alone.
    pub fn waiting(&self) -> Waiting {
        match &self.lock().stage {
            RequestStage::Live(live) => {
                let is_alone = live._counted.0.load(Ordering::Relaxed) == 1;
                let leaves_work = live.demand.leaves_work || !is_alone;
                live.ticket.communicator.waiting(Demand { leaves_work, ..live.demand })
            }
            _ => Waiting::default(),
        }
    }

    /// Delivers the messages that have arrived in shared memory for its communicator.
    pub fn progress(&self) {
        if let RequestStage::Live(live) = &self.lock().stage {
            live.ticket.communicator.mesh.messages.progress();
        }
    }

    /// When it was issued and its deadline. `None` if it has completed.
    pub fn times(&self) -> Option<(Instant, Instant)> {
        match &self.lock().stage {
            RequestStage::Live(live) => Some((live.issued, live.deadline())),
            _ => None,
        }
    }

    /// Polls the request, for a call that waits for it. True if it has completed.
    pub fn poll(&self, context: &mut Context<'_>) -> bool {
        self.poll_with(self.lock(), context)
    }

    /// Polls the request, for the thread that watches it. True if it has completed. A request that
    /// a call waits for is left to the call.
    pub fn watch(&self, context: &mut Context<'_>) -> bool {
        let mut state = self.lock();
        state.watcher = Some(context.waker().clone());
        let is_left = state.is_waited_for && matches!(state.stage, RequestStage::Live(_));
        !is_left && self.poll_with(state, context)
    }

    /// Polls the request once. True if it has completed. Fails if a call waits for it.
    pub fn test(&self) -> Result<bool> {
        self.progress();
        let state = self.lock();
        state.check_not_waited_for()?;
        // The thread that watches it is woken as before.
        let watcher = state.watcher.clone();
        let waker = watcher.as_ref().unwrap_or(Waker::noop());
        Ok(self.poll_with(state, &mut Context::from_waker(waker)))
    }

    fn poll_with(
        &self,
        mut state: MutexGuard<'_, RequestState>,
        context: &mut Context<'_>,
    ) -> bool {
        let RequestStage::Live(live) = &mut state.stage else { return true };
        let Poll::Ready(result) = live.poll_caught(context) else {
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                state.waker = Some(context.waker().clone());
            }
            return false;
        };
        let result = live.end(result);
        Self::complete(state, result);
        true
    }

    fn complete(mut state: MutexGuard<'_, RequestState>, result: Result<Reported>) {
        let ended = std::mem::replace(&mut state.stage, RequestStage::Completed(result));
        let wakers = [state.waker.take(), state.watcher.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        drop(ended); // it may be the last that has the communicator
    }

    /// Withdraws a receive that has matched no message; the request is then consumed. Fails if a
    /// call waits for it.
    pub fn cancel(&self) -> Result<Cancelled> {
        self.progress();
        let mut state = self.lock();
        state.check_not_waited_for()?;
        let RequestStage::Live(live) = &mut state.stage else { return Ok(Cancelled::NotAnyMore) };
        if !live.withdraw() {
            return Ok(Cancelled::NotAnyMore);
        }
        Self::complete(state, Ok(None));
        self.lock().stage = RequestStage::Consumed;
        Ok(Cancelled::Withdrawn)
    }

    /// Completes a live request with an error, because its communicator ends. A receive that has
    /// matched nothing is withdrawn; anything else fails the communicator.
    pub fn end(&self, cause: Error) {
        let mut state = self.lock();
        let RequestStage::Live(live) = &mut state.stage else { return };
        // A communicator that has failed has ended it already.
        let result = match live.poll_caught(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => live.end(result),
            Poll::Pending if live.withdraw() => Err(cause),
            Poll::Pending => live.give_up(cause),
        };
        Self::complete(state, result);
    }

    /// Gives the request up if its deadline has passed.
    pub fn check_deadline(&self, now: Instant) {
        let mut state = self.lock();
        let RequestStage::Live(live) = &mut state.stage else { return };
        if live.deadline() <= now {
            let late = live.ticket.communicator.timeout(live.ticket.doing);
            let result = live.give_up(late);
            Self::complete(state, result);
        }
    }

    /// Writes to the log which rank it waits for.
    pub fn report_straggler(&self) {
        if let RequestStage::Live(live) = &self.lock().stage {
            live.ticket.communicator.report_stragglers(live.ticket.doing);
        }
    }

    /// The calling thread waits for the request and polls it. Fails if another one does.
    pub fn begin_wait(&self) -> Result<()> {
        let mut state = self.lock();
        state.check_not_waited_for()?;
        state.is_waited_for = true;
        Ok(())
    }

    /// Ends what `begin_wait` began. The thread that watches the request polls it again.
    pub fn end_wait(&self) {
        let mut state = self.lock();
        state.is_waited_for = false;
        let watcher = state.watcher.clone();
        drop(state);
        if let Some(watcher) = watcher {
            watcher.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestState {
    fn check_not_waited_for(&self) -> Result<()> {
        if self.is_waited_for {
            let what = "another call waits for the request: one call at a time may use it";
            return Err(Error::Usage(what.to_owned()));
        }
        Ok(())
    }
}

impl LiveRequest {
    fn deadline(&self) -> Instant {
        self.issued + self.ticket.communicator.config.op_timeout
    }

    fn poll_caught(&mut self, context: &mut Context<'_>) -> Poll<Result<Reported>> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll(context)));
        polled.unwrap_or_else(|panic| {
            self.step = RequestStep::Ended;
            Poll::Ready(Err(Error::from_panic(&*panic)))
        })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Reported>> {
        if let RequestStep::Posted(receive, _) = &mut self.step {
            let Poll::Ready(matched) = receive.poll(context) else { return Poll::Pending };
            let step = std::mem::replace(&mut self.step, RequestStep::Ended);
            let RequestStep::Posted(_, incoming) = step else { unreachable!("it was posted") };
            let arrival = match matched {
                Ok(arrival) => arrival,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let communicator = Arc::clone(&self.ticket.communicator);
            self.step = RequestStep::Transfer(Box::pin(async move {
                let (mesh, Incoming { call, into, .. }) = (&communicator.mesh, incoming);
                match messaging::take(mesh, arrival, call, into).await {
                    Ok(reported) => Ok(Some(reported)),
                    Err(error) => Err(agreed(mesh, error).await),
                }
            }));
        }
        match &mut self.step {
            RequestStep::Transfer(transfer) => transfer.as_mut().poll(context),
            _ => unreachable!("a request that has ended is not polled"),
        }
    }

    /// Completes the ticket. Returns the result to report.
    fn end(&mut self, result: Result<Reported>) -> Result<Reported> {
        self.step = RequestStep::Ended;
        match result {
            Ok(reported) => self.ticket.end(Ok(())).map(|()| reported),
            Err(error) => self.ticket.end(Err(error)).map(|()| None),
        }
    }

    /// Withdraws a receive. False if it has matched a message, or is a send.
    fn withdraw(&mut self) -> bool {
        let RequestStep::Posted(receive, _) = &mut self.step else { return false };
        receive.withdraw() && self.end(Ok(None)).is_ok()
    }

    /// Fails the communicator, unless the request completes now.
    fn give_up(&mut self, cause: Error) -> Result<Reported> {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(result) = self.poll_caught(&mut context) {
            return self.end(result);
        }
        let error = self.ticket.fail(cause);
        // The transfer finds the failure, and reports that a payload may not be read any more.
        let _ = self.poll_caught(&mut context);
        let _ = self.end(Ok(None));
        Err(error)
    }
}
