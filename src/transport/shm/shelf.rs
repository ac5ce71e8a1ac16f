//! A shelf: where one rank lays out bytes for all ranks of its host to read.
//!
//! What is laid out in round `r` of a lane lies in slot `r % ROUNDS` until every rank has passed that round.
//! Leaves to `Host` who waits for whom. Invariants:
//! - only its owner writes a shelf, and a slot only after all ranks have passed what lay there before;
//! - what a reader is told of a slot it reads once, compares with what it expects, and only then uses.
//!
//! ```text
//! shelf   0      64          4096
//!         left   passed      slots of lane 0, of lane 1, ...
//!                of each lane, 64 bytes each
//!
//! slot    0      8      16      24     32         64      128     256
//!         stamp  check  length  place  few bytes  header          bytes
//! ```
//!
//! The place is 0 if the bytes are here, or one more than where in its owner's arena they lie. The stamp,
//! `r + 1`, is written last. A message of few bytes is one cache line; the header is there to
//! be named if its check is not what the reader expects.
#![expect(unsafe_code, reason = "slots are seen as bytes here")]

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::io::Result;

use crate::memory::{Memory, Writers};
use crate::transport::wire::HEADER_BYTES;
use crate::transport::{Header, LANES, Label, Lane, ROUNDS, SLOT};

const LINE: usize = 64;
const LEFT: usize = 0;
const PASSED: usize = LINE;
const FIRST_SLOT: usize = 4096;
const HEAD: usize = 256;
const BYTES: usize = FIRST_SLOT + LANES * ROUNDS * (HEAD + SLOT);

const STAMP: usize = 0;
const CHECK: usize = 8;
const LENGTH: usize = 16;
const PLACE: usize = 24;
const FEW: usize = 32;
const HEADER: usize = 64;
/// So many bytes travel with the stamp.
const MOST_FEW: usize = LINE - FEW;

pub struct Shelf(Memory);

/// What was laid out, or something else than what was expected.
pub enum Found<'a> {
    Bytes(&'a [u8]),
    /// There in its owner's arena.
    Elsewhere(u64),
    /// With a header that cannot be read, if there is none.
    Other(Option<Header>),
}

impl Shelf {
    pub fn create() -> Result<(Self, OwnedFd)> {
        let (memory, descriptor) = Memory::create("nexar-shelf", BYTES, Writers::Maker)?;
        Ok((Self(memory), descriptor))
    }

    pub fn of_peer(descriptor: BorrowedFd<'_>) -> Result<Self> {
        Memory::of_peer(descriptor, BYTES, Writers::Maker).map(Self)
    }

    /// Whether its owner has laid out something in a round.
    #[inline]
    pub fn has(&self, lane: Lane, round: u64) -> bool {
        self.0.number(slot(lane, round) + STAMP).load(Acquire) == round + 1
    }

    /// How many rounds its owner has passed.
    #[inline]
    pub fn passed(&self, lane: Lane) -> u64 {
        self.0.number(PASSED + lane.0 * LINE).load(Acquire)
    }

    /// Its owner, who says so, has passed so many rounds.
    #[inline]
    pub fn pass(&self, lane: Lane, rounds: u64) {
        self.0.number(PASSED + lane.0 * LINE).store(rounds, Release);
    }

    pub fn has_left(&self) -> bool {
        self.0.number(LEFT).load(Acquire) != 0
    }

    /// Its owner lays out nothing more.
    pub fn leave(&self) {
        self.0.number(LEFT).store(1, Release);
    }

    /// Its owner lays out bytes, which `fill` writes. All ranks have passed what lay in the slot.
    #[inline]
    pub fn lay(&self, lane: Lane, round: u64, label: &Label, fill: impl FnOnce(&mut [u8])) {
        assert!(label.header.bytes <= SLOT);
        let data = data(slot(lane, round), label.header.bytes);
        // SAFETY: this is the owner's mapping; nobody reads a slot that all ranks have passed.
        fill(unsafe { self.0.bytes_mut(data) });
        self.publish(lane, round, label, 0);
    }

    /// As `lay`, with bytes that lie in its owner's arena.
    #[inline]
    pub fn show(&self, lane: Lane, round: u64, label: &Label, offset: u64) {
        self.publish(lane, round, label, offset + 1);
    }

    fn publish(&self, lane: Lane, round: u64, label: &Label, place: u64) {
        let slot = slot(lane, round);
        // SAFETY: as in `lay`.
        let words = unsafe { self.0.bytes_mut(slot + HEADER..slot + HEADER + HEADER_BYTES) };
        words.copy_from_slice(&label.encoded);
        self.0.number(slot + CHECK).store(label.check, Relaxed);
        self.0.number(slot + LENGTH).store(label.header.bytes as u64, Relaxed);
        self.0.number(slot + PLACE).store(place, Relaxed);
        self.0.number(slot + STAMP).store(round + 1, Release);
    }

    /// What its owner has laid out in a round, if it `has`.
    #[inline]
    pub fn find(&self, lane: Lane, round: u64, label: &Label) -> Found<'_> {
        let slot = slot(lane, round);
        let length = self.0.number(slot + LENGTH).load(Relaxed);
        let found = self.0.number(slot + CHECK).load(Relaxed);
        if found != label.check || length != label.header.bytes as u64 {
            // SAFETY: its owner leaves it alone until this rank has passed the round.
            let words = unsafe { self.0.bytes(slot + HEADER..slot + HEADER + HEADER_BYTES) };
            return Found::Other(words.try_into().ok().and_then(Header::decode));
        }
        match self.0.number(slot + PLACE).load(Relaxed).checked_sub(1) {
            Some(offset) => Found::Elsewhere(offset),
            // SAFETY: as above; the length is ours.
            None => Found::Bytes(unsafe { self.0.bytes(data(slot, label.header.bytes)) }),
        }
    }
}

/// Where bytes lie in a slot.
#[inline]
fn data(slot: usize, bytes: usize) -> Range<usize> {
    let start = if bytes <= MOST_FEW { slot + FEW } else { slot + HEAD };
    start..start + bytes
}

#[inline]
fn slot(lane: Lane, round: u64) -> usize {
    let slot = lane.0 * ROUNDS + (round % ROUNDS as u64) as usize;
    FIRST_SLOT + slot * (HEAD + SLOT)
}
