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
use super::super::{EncodedHeader, Lane};
use super::segment::{Inline, SharedSegment, SlotView};
use super::{Host, YIELDS};
use crate::rank::Rank;

/// The memory that all ranks of a communicator share, and the list in which their calls are
/// recorded.
pub struct FastHost {
    pub(in super::super) host: Arc<Host>,
    pub(in super::super) calls: Arc<RecentCalls>,
}

impl FastHost {
    /// Begins the next epochs of a lane. `None` if this rank would have to wait for a peer that is
    /// far behind. The caller is the operation whose turn it is in the lane.
    #[inline(always)]
    pub fn begin<'a>(
        &'a self,
        lane: Lane,
        encoded: &'a EncodedHeader,
        epochs: FastEpochs,
    ) -> Option<FastEpoch<'a>> {
        FastEpoch::begin(&self.host, lane, encoded, epochs)
    }

    /// Records a call for the threads that compare calls. Ranks that view each other's descriptors
    /// compare the call there; the others learn of it later.
    #[inline(always)]
    pub fn record(&self, seq: u64, call: CallWords) {
        self.calls.record(seq, call);
    }
}

/// The epochs that a call begins.
#[derive(Clone, Copy, Debug)]
pub struct FastEpochs {
    /// How many all ranks begin alike.
    pub all: u64,
    /// In how many of them, the first ones, this rank publishes.
    pub published: u64,
}

impl FastEpochs {
    /// One, in which this rank may publish.
    pub const ONE: Self = Self { all: 1, published: 1 };
}

/// The epochs of a call, in most calls one.
pub struct FastEpoch<'a> {
    host: &'a Host,
    lane: Lane,
    /// The first one.
    number: u64,
    last: u64,
    encoded: &'a EncodedHeader,
    published: Cell<bool>,
    /// How many more polls of any peer's descriptor there are before a yield.
    spins: Cell<u32>,
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
    pub fn begin(
        host: &'a Host,
        lane: Lane,
        encoded: &'a EncodedHeader,
        epochs: FastEpochs,
    ) -> Option<Self> {
        let number = host.lanes[lane.0].next.load(Ordering::Relaxed);
        let ahead = host.most_ahead(encoded.bytes());
        let is_free = || {
            let mut published = number..number + epochs.published;
            published.all(|epoch| host.awaited(lane, epoch, ahead, false).is_none())
        };
        if !host.spin_until(is_free) {
            return None;
        }
        host.lanes[lane.0].next.store(number + epochs.all, Ordering::Relaxed);
        Some(Self {
            host,
            lane,
            number,
            last: number + epochs.all - 1,
            encoded,
            published: Cell::new(false),
            spins: Cell::new(host.spins()),
            yields: Cell::new(if host.is_crowded() { YIELDS } else { 0 }),
        })
    }

    pub fn started(&self) -> Started {
        Started { epoch: self.number, published: self.published.get() }
    }

    /// How many bytes each rank publishes.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.encoded.bytes()
    }

    /// Publishes the first `bytes` of these, and wakes the ranks that sleep.
    #[inline(always)]
    pub fn publish(&self, inline: &Inline) {
        self.publish_and_release_next(inline);
        self.host.ring();
    }

    /// As `publish`, for a rank that next releases the epoch, which wakes the others.
    #[inline(always)]
    pub fn publish_and_release_next(&self, inline: &Inline) {
        self.host.segments[self.host.me].publish_inline(
            self.lane,
            self.number,
            self.encoded,
            inline,
        );
        self.published.set(true);
    }

    /// As `publish`, with bytes that `fill` writes to a slot.
    pub fn publish_slot(&self, fill: impl FnOnce(&mut [u8])) {
        self.host.publish(self.lane, self.number, self.encoded, fill);
        self.published.set(true);
    }

    /// Publishes bytes, which `fill` writes, in one of several epochs. `ring` follows, or the
    /// release of the epochs.
    pub fn publish_part(&self, index: usize, bytes: usize, fill: impl FnOnce(&mut [u8])) {
        let (epoch, encoded) = (self.number + index as u64, self.encoded.with_bytes(bytes));
        self.host.segments[self.host.me].publish(self.lane, epoch, &encoded, fill);
        self.published.set(true);
    }

    /// Wakes the ranks that sleep.
    pub fn ring(&self) {
        self.host.ring();
    }

    /// What this rank has published in its slot.
    pub fn own(&self) -> &[u8] {
        match self.host.segments[self.host.me].view(self.lane, self.number, self.encoded) {
            SlotView::Bytes(bytes) => bytes,
            _ => unreachable!("it has published bytes"),
        }
    }

    /// What a rank has published, if it arrives within the spin limit and the call is the expected
    /// one.
    #[inline(always)]
    pub fn view(&self, at: Rank) -> Option<Inline> {
        self.segment_of(at, self.number)?.view_inline(self.lane, self.number, self.encoded)
    }

    /// As `view`, in the slot of the rank.
    pub fn view_slot(&self, at: Rank) -> Option<&[u8]> {
        self.view_in(self.number, at, self.encoded)
    }

    /// As `view_slot`, in one of several epochs. `bytes`: what the rank is expected to publish.
    pub fn view_part(&self, index: usize, at: Rank, bytes: usize) -> Option<&[u8]> {
        self.view_in(self.number + index as u64, at, &self.encoded.with_bytes(bytes))
    }

    #[inline(always)]
    fn view_in(&self, epoch: u64, at: Rank, encoded: &EncodedHeader) -> Option<&[u8]> {
        match self.segment_of(at, epoch)?.view(self.lane, epoch, encoded) {
            SlotView::Bytes(bytes) => Some(bytes),
            // Bytes that are viewed in place must be confirmed at the end of the call.
            SlotView::Elsewhere(_) | SlotView::Other(_) => None,
        }
    }

    /// The segment of a rank, once that has published something in an epoch.
    #[inline(always)]
    fn segment_of(&self, at: Rank, epoch: u64) -> Option<&SharedSegment> {
        let segment = &self.host.segments[at.0];
        if segment.has(self.lane, epoch) {
            // A rank that is ahead has published in the next epoch too.
            segment.prefetch(self.lane, epoch + 1);
        } else {
            while !segment.has(self.lane, epoch) {
                match self.spins.get().checked_sub(1) {
                    Some(spins) => self.spins.set(spins),
                    None => self.yield_processor()?,
                }
                std::hint::spin_loop();
            }
        }
        Some(segment)
    }

    /// Yields this rank's processor, because the awaited rank may share it. `None` if it was
    /// yielded often enough.
    #[cold]
    fn yield_processor(&self) -> Option<()> {
        self.yields.set(self.yields.get().checked_sub(1)?);
        std::thread::yield_now();
        self.spins.set(self.host.spins());
        Some(())
    }

    /// This rank views nothing more in these epochs.
    #[inline(always)]
    pub fn release(&self) {
        self.host.release(self.lane, self.last);
    }
}
