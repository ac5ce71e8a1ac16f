//! A round in which each rank lays out bytes in a line or a slot and waits for the others no longer than a moment,
//! without a future.
//!
//! Leaves to its user what follows if somebody does not come in that moment: what was laid out stays there, and
//! who goes on finds everything as it was.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::super::{Label, Lane};
use super::Host;
use super::shelf::{Few, Found, Shelf};
use crate::rank::Rank;

pub struct Brief<'a> {
    host: &'a Host,
    lane: Lane,
    round: u64,
    label: &'a Label,
    laid: Cell<bool>,
    /// How often it is still looked, at whomever, before it gives way.
    looks: Cell<u32>,
    /// How often it still gives way: not for long, the caller holds locks.
    yields: Cell<u32>,
}

/// How often who waits gives way in a crowd, where the one waited for may need this processor.
const YIELDS: u32 = 3;

/// A round that was begun as a brief one and is gone on with.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    pub round: u64,
    /// Whether this rank has laid out what it lays out in it.
    pub laid: bool,
}

impl<'a> Brief<'a> {
    /// The next round of a lane, unless somebody is so far behind that it must be waited for. The operation whose
    /// turn it is in the lane has called this, and no other will before it has ended.
    #[inline(always)]
    pub fn begin(host: &'a Host, lane: Lane, label: &'a Label) -> Option<Self> {
        let round = host.lanes[lane.0].next.load(Ordering::Relaxed);
        let ahead = host.most_ahead(label.bytes());
        let is_free = || host.awaited(lane, round, ahead, false).is_none();
        if !host.comes_in_a_moment(is_free) {
            return None;
        }
        host.lanes[lane.0].next.store(round + 1, Ordering::Relaxed);
        Some(Self {
            host,
            lane,
            round,
            label,
            laid: Cell::new(false),
            looks: Cell::new(host.looks()),
            yields: Cell::new(if host.is_crowded() { YIELDS } else { 0 }),
        })
    }

    /// For who goes on with it.
    pub fn started(&self) -> Started {
        Started { round: self.round, laid: self.laid.get() }
    }

    /// How many bytes each rank lays out.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.label.bytes()
    }

    /// Lays out the first `bytes` of these.
    #[inline(always)]
    pub fn lay(&self, few: &Few) {
        self.lay_and_pass_next(few);
        self.host.ring();
    }

    /// As `lay`, for who passes the round next, which rings the bells.
    #[inline(always)]
    pub fn lay_and_pass_next(&self, few: &Few) {
        self.host.shelves[self.host.me].lay_few(self.lane, self.round, self.label, few);
        self.laid.set(true);
    }

    /// As `lay`, with bytes that `fill` writes.
    pub fn lay_with(&self, fill: impl FnOnce(&mut [u8])) {
        self.host.lay(self.lane, self.round, self.label, fill);
        self.laid.set(true);
    }

    /// What this rank has laid out.
    pub fn own(&self) -> &[u8] {
        match self.host.shelves[self.host.me].find(self.lane, self.round, self.label) {
            Found::Bytes(bytes) => bytes,
            _ => unreachable!("it has laid out bytes"),
        }
    }

    /// What a rank has laid out, if it comes in a moment and is what was expected.
    #[inline(always)]
    pub fn look(&self, at: Rank) -> Option<Few> {
        self.shelf_of(at)?.few(self.lane, self.round, self.label)
    }

    /// As `look`, where it lies: it may be more than few bytes.
    pub fn see(&self, at: Rank) -> Option<&[u8]> {
        match self.shelf_of(at)?.find(self.lane, self.round, self.label) {
            Found::Bytes(bytes) => Some(bytes),
            // What is shown must be seen by who can say later that it was.
            Found::Elsewhere(_) | Found::Other(_) => None,
        }
    }

    /// The shelf of a rank, if that lays out something in a moment.
    #[inline(always)]
    fn shelf_of(&self, at: Rank) -> Option<&Shelf> {
        let shelf = &self.host.shelves[at.0];
        if shelf.has(self.lane, self.round) {
            // Who is ahead has laid out the next ones too.
            shelf.fetch(self.lane, self.round + 1);
        } else {
            while !shelf.has(self.lane, self.round) {
                match self.looks.get().checked_sub(1) {
                    Some(looks) => self.looks.set(looks),
                    None => self.give_way()?,
                }
                std::hint::spin_loop();
            }
        }
        Some(shelf)
    }

    /// Lets ranks have the processor that share it with this one, which may be the ones that are waited for.
    #[cold]
    fn give_way(&self) -> Option<()> {
        self.yields.set(self.yields.get().checked_sub(1)?);
        std::thread::yield_now();
        self.looks.set(self.host.looks());
        Some(())
    }

    /// This rank has seen what it wants.
    #[inline(always)]
    pub fn pass(&self) {
        self.host.pass(self.lane, self.round);
    }
}
