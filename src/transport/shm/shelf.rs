//! A shelf: where one rank lays out bytes for all ranks of its host to read.
//!
//! What is laid out in round `r` of a lane is told in line `r % LINES`; its bytes are in that line if they are
//! few, else in slot `r % slots`, else in its owner's arena. There they stay until every rank has passed
//! that round. Leaves to `Host` who waits for whom. Invariants:
//! - only its owner writes a shelf, and a line or a slot only after all ranks have passed what lay there before;
//! - what a reader is told of a line it reads once, compares with what it expects, and only then uses.
//!
//! ```text
//! shelf   0      8         64       2048   2560         2688    4096    then      then
//!         left   given up  passed   sign   processors   fault   lines   headers   slots
//!
//! passed  64 bytes for each lane; lines, headers and slots are those of lane 0, then 1, ...
//!
//! fault   0                   8
//!         length, 0 if none   encoded frame
//!
//! line    0      8      16      24     32         64
//!         stamp  check  length  place  few bytes
//! ```
//!
//! The place is 0 if the bytes are here, or one more than where in its owner's arena they lie. The stamp,
//! `r + 1`, is written last. A message of few bytes is one cache line; the header is there to be named if its
//! check is not what the reader expects.
#![expect(unsafe_code, reason = "slots are seen as bytes here")]

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use rustix::io::Result as SystemResult;

use super::remote::Sign;
use crate::memory::{Memory, Writers};
use crate::transport::{EPOCHS, Header, HeaderWords, LANES, Label, Lane, SLOT, slots};

const LINE: usize = 64;
const LEFT: usize = 0;
const GIVEN_UP: usize = 8;
const PASSED: usize = LINE;
const OWNER: usize = 2048;
const PROCESSORS: usize = 2560;
const FAULT_LENGTH: usize = 2688;
const FAULT_FRAME: usize = FAULT_LENGTH + 8;
const FIRST_LINE: usize = 4096;
/// The most bytes of a published fault.
pub const LONGEST_FAULT: usize = FIRST_LINE - FAULT_FRAME;
const FIRST_HEADER: usize = FIRST_LINE + LANES * LINES * LINE;
/// Not at the beginning of a page, where the program's buffers often begin: the processor takes addresses
/// that are equal within a page for one another.
const FIRST_SLOT: usize = FIRST_HEADER + LANES * LINES * LINE + 4 * LINE;
const SLOT_STRIDE: usize = SLOT + 4 * LINE;
const BYTES: usize = (FIRST_SLOT + LANES * EPOCHS * SLOT_STRIDE).next_multiple_of(4096);

/// How many rounds a rank may be ahead of the slowest of its host, if it lays out few bytes.
pub const LINES: usize = 64;
/// So many bytes travel with the stamp.
pub const FEW: usize = LINE - FIRST_OF_FEW;

/// As words, which any element may be read from.
pub type Few = [u64; FEW / 8];

const STAMP: usize = 0;
const CHECK: usize = 8;
const LENGTH: usize = 16;
const PLACE: usize = 24;
const FIRST_OF_FEW: usize = 32;

/// A bit for each processor that a rank may use. All zero if the system does not tell.
pub type Processors = [u64; 16];

pub struct Shelf {
    memory: Memory,
    /// How many slots of a lane are used.
    slots: u64,
}

/// What was laid out, or something else than what was expected.
pub enum Found<'a> {
    Bytes(&'a [u8]),
    /// There in its owner's arena.
    Elsewhere(u64),
    /// With a header that cannot be read, if there is none.
    Other(Option<Header>),
}

impl Shelf {
    /// Of one of so many ranks.
    pub fn create(ranks: usize) -> SystemResult<(Self, OwnedFd)> {
        let (memory, descriptor) = Memory::create("nexar-shelf", BYTES, Writers::Maker)?;
        Ok((Self::new(memory, ranks), descriptor))
    }

    pub fn of_peer(descriptor: BorrowedFd<'_>, ranks: usize) -> SystemResult<Self> {
        let memory = Memory::of_peer(descriptor, BYTES, Writers::Maker)?;
        Ok(Self::new(memory, ranks))
    }

    fn new(memory: Memory, ranks: usize) -> Self {
        Self { memory, slots: slots(ranks) as u64 }
    }

    /// How many rounds a rank may be ahead that lays out so many bytes.
    #[inline]
    pub fn most_ahead(&self, bytes: usize) -> u64 {
        if bytes <= FEW { LINES as u64 } else { self.slots }
    }

