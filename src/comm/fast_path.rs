//! The fast path: a short call between ranks of one host, executed on the caller's thread without a
//! ticket.
//!
//! The caller holds the communicator's lock from taking the sequence number to completion, so it
//! needs no ticket: no other thread can queue behind it, drain, or destroy in between. Leaves to
//! `submit` which calls try it. Invariant: a call that is not completed here has changed nothing,
//! or has its sequence number and continues on the general path, or has panicked and failed its
//! communicator.

use std::sync::{Arc, MutexGuard};

use tracing::{Level, enabled};

use crate::collective::fast_path;
use crate::error::{Doing, Result};
use crate::message::{Incoming, MessageCall, Outgoing};
use crate::transport::{EAGER, EncodedHeader, Header, LANES, Started};

use super::communicator::{CommState, Communicator};
use super::run::{LaneQueues, Ticket, Work, run_begun};

/// The outcome of an attempt.
pub enum FastPath {
    Done,
    /// Nothing was done: the call takes the general path.
    NotEligible,
    /// A peer did not arrive within the spin limit: the call continues on the general path.
    Pending(Box<Pending>),
}

/// A call that has its sequence number and its epoch.
pub struct Pending {
    ticket: Ticket,
    started: Started,
}

impl Pending {
    /// Executes the rest of the call on the general path.
    pub fn resume(self, work: Work<'_>) -> Result<()> {
        run_begun(&self.ticket, work, Some(self.started))
    }
}

impl Communicator {
    /// Executes a short call whose buffers are host memory, if it can complete within the spin
    /// limit. Inlined into the exported C function, where the collective is a constant: the
    /// operation is then neither stored to memory nor read back.
    #[inline(always)]
    pub(super) fn try_fast_path(self: &Arc<Self>, work: &mut Work<'_>) -> FastPath {
        if enabled!(Level::TRACE) {
            // A write to the log is a cancellation point, and this thread is not protected here.
            return FastPath::NotEligible;
        }
        let op = match work {
            Work::Collective(op) => op,
            Work::Send(outgoing) => return self.try_send(outgoing),
            Work::Recv(incoming) => return self.try_receive(incoming),
            Work::Other(_) => return FastPath::NotEligible,
        };
        let (mesh, me) = (&self.mesh, self.mesh.me);
        let bytes = if self.has_fast_path { fast_path::bytes(op, me.size) } else { None };
        let (Some(host), Some(bytes)) = (&mesh.memory.fast, bytes) else {
            return FastPath::NotEligible;
        };
        let mut state = self.lock();
        let (seq, call) = (state.next_seq, op.call());
        let is_free = self.stream_order.has_completed(state.stream_batches)
            && self.lanes.is_turn(seq)
            && self.check_open(&state, &call).is_ok();
        let encoded =
            EncodedHeader::new(Header { seq, call, history: state.history, step: 0, bytes });
        let begun = if is_free { host.begin(LaneQueues::<LANES>::of(seq), &encoded) } else { None };
        let Some(epoch) = begun else { return FastPath::NotEligible };
        let history = state.history.then_words(encoded.call_words());
        state.count(history);
        let mut uncompleted =
            Uncompleted { communicator: self, encoded: &encoded, state: Some(state) };
        host.record(seq, encoded.call_words());
        if fast_path::execute(op, me, &epoch).is_none() {
            let pending = Pending { ticket: uncompleted.ticket(), started: epoch.started() };
            return FastPath::Pending(Box::new(pending));
        }
        self.lanes.end_alone(seq);
        uncompleted.state = None; // it has completed: no ticket
        FastPath::Done
    }
}

impl Communicator {
    /// Sends a short message to a rank of this host, if nothing must be waited for.
    fn try_send(self: &Arc<Self>, outgoing: &Outgoing<'_>) -> FastPath {
        let state = self.lock();
        let is_done = !outgoing.synchronous
            && self.accepts_message(&state, &outgoing.call())
            && self.mesh.messages.send_at_once(outgoing);
        if is_done { FastPath::Done } else { FastPath::NotEligible }
    }

    /// Receives a short message from a rank of this host, if it arrives within the spin limit.
    fn try_receive(self: &Arc<Self>, incoming: &mut Incoming<'_>) -> FastPath {
        {
            let mut state = self.lock();
            let call = MessageCall::Recv(incoming.call);
            let is_short = incoming.into.len() <= EAGER && incoming.report.is_none();
            if !is_short || !self.accepts_message(&state, &call) {
                return FastPath::NotEligible;
            }
            state.begun += 1;
        }
        let _running = Begun(self);
        let is_done = self.mesh.messages.receive_at_once(incoming);
        if is_done { FastPath::Done } else { FastPath::NotEligible }
    }

    /// Whether a message may begin now: it waits for no stream and no earlier message.
    fn accepts_message(&self, state: &CommState, call: &MessageCall) -> bool {
        self.stream_order.has_completed(state.stream_batches)
            && self.messages.is_turn(state.next_message)
            && self.check_open(state, call).is_ok()
    }
}

/// An operation that has begun, until dropped.
struct Begun<'a>(&'a Communicator);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// A call that has its sequence number, under the lock. If it panics, it gets a ticket, whose drop
/// fails the communicator and completes the call.
struct Uncompleted<'a> {
    communicator: &'a Arc<Communicator>,
    encoded: &'a EncodedHeader,
    /// Until the call has completed or has its ticket.
    state: Option<MutexGuard<'a, CommState>>,
}

impl Uncompleted<'_> {
    #[cold]
    fn ticket(&mut self) -> Ticket {
        if let Some(mut state) = self.state.take() {
            state.begun += 1;
        }
        let Header { seq, call, history, .. } = self.encoded.header();
        Ticket::new(Arc::clone(self.communicator), Doing::Collective { seq, call }, history, 0)
    }
}

impl Drop for Uncompleted<'_> {
    fn drop(&mut self) {
        if self.state.is_some() {
            drop(self.ticket());
        }
    }
}
