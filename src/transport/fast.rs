//! The fast path of small calls between processes of one host: one epoch, without a future.
//!
//! Joins what such a call needs of the mesh: the memory that all ranks share, and the list of recent
//! calls, in which it is recorded for the ranks that compare calls. Leaves to `comm` when it is
//! tried.

use std::sync::Arc;

use super::recent_calls::RecentCalls;
use super::shm::{Brief, Host};
use super::wire::CallWords;
use super::{Label, Lane};

pub struct FastHost {
    pub(super) host: Arc<Host>,
    pub(super) calls: Arc<RecentCalls>,
}

impl FastHost {
    /// The next epoch of a lane, unless a rank is so far behind that it must be waited for.
    #[inline(always)]
    pub fn begin<'a>(&'a self, lane: Lane, label: &'a Label) -> Option<Brief<'a>> {
        Brief::begin(&self.host, lane, label)
    }

    /// As `Membership::announce`, of a call in which ranks meet in memory. Ranks that do not meet
    /// there learn of it later.
    #[inline(always)]
    pub fn record(&self, seq: u64, call: CallWords) {
        self.calls.record(seq, call);
    }
}
