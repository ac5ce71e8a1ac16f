//! A round in which each rank lays out few bytes and waits for the others no longer than a moment, without a
//! future.
//!
//! Leaves to its user what follows if somebody does not come in that moment: what was laid out stays there, and
//! who goes on finds everything as it was.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::super::{Label, Lane};
use super::Host;
use super::shelf::{Few, LINES};
use crate::rank::Rank;

pub struct Brief<'a> {
    host: &'a Host,
    lane: Lane,
    round: u64,
    label: &'a Label,
    laid: Cell<bool>,
    /// How often it is still looked, at whomever: the caller holds locks.
    looks: Cell<u32>,
}

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
    #[inline]
    pub fn begin(host: &'a Host, lane: Lane, label: &'a Label) -> Option<Self> {
        let round = host.lanes[lane.0].next.load(Ordering::Relaxed);
        let is_free = || host.awaited(lane, round, LINES as u64, false).is_none();
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
        })
    }

    /// For who goes on with it.
    pub fn started(&self) -> Started {
        Started { round: self.round, laid: self.laid.get() }
    }

    /// How many bytes each rank lays out.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.label.header.bytes
    }

    /// Lays out the first `bytes` of these.
    #[inline]
    pub fn lay(&self, few: &Few) {
        self.lay_and_pass_next(few);
        self.host.ring();
    }

    /// As `lay`, for who passes the round next, which rings the bells.
    #[inline]
    pub fn lay_and_pass_next(&self, few: &Few) {
        self.host.shelves[self.host.me].lay_few(self.lane, self.round, self.label, few);
        self.laid.set(true);
    }

    /// What a rank has laid out, if it comes in a moment and is what was expected.
    #[inline]
    pub fn look(&self, at: Rank) -> Option<Few> {
        let shelf = &self.host.shelves[at.0];
        if shelf.has(self.lane, self.round) {
            // Who is ahead has laid out the next ones too.
            shelf.fetch(self.lane, self.round + 1);
        } else {
            while !shelf.has(self.lane, self.round) {
                self.looks.set(self.looks.get().checked_sub(1)?);
                std::hint::spin_loop();
            }
        }
        shelf.few(self.lane, self.round, self.label)
    }

    /// This rank has seen what it wants.
    #[inline]
    pub fn pass(&self) {
        self.host.pass(self.lane, self.round);
    }
}
