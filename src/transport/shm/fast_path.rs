//! The fast path of small calls between processes of one host: one epoch, without a future and
//! without sleeping.
//!
//! A rank publishes, and views what its peers publish, for at most the spin limit. Leaves to `comm`
//! which calls try it, and what follows if a peer does not arrive. Invariant: an epoch that is not
//! completed here stays as it is, so that the general path can continue in it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::recent_calls::RecentCalls;
use super::super::wire::CallWords;
use super::super::{Label, Lane};
use super::Host;
use super::shelf::{Few, Found, Shelf};
use crate::rank::Rank;

/// The memory that all ranks of a communicator share, and the list in which their calls are
/// recorded.
pub struct FastHost {
    pub(in super::super) host: Arc<Host>,
    pub(in super::super) calls: Arc<RecentCalls>,
}

impl FastHost {
    /// Begins the next epoch of a lane. `None` if a peer is so far behind that this rank would have
    /// to wait for it. The caller is the operation whose turn it is in the lane.
    #[inline(always)]
    pub fn begin<'a>(&'a self, lane: Lane, label: &'a Label) -> Option<FastEpoch<'a>> {
        FastEpoch::begin(&self.host, lane, label)
    }

    /// Records a call for the threads that compare calls. Ranks that meet in memory compare it
    /// there; the others learn of it later.
    #[inline(always)]
    pub fn record(&self, seq: u64, call: CallWords) {
        self.calls.record(seq, call);
    }
}

/// How often a rank that waits yields its processor where ranks outnumber processors, so that the
/// awaited rank may need this one. Not more often, because the caller holds locks.
const YIELDS: u32 = 3;

/// One epoch of a call.
pub struct FastEpoch<'a> {
    host: &'a Host,
    lane: Lane,
    number: u64,
    label: &'a Label,
    published: Cell<bool>,
    /// How many more polls of any peer's descriptor there are before a yield.
    looks: Cell<u32>,
    yields: Cell<u32>,
}

/// An epoch that the fast path has begun and the general path continues.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    pub epoch: u64,
    /// Whether this rank has published its bytes.
    pub published: bool,
}

impl<'a> FastEpoch<'a> {
    /// As `FastHost::begin`.
    #[inline(always)]
    pub fn begin(host: &'a Host, lane: Lane, label: &'a Label) -> Option<Self> {
        let number = host.lanes[lane.0].next.load(Ordering::Relaxed);
        let ahead = host.most_ahead(label.bytes());
        let is_free = || host.awaited(lane, number, ahead, false).is_none();
        if !host.comes_in_a_moment(is_free) {
            return None;
        }
        host.lanes[lane.0].next.store(number + 1, Ordering::Relaxed);
        Some(Self {
            host,
            lane,
            number,
            label,
            published: Cell::new(false),
            looks: Cell::new(host.looks()),
            yields: Cell::new(if host.is_crowded() { YIELDS } else { 0 }),
        })
    }

    pub fn started(&self) -> Started {
        Started { epoch: self.number, published: self.published.get() }
    }

    /// How many bytes each rank publishes.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.label.bytes()
    }

    /// Publishes the first `bytes` of these, and wakes the ranks that sleep.
    #[inline(always)]
    pub fn publish(&self, few: &Few) {
        self.publish_and_release_next(few);
        self.host.ring();
    }

    /// As `publish`, for a rank that next releases the epoch, which wakes the others.
    #[inline(always)]
    pub fn publish_and_release_next(&self, few: &Few) {
        self.host.shelves[self.host.me].lay_few(self.lane, self.number, self.label, few);
        self.published.set(true);
    }

    /// As `publish`, with bytes that `fill` writes to a slot.
    pub fn publish_slot(&self, fill: impl FnOnce(&mut [u8])) {
        self.host.lay(self.lane, self.number, self.label, fill);
        self.published.set(true);
    }

    /// What this rank has published in its slot.
    pub fn own(&self) -> &[u8] {
        match self.host.shelves[self.host.me].find(self.lane, self.number, self.label) {
            Found::Bytes(bytes) => bytes,
            _ => unreachable!("it has published bytes"),
        }
    }

    /// What a rank has published, if it arrives within the spin limit and the call is the expected
    /// one.
    #[inline(always)]
    pub fn view(&self, at: Rank) -> Option<Few> {
        self.shelf_of(at)?.few(self.lane, self.number, self.label)
    }

    /// As `view`, in the slot of the rank.
    pub fn view_slot(&self, at: Rank) -> Option<&[u8]> {
        match self.shelf_of(at)?.find(self.lane, self.number, self.label) {
            Found::Bytes(bytes) => Some(bytes),
            // Bytes that are viewed in place must be confirmed at the end of the call.
            Found::Elsewhere(_) | Found::Other(_) => None,
        }
    }

    /// The segment of a rank, once that has published something in this epoch.
    #[inline(always)]
    fn shelf_of(&self, at: Rank) -> Option<&Shelf> {
        let shelf = &self.host.shelves[at.0];
        if shelf.has(self.lane, self.number) {
            // A rank that is ahead has published in the next epoch too.
            shelf.fetch(self.lane, self.number + 1);
        } else {
            while !shelf.has(self.lane, self.number) {
                match self.looks.get().checked_sub(1) {
                    Some(looks) => self.looks.set(looks),
                    None => self.yield_processor()?,
                }
                std::hint::spin_loop();
            }
        }
        Some(shelf)
    }

    /// Lets the ranks run that share this rank's processor: one of them may be the awaited one.
    #[cold]
    fn yield_processor(&self) -> Option<()> {
        self.yields.set(self.yields.get().checked_sub(1)?);
        std::thread::yield_now();
        self.looks.set(self.host.looks());
        Some(())
    }

    /// This rank views nothing more in this epoch.
    #[inline(always)]
    pub fn release(&self) {
        self.host.pass(self.lane, self.number);
    }
}
