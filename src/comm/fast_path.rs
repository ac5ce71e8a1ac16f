//! The fast path: a short collective or message between ranks of one host, executed on the caller's
//! thread without a ticket.
//!
//! In a collective the caller holds the communicator's lock from taking the sequence number to
//! completion, so it needs no ticket: no other thread can queue behind it, drain, or destroy in
//! between. A message takes no sequence number and not that lock: its place among messages is
//! decided under the lock of the message queues. Leaves to `submit` which operations try it.
//! Invariant: an operation that is not completed here has changed nothing, or has its sequence
//! number and continues on the general path, or has panicked and failed its communicator.

use std::sync::{Arc, MutexGuard};

use crate::collective::fast_path;
use crate::error::{Doing, Result};
use crate::message::{Incoming, Outgoing, RecvCount};
use crate::op::Op;
use crate::transport::{EAGER, EncodedHeader, Header, LANES, Started};

use super::communicator::{CommState, Communicator};
use super::run::{LaneQueues, StreamCounts, Ticket, Work, run_begun};

/// How often sends of one call poll for room, all together. In a crowd their receivers may need
/// this processor.
const POLLS_FOR_ROOM: u32 = 500;

/// The outcome of an attempt.
pub enum FastPath {
    Done,
    /// Nothing was done: the call takes the general path.
    NotEligible,
    /// A peer did not arrive within the spin limit: the call continues on the general path.
    Pending(Box<Pending>),
}

impl FastPath {
    fn done_if(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::NotEligible }
    }
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

/// An operation whose buffers are host memory, which may complete on the fast path.
pub trait TryFastPath {
    /// Executes it on `communicator`, if it can complete within the spin limit. A write to the log
    /// is a cancellation point, and the thread is not protected here: the log level TRACE must be
    /// off.
    fn try_on(&mut self, communicator: &Arc<Communicator>) -> FastPath;
}

impl TryFastPath for Op<'_> {
    #[inline(always)]
    fn try_on(&mut self, communicator: &Arc<Communicator>) -> FastPath {
        communicator.try_collective(self)
    }
}

impl TryFastPath for Outgoing<'_> {
    #[inline(always)]
    fn try_on(&mut self, communicator: &Arc<Communicator>) -> FastPath {
        FastPath::done_if(communicator.try_send(self))
    }
}

impl TryFastPath for Incoming<'_> {
    #[inline(always)]
    fn try_on(&mut self, communicator: &Arc<Communicator>) -> FastPath {
        FastPath::done_if(communicator.try_receive(self))
    }
}

impl TryFastPath for Work<'_> {
    fn try_on(&mut self, communicator: &Arc<Communicator>) -> FastPath {
        match self {
            Work::Collective(op) => op.try_on(communicator),
            Work::Send(outgoing) => outgoing.try_on(communicator),
            Work::Recv(incoming) => incoming.try_on(communicator),
            Work::Other(_) => FastPath::NotEligible,
        }
    }
}

impl Communicator {
    /// Executes a short call. Inlined into the exported C function, where the collective is a
    /// constant: the operation is then neither stored to memory nor read back.
    #[inline(always)]
    fn try_collective(self: &Arc<Self>, op: &mut Op<'_>) -> FastPath {
        let (mesh, me) = (&self.mesh, self.mesh.me);
        let bytes = if self.has_fast_path { fast_path::bytes(op, me.size) } else { None };
        let (Some(host), Some(bytes)) = (&mesh.memory.fast, bytes) else {
            return FastPath::NotEligible;
        };
        let mut state = self.lock();
        let (seq, call) = (state.next_seq, op.call());
        let is_free = self.stream_order.is_idle()
            && self.lanes.is_turn(seq)
            && self.check_open(&state, &call).is_ok();
        let encoded =
            EncodedHeader::new(Header { seq, call, history: state.history, step: 0, bytes });
        let lane = LaneQueues::<LANES>::of(seq);
        let epochs = fast_path::epochs(op, me);
        let begun = if is_free { host.begin(lane, &encoded, epochs) } else { None };
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
    #[inline]
    pub(super) fn try_send(&self, outgoing: &Outgoing<'_>) -> bool {
        self.accepts_message() && self.mesh.messages.send_at_once(outgoing)
    }

    /// Receives a short message from a rank of this host, if it arrives within the spin limit.
    #[inline]
    pub(super) fn try_receive(&self, incoming: &mut Incoming<'_>) -> bool {
        // A message that is known to be longer announces itself to the general path.
        let may_be_eager = match incoming.call.count {
            RecvCount::Exactly(_) => incoming.into.len() <= EAGER,
            RecvCount::UpTo(_) => true,
        };
        may_be_eager && self.accepts_message() && self.mesh.messages.receive_at_once(incoming)
    }

    /// Completes messages that begin together, as far as each waits for no more than the spin
    /// limit. `message`: an item's message. Sends complete in the order of the items, and so do
    /// receives: one that does not complete keeps its place before those behind it.
    pub(super) fn try_messages<'w, T>(
        &self,
        items: &mut [T],
        message: impl Fn(&mut T) -> &mut Work<'w>,
    ) -> CompletedMessages {
        let (mut sends, mut receives) = (0, 0);
        let mut polls = if self.mesh.memory.is_crowded == Some(false) { POLLS_FOR_ROOM } else { 0 };
        loop {
            // Sends first, because the receives of peers may wait for them.
            while let Some(item) = items.get_mut(sends) {
                match message(item) {
                    Work::Send(outgoing) if !self.try_send(outgoing) => break,
                    _ => sends += 1,
                }
            }
            let mut has_received = false;
            while let Some(item) = items.get_mut(receives) {
                if let Work::Recv(incoming) = message(item) {
                    if !self.try_receive(incoming) {
                        break;
                    }
                    has_received = true;
                }
                receives += 1;
                // The sends that wait may have room now.
                if has_received && sends < items.len() {
                    break;
                }
            }
            let (is_sent, is_received) = (sends == items.len(), receives == items.len());
            if is_sent && is_received || !is_received && !has_received || polls == 0 {
                return CompletedMessages { sends, receives };
            }
            if !has_received {
                // Sends wait for credit or for room, as long as their receivers catch up.
                polls -= 1;
                self.mesh.messages.progress();
                std::hint::spin_loop();
            }
        }
    }
}

/// Which of several messages have completed: the sends before one index, and the receives before
/// another.
pub(super) struct CompletedMessages {
    sends: usize,
    receives: usize,
}

impl CompletedMessages {
    /// The items whose messages have not completed.
    pub fn left<'w, T>(
        &self,
        items: impl IntoIterator<Item = T>,
        message: impl Fn(&T) -> &Work<'w>,
    ) -> Vec<T> {
        let is_left = |(index, item): &(usize, T)| match message(item) {
            Work::Send(_) => *index >= self.sends,
            Work::Recv(_) => *index >= self.receives,
            Work::Collective(_) | Work::Other(_) => true,
        };
        items.into_iter().enumerate().filter(is_left).map(|(_, item)| item).collect()
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
        let (doing, behind) = (Doing::Collective { seq, call }, StreamCounts::default());
        Ticket::new(Arc::clone(self.communicator), doing, history, behind)
    }
}

impl Drop for Uncompleted<'_> {
    fn drop(&mut self) {
        if self.state.is_some() {
            drop(self.ticket());
        }
    }
}
