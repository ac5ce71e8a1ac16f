//! A brief call, made on the caller's thread without a ticket.
//!
//! Who holds the communicator's lock from the call's number to its end needs neither: nobody can ask for a
//! turn, for what is running, or for an end meanwhile. Leaves to `batch` what is not ended in a moment.
//! Invariant: a call that is not made here has changed nothing, or has its number and is gone on with, or has
//! panicked and failed its communicator.

use std::sync::{Arc, MutexGuard};

use tracing::{Level, enabled};

use super::communicator::{Communicator, State};
use super::run::{Lanes, Ticket, Work, run_begun};
use crate::collective::brief;
use crate::error::{Doing, Result};
use crate::transport::shm::{Brief, Started};
use crate::transport::{Header, LANES, Label, Mesh};

/// What became of a call that was tried.
pub enum Tried {
    Ended,
    /// Nothing was done.
    Refused,
    Begun(Box<Begun>),
}

/// A call that has its number and its round.
pub struct Begun {
    ticket: Ticket,
    started: Started,
}

impl Begun {
    /// Runs it to its end.
    pub fn go_on(self, work: Work<'_>) -> Result<()> {
        run_begun(&self.ticket, work, Some(self.started))
    }
}

impl Communicator {
    /// Makes a brief call at once, if it can be made so. Part of its callers, who know which call it is:
    /// so it is neither put together nor taken apart in memory.
    #[inline(always)]
    pub fn make_briefly(self: &Arc<Self>, work: &mut Work<'_>) -> Tried {
        if self.asks_driver { Tried::Refused } else { self.try_briefly(work) }
    }

    /// The same, when the driver has said that no buffer is on a device.
    pub(super) fn make_briefly_on_host(self: &Arc<Self>, work: &mut Work<'_>) -> Tried {
        if self.asks_driver { self.try_briefly(work) } else { Tried::Refused }
    }

    #[inline(always)]
    fn try_briefly(self: &Arc<Self>, work: &mut Work<'_>) -> Tried {
        let Work::Collective(op) = work else { return Tried::Refused };
        if enabled!(Level::TRACE) {
            return Tried::Refused; // nothing is written here, which the thread could be cancelled in
        }
        let (mesh, place) = (&self.mesh, self.mesh.place());
        let bytes = if self.brief { brief::bytes(op, place.size) } else { None };
        let (Some(host), Some(bytes)) = (mesh.one_host(), bytes) else { return Tried::Refused };
        let mut state = self.lock();
        let (seq, call) = (state.next_seq, op.call());
        let is_free = self.backlog.has_ended(state.stream_batches)
            && self.lanes.has_come(seq)
            && self.check_open(&state, &call).is_ok();
        let label = Label::new(Header { seq, call, past: state.past, step: 0, bytes });
        let begun =
            if is_free { Brief::begin(host, Lanes::<LANES>::of(seq), &label) } else { None };
        let Some(round) = begun else { return Tried::Refused };
        let past = state.past.then_words(label.call_words());
        state.count(past);
        let mut unended = Unended { communicator: self, label: &label, state: Some(state) };
        mesh.note(seq, label.call_words());
        if brief::make(op, place, &round).is_none() {
            let begun = Begun { ticket: unended.ticket(), started: round.started() };
            return Tried::Begun(Box::new(begun));
        }
        self.lanes.end_alone(seq);
        unended.state = None; // it has ended: no ticket
        Tried::Ended
    }
}

/// A call that has its number, under the lock. If it panics, it gets its ticket, which ends it.
struct Unended<'a> {
    communicator: &'a Arc<Communicator>,
    label: &'a Label,
    /// Until it has ended or got its ticket.
    state: Option<MutexGuard<'a, State>>,
}

impl Unended<'_> {
    #[cold]
    fn ticket(&mut self) -> Ticket {
        if let Some(mut state) = self.state.take() {
            state.begun += 1;
        }
        let Header { seq, call, past, .. } = self.label.header();
        Ticket::new(Arc::clone(self.communicator), Doing::Collective { seq, call }, past, 0)
    }
}

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        if self.state.is_some() {
            drop(self.ticket());
        }
    }
}
