//! An operation from its beginning to its completion: a call with its sequence number, or a
//! message.
//!
//! Leaves to `work` what the operation does. Invariant: a sequence number that was taken is
//! completed exactly once, whatever happens to its call. A call that is given up fails the
//! communicator first, so that no rank waits for it and nothing is sent behind a message that broke
//! off.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use tracing::trace;

use crate::comm::Communicator;
use crate::error::{Doing, Error, Result};
use crate::message::MessageCall;
use crate::op::Call;
use crate::transport::{CallHistory, Receive, SendTurn};

use super::stream_order::{StreamCounts, StreamPosition};

pub struct Ticket {
    pub communicator: Arc<Communicator>,
    pub doing: Doing,
    /// The calls before this one, if it is a collective.
    pub history: CallHistory,
    /// The stream batches that this operation waits for.
    behind: StreamCounts,
    /// When those stream batches had completed; if there were none, when the watch first read the
    /// clock. The deadline counts from here.
    pub start: Cell<Option<Instant>>,
    /// The position of a message among others, until the message is executed.
    message: Cell<Option<MessagePosition>>,
    /// The position of the batch of a collective on a stream, which all its collectives share.
    stream: Cell<Option<Arc<StreamPosition>>>,
    stage: Cell<TicketStage>,
}

/// The position of a message among those of its direction, taken when it is issued.
enum MessagePosition {
    Send(SendTurn),
    Receive(Receive),
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
        behind: StreamCounts,
    ) -> Self {
        let (start, message) = (Cell::new(None), Cell::new(None));
        let (stream, stage) = (Cell::new(None), Cell::new(TicketStage::Open));
        Self { communicator, doing, history, behind, start, message, stream, stage }
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
        let behind = state.queued;
        drop(state);
        Ok(Self::new(communicator, Doing::Collective { seq, call }, history, behind))
    }

    /// Registers a message and fixes its position: a send takes its turn in the queue to its peer,
    /// and a receive is posted. Fails if the communicator accepts no more operations.
    pub fn of_message(communicator: Arc<Communicator>, call: MessageCall) -> Result<Self> {
        let mut state = communicator.lock();
        communicator.check_open(&state, &call)?;
        state.begun += 1;
        let behind = state.queued;
        // Under the lock: of two operations of the communicator, only the later one waits.
        let message_queues = communicator.mesh.messages.message_queues();
        let position = match call {
            MessageCall::Send { to, .. } => Some(MessagePosition::Send(message_queues.turn(to))),
            MessageCall::Recv(call) => Some(MessagePosition::Receive(message_queues.post(call))),
            MessageCall::Probe(_) => None,
        };
        drop(state);
        let (name, rank) = (&communicator.name, communicator.me().rank);
        trace!(rank = rank.0 as u64, "communicator {name}: {rank}, {call}");
        let ticket = Self::new(communicator, Doing::Message(call), CallHistory::default(), behind);
        ticket.message.set(position);
        Ok(ticket)
    }

    /// Registers an operation on messages that waits for no other operation, and for which no other
    /// waits. Fails if the communicator accepts no more operations.
    pub fn of_unordered(communicator: Arc<Communicator>, call: MessageCall) -> Result<Self> {
        let mut state = communicator.lock();
        communicator.check_open(&state, &call)?;
        state.begun += 1;
        drop(state);
        let (doing, behind) = (Doing::Message(call), StreamCounts::default());
        Ok(Self::new(communicator, doing, CallHistory::default(), behind))
    }

    /// The operation is on a stream: a message then waits for its own stream alone, and a
    /// collective also for earlier collectives on other streams.
    pub fn queue_on_stream(&mut self) {
        let counts = self.behind;
        self.behind = match self.doing {
            Doing::Collective { .. } => StreamCounts { batches: 0, ..counts },
            Doing::Message(_) => StreamCounts::default(),
        };
    }

    /// Holds the position of the ticket's batch until the collective has completed. Does nothing
    /// for a message.
    pub fn hold(&self, position: &Arc<StreamPosition>) {
        if self.is_collective() {
            self.stream.set(Some(Arc::clone(position)));
        }
    }

    /// Whether it was issued behind stream batches that it waits for.
    pub fn waits_for_streams(&self) -> bool {
        self.behind != StreamCounts::default()
    }

    pub fn is_collective(&self) -> bool {
        matches!(self.doing, Doing::Collective { .. })
    }

    /// Waits until the stream batches before it have completed, each by its own deadline.
    pub async fn wait_for_streams(&self) {
        self.communicator.stream_order.wait_completed(self.behind).await;
        self.start.set(Some(Instant::now()));
    }

    /// The turn of a send, which was taken when it was issued.
    pub fn turn(&self) -> SendTurn {
        match self.message.take() {
            Some(MessagePosition::Send(turn)) => turn,
            _ => unreachable!("a send takes its turn once"),
        }
    }

    /// A receive, as it was posted when it was issued.
    pub fn posted(&self) -> Receive {
        match self.message.take() {
            Some(MessagePosition::Receive(receive)) => receive,
            _ => unreachable!("a receive is posted once"),
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
            drop(self.message.take());
            if let Doing::Collective { seq, .. } = self.doing {
                self.communicator.lanes.end(seq);
            }
            drop(self.stream.take());
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
