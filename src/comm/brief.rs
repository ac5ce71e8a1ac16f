//! A call of few bytes between ranks of one host, made on the caller's thread without a ticket.
//!
//! Who holds the communicator's lock from the call's number to its end needs neither: nobody can ask for a
//! turn, for what is running, or for an end meanwhile. Leaves to `batch` what is not ended in a moment.
//! Invariant: a call that is not made here has changed nothing, or has its number and is gone on with.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::{Level, enabled};

use super::Communicator;
use super::batch::run_begun;
use super::lane::Lanes;
use super::ticket::Ticket;
use super::work::Work;
use crate::collective::brief;
use crate::error::{Doing, Error, Result};
use crate::transport::shm::{Brief, Started};
use crate::transport::{Header, LANES, Label, Mesh};

/// What became of a call that was tried.
pub enum Tried {
    Ended,
    /// Nothing was done.
    Refused,
    Begun(Box<Begun>),
}

/// A call that has its number and its round, or that has failed.
pub struct Begun {
    ticket: Ticket,
    started: Result<Started>,
}

impl Begun {
    /// Runs it to its end.
    pub fn go_on(self, work: Work<'_>) -> Result<()> {
        match self.started {
            Ok(started) => run_begun(&self.ticket, work, Some(started)),
            Err(failure) => self.ticket.end(Err(failure)),
        }
    }
}

impl Communicator {
    /// Makes a call of few bytes at once, if it can be made so.
    #[inline]
    pub fn make_briefly(self: &Arc<Self>, work: &mut Work<'_>) -> Tried {
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
        state.count(label.header.past.then_words(label.call_words()));
        mesh.note(seq, label.call_words());
        let made = catch_unwind(AssertUnwindSafe(|| brief::make(op, place, &round)));
        if let Ok(Some(())) = made {
            self.lanes.end_alone(seq);
            return Tried::Ended;
        }
        state.begun += 1;
        drop(state);
        let (doing, past) = (Doing::Collective { seq, call }, label.header.past);
        let ticket = Ticket::new(Arc::clone(self), doing, past, 0);
        let failed = |panic: Box<dyn Any + Send>| Error::from_panic(&*panic);
        Tried::Begun(Box::new(Begun {
            ticket,
            started: made.map(|_| round.started()).map_err(failed),
        }))
    }
}
