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
use crate::transport::{Header, LANES, Label, Started};

use super::communicator::{CommState, Communicator};
use super::run::{Lanes, Ticket, Work, run_begun};

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
    /// limit. It is inlined into the exported C function, which knows which collective it is: the
    /// operation is then neither stored to memory nor read back.
    #[inline(always)]
    pub(super) fn try_fast_path(self: &Arc<Self>, work: &mut Work<'_>) -> FastPath {
        let Work::Collective(op) = work else { return FastPath::NotEligible };
        if enabled!(Level::TRACE) {
            // A write to the log is a cancellation point, and this thread is not protected here.
            return FastPath::NotEligible;
        }
        let (mesh, place) = (&self.mesh, self.mesh.place);
        let bytes = if self.has_fast_path { fast_path::bytes(op, place.size) } else { None };
        let (Some(host), Some(bytes)) = (&mesh.memory.fast, bytes) else {
            return FastPath::NotEligible;
        };
        let mut state = self.lock();
        let (seq, call) = (state.next_seq, op.call());
        let is_free = self.stream_order.has_completed(state.stream_batches)
            && self.lanes.has_come(seq)
            && self.check_open(&state, &call).is_ok();
        let label = Label::new(Header { seq, call, past: state.past, step: 0, bytes });
        let begun = if is_free { host.begin(Lanes::<LANES>::of(seq), &label) } else { None };
        let Some(epoch) = begun else { return FastPath::NotEligible };
        let past = state.past.then_words(label.call_words());
        state.count(past);
        let mut uncompleted = Uncompleted { communicator: self, label: &label, state: Some(state) };
        host.record(seq, label.call_words());
        if fast_path::execute(op, place, &epoch).is_none() {
            let pending = Pending { ticket: uncompleted.ticket(), started: epoch.started() };
            return FastPath::Pending(Box::new(pending));
        }
        self.lanes.end_alone(seq);
        uncompleted.state = None; // it has completed: no ticket
        FastPath::Done
    }
}

/// A call that has its sequence number, under the lock. If it panics, it gets a ticket, whose drop
/// fails the communicator and completes the call.
struct Uncompleted<'a> {
    communicator: &'a Arc<Communicator>,
    label: &'a Label,
    /// Until the call has completed or has its ticket.
    state: Option<MutexGuard<'a, CommState>>,
}

impl Uncompleted<'_> {
    #[cold]
    fn ticket(&mut self) -> Ticket {
        if let Some(mut state) = self.state.take() {
            state.begun += 1;
        }
        let Header { seq, call, past, .. } = self.label.header();
        Ticket::new(Arc::clone(self.communicator), Doing::Collective { seq, call }, past, 0)
    }
}

impl Drop for Uncompleted<'_> {
    fn drop(&mut self) {
        if self.state.is_some() {
            drop(self.ticket());
        }
    }
}