    /// Whether its owner has laid out something in a round.
    #[inline]
    pub fn has(&self, lane: Lane, round: u64) -> bool {
        self.memory.number(line(lane, round) + STAMP).load(Acquire) == round + 1
    }

    /// How many rounds its owner has passed.
    #[inline]
    pub fn passed(&self, lane: Lane) -> u64 {
        self.memory.number(PASSED + lane.0 * LINE).load(Acquire)
    }

    /// Its owner, who says so, has passed so many rounds.
    #[inline]
    pub fn pass(&self, lane: Lane, rounds: u64) {
        self.memory.number(PASSED + lane.0 * LINE).store(rounds, Release);
    }

    pub fn has_left(&self) -> bool {
        self.memory.number(LEFT).load(Acquire) != 0
    }

    /// Its owner lays out nothing more.
    pub fn leave(&self) {
        self.memory.number(LEFT).store(1, Release);
    }

    /// Its owner ends calls without waiting until what it has shown was seen.
    pub fn give_up(&self) {
        self.memory.number(GIVEN_UP).store(1, Relaxed);
        fence(SeqCst); // before anything that the program writes
    }

    /// Asked behind what was seen in its owner's memory: if not, that was still what had been shown.
    pub fn has_given_up(&self) -> bool {
        fence(Acquire);
        self.memory.number(GIVEN_UP).load(Relaxed) != 0
    }

