//! An operation from its beginning to its completion: a call with its sequence number, or a
//! message.
//!
//! Leaves to `work` what the operation does. Invariant: a sequence number that was taken is
//! completed exactly once, whatever happens to its call. A call that is given up fails the
//! communicator first, so that no rank waits for it and nothing is sent behind a message that broke
//! off.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

use tracing::trace;

use crate::comm::Communicator;
use crate::error::{Doing, Error, Result};
use crate::message::MessageCall;
use crate::op::Call;
use crate::transport::CallHistory;

pub struct Ticket {
    pub communicator: Arc<Communicator>,
    pub doing: Doing,
    /// The calls before this one, if it is a collective.
    pub history: CallHistory,
    /// How many stream batches the communicator had before this operation.
    pub behind: u64,
    /// When those stream batches had completed; if there were none, when the watch first read the
    /// clock. The deadline counts from here.
    pub start: Cell<Option<Instant>>,
    /// The number of a message among those of the communicator, until its position is fixed.
    message: Cell<Option<u64>>,
    stage: Cell<TicketStage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TicketStage {
    Open,
    Failed,
    Completed,
}

impl Ticket {
    pub fn new(
        communicator: Arc<Communicator>,
        doing: Doing,
        history: CallHistory,
        behind: u64,
    ) -> Self {
        let (start, message) = (Cell::new(None), Cell::new(None));
        let stage = Cell::new(TicketStage::Open);
        Self { communicator, doing, history, behind, start, message, stage }
    }

    /// Gives a call its sequence number and announces it to the other ranks. Fails if the
    /// communicator accepts no more operations.
    pub fn of_call(communicator: Arc<Communicator>, call: Call) -> Result<Self> {
        let mut state = communicator.lock();
        communicator.check_open(&state, &call)?;
        let (seq, history) = (state.next_seq, state.history);
        state.count(history.then(&call));
        // Under the lock: calls are announced in the order of their sequence numbers.
        communicator.mesh.membership.announce(seq, call);
        state.begun += 1;
        let behind = state.stream_batches;
        drop(state);
        Ok(Self::new(communicator, Doing::Collective { seq, call }, history, behind))
    }

    /// Registers a message. Fails if the communicator accepts no more operations.
    pub fn of_message(communicator: Arc<Communicator>, call: MessageCall) -> Result<Self> {
        let mut state = communicator.lock();
        communicator.check_open(&state, &call)?;
        state.begun += 1;
        let number = communicator.next_message.fetch_add(1, Ordering::Release);
        let behind = state.stream_batches;
        drop(state);
        let (name, rank) = (&communicator.name, communicator.me().rank);
        trace!(rank = rank.0 as u64, "communicator {name}: {rank}, {call}");
        let ticket = Self::new(communicator, Doing::Message(call), CallHistory::default(), behind);
        ticket.message.set(Some(number));
        Ok(ticket)
    }

    /// Registers an operation on messages that waits for no other operation, and for which no other
    /// waits. Fails if the communicator accepts no more operations.
    pub fn of_unordered(communicator: Arc<Communicator>, call: MessageCall) -> Result<Self> {
        let mut state = communicator.lock();
        communicator.check_open(&state, &call)?;
        state.begun += 1;
        drop(state);
        Ok(Self::new(communicator, Doing::Message(call), CallHistory::default(), 0))
    }

    /// Waits until the stream batches before it have completed, each by its own deadline.
    pub async fn wait_for_streams(&self) {
        self.communicator.stream_order.wait_completed(self.behind).await;
        self.start.set(Some(Instant::now()));
    }

    /// Polls a message for the first time when all earlier messages have been polled, which fixes
    /// its position among them. Then polls it to completion.
    pub async fn in_order<T>(&self, message: impl Future<Output = T>) -> T {
        if let Some(number) = self.message.get() {
            self.communicator.messages.turn(number).await;
        }
        let mut message = pin!(message);
        let first = poll_fn(|context| Poll::Ready(message.as_mut().poll(context))).await;
        self.fix_position();
        match first {
            Poll::Ready(result) => result,
            Poll::Pending => message.await,
        }
    }

    fn fix_position(&self) {
        if let Some(number) = self.message.take() {
            self.communicator.messages.end(number);
        }
    }

    /// Whether the operation has completed: no other operation waits for it any more.
    pub fn is_completed(&self) -> bool {
        self.stage.get() == TicketStage::Completed
    }

    /// Whether the operation has failed its communicator, as one that is late does.
    pub fn has_failed(&self) -> bool {
        self.stage.get() == TicketStage::Failed
    }

    /// Completes the call. Fails the communicator on all ranks if the call failed, unless the error
    /// is of the call alone; the error is then the one to report to the caller.
    pub fn end(&self, result: Result<()>) -> Result<()> {
        let result = result.map_err(|cause| match cause.is_of_call_alone() {
            true => cause,
            false => self.fail(cause),
        });
        self.release();
        result
    }

    /// Fails the communicator on all ranks, and returns the error to report to the caller. The next
    /// call of the lane still waits until this one completes.
    pub fn fail(&self, cause: Error) -> Error {
        if !self.is_completed() {
            self.stage.set(TicketStage::Failed);
        }
        self.communicator.failed(self.doing, cause)
    }

    /// Fails the communicator before the call has completed. `end` then reports the error.
    pub fn publish_fault(&self, cause: &Error) {
        let rank = self.communicator.me().rank;
        self.communicator.mesh.membership.fail(cause.clone().during(rank, self.doing));
    }

    fn release(&self) {
        if self.stage.replace(TicketStage::Completed) != TicketStage::Completed {
            self.fix_position();
            if let Doing::Collective { seq, .. } = self.doing {
                self.communicator.lanes.end(seq);
            }
            self.communicator.ended();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.stage.get() == TicketStage::Open {
            self.fail(Error::Panic("a call was dropped before it completed".to_owned()));
        }
        self.release();
    }
}