    /// The owner publishes, once, the encoded fault of its communicator. Peers find it here even if
    /// the owner exits before a packet of it is sent.
    pub fn publish_fault(&self, frame: &[u8]) {
        assert!(frame.len() <= LONGEST_FAULT);
        for (index, bytes) in frame.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let place = self.memory.number(FAULT_FRAME + 8 * index);
            place.store(u64::from_le_bytes(word), Relaxed);
        }
        // Pairs with the Acquire of `published_fault`.
        self.memory.number(FAULT_LENGTH).store(frame.len() as u64, Release);
    }

    /// What the owner has published as its fault, if anything: bytes of a peer, to be decoded as
    /// such.
    pub fn published_fault(&self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.memory.number(FAULT_LENGTH).load(Acquire)).ok()?;
        if length == 0 || length > LONGEST_FAULT {
            return None;
        }
        let word = |at| self.memory.number(FAULT_FRAME + at).load(Relaxed).to_le_bytes();
        let mut frame: Vec<_> = (0..length).step_by(8).flat_map(word).collect();
        frame.truncate(length);
        Some(frame)
    }

    /// Its owner tells where its sign is.
    pub fn sign(&self, sign: Sign) {
        let value = u128::from_le_bytes(sign.value);
        let words = [sign.process, sign.address, value as u64, (value >> 64) as u64];
        for (index, word) in words.into_iter().enumerate() {
            self.memory.number(OWNER + 8 * index).store(word, Relaxed);
        }
    }

    /// Where its owner says that its sign is.
    pub fn owner(&self) -> Sign {
        let word = |index: usize| self.memory.number(OWNER + 8 * index).load(Relaxed);
        let value = u128::from(word(2)) | u128::from(word(3)) << 64;
        Sign { process: word(0), address: word(1), value: value.to_le_bytes() }
    }

    /// Its owner publishes the processors that it may use.
    pub fn set_processors(&self, processors: &Processors) {
        for (index, word) in processors.iter().enumerate() {
            self.memory.number(PROCESSORS + 8 * index).store(*word, Relaxed);
        }
    }

    /// The processors that its owner may use.
    pub fn processors(&self) -> Processors {
        std::array::from_fn(|index| self.memory.number(PROCESSORS + 8 * index).load(Relaxed))
    }

    /// Its owner lays out bytes, which `fill` writes. All ranks have passed what lay there.
    #[inline]
    pub fn lay(&self, lane: Lane, round: u64, label: &Label, fill: impl FnOnce(&mut [u8])) {
        assert!(label.bytes() <= SLOT);
        let data = self.data(lane, round, label.bytes());
        // SAFETY: this is the owner's mapping; nobody reads what all ranks have passed.
        fill(unsafe { self.memory.bytes_mut(data) });
        self.publish(lane, round, label, 0);
    }

    /// As `lay`, with at most `FEW` bytes.
    #[inline(always)]
    pub fn lay_few(&self, lane: Lane, round: u64, label: &Label, few: &Few) {
        debug_assert!(label.bytes() <= FEW);
        // SAFETY: as in `lay`.
        let bytes = unsafe { self.memory.bytes_mut(self.data(lane, round, FEW)) };
        bytes.copy_from_slice(bytemuck::bytes_of(few));
        self.publish(lane, round, label, 0);
        // Others have read the next line long ago: it takes a while until it is this processor's.
        self.memory.fetch_to_write(line(lane, round + 1));
    }

    /// What is laid out next will be asked for soon.
    #[inline]
    pub fn fetch(&self, lane: Lane, round: u64) {
        self.memory.fetch_to_read(line(lane, round));
    }

    /// As `lay`, with bytes that lie in its owner's arena.
    #[inline]
    pub fn show(&self, lane: Lane, round: u64, label: &Label, offset: u64) {
        self.publish(lane, round, label, offset + 1);
    }

    /// Where its owner has exposed bytes in a round, if it `has`: an address. Else what is there.
    pub fn exposed(&self, lane: Lane, round: u64, label: &Label) -> Result<u64, Option<Header>> {
        match self.find(lane, round, label) {
            Found::Elsewhere(address) => Ok(address),
            Found::Other(theirs) => Err(theirs),
            Found::Bytes(_) => Err(None),
        }
    }

    /// Where bytes lie that are laid out.
    #[inline]
    fn data(&self, lane: Lane, round: u64, bytes: usize) -> Range<usize> {
        let start = if bytes <= FEW {
            line(lane, round) + FIRST_OF_FEW
        } else {
            FIRST_SLOT + (lane.0 * EPOCHS + (round % self.slots) as usize) * SLOT_STRIDE
        };
        start..start + bytes
    }

    #[inline(always)]
    fn publish(&self, lane: Lane, round: u64, label: &Label, place: u64) {
        let header = header(lane, round);
        for (index, word) in label.words.iter().enumerate() {
            self.memory.number(header + 8 * index).store(*word, Relaxed);
        }
        let line = line(lane, round);
        self.memory.number(line + CHECK).store(label.check, Relaxed);
        self.memory.number(line + LENGTH).store(label.bytes() as u64, Relaxed);
        self.memory.number(line + PLACE).store(place, Relaxed);
        self.memory.number(line + STAMP).store(round + 1, Release);
    }

    /// What its owner has laid out in a round, if it `has`.
    #[inline]
    pub fn find(&self, lane: Lane, round: u64, label: &Label) -> Found<'_> {
        let line = line(lane, round);
        let length = self.memory.number(line + LENGTH).load(Relaxed);
        let found = self.memory.number(line + CHECK).load(Relaxed);
        if found != label.check || length != label.bytes() as u64 {
            let header = header(lane, round);
            let words: HeaderWords =
                std::array::from_fn(|index| self.memory.number(header + 8 * index).load(Relaxed));
            return Found::Other(Header::of_words(words));
        }
        match self.memory.number(line + PLACE).load(Relaxed).checked_sub(1) {
            Some(offset) => Found::Elsewhere(offset),
            None if label.bytes() <= SLOT => {
                let data = self.data(lane, round, label.bytes());
                // SAFETY: its owner leaves it alone until this rank has passed the round; the length is ours.
                Found::Bytes(unsafe { self.memory.bytes(data) })
            }
            None => Found::Other(None),
        }
    }

    /// As `find`, where few bytes are expected: `None` if something else is there.
    #[inline(always)]
    pub fn few(&self, lane: Lane, round: u64, label: &Label) -> Option<Few> {
        let line = line(lane, round);
        let is_length = self.memory.number(line + LENGTH).load(Relaxed) == label.bytes() as u64;
        let is_call = self.memory.number(line + CHECK).load(Relaxed) == label.check;
        let is_here = self.memory.number(line + PLACE).load(Relaxed) == 0;
        // SAFETY: its owner leaves it alone until this rank has passed the round.
        let bytes = unsafe { self.memory.bytes(self.data(lane, round, FEW)) };
        let mut few = [0; FEW / 8];
        bytemuck::bytes_of_mut(&mut few).copy_from_slice(bytes);
        (is_length && is_call && is_here).then_some(few)
    }
}

#[inline]
fn line(lane: Lane, round: u64) -> usize {
    FIRST_LINE + (lane.0 * LINES + (round % LINES as u64) as usize) * LINE
}

#[inline]
fn header(lane: Lane, round: u64) -> usize {
    line(lane, round) - FIRST_LINE + FIRST_HEADER
}
