//! The shared segment of one rank: written by its owner, read by all ranks of its host.
//!
//! Epoch `e` of a lane has the descriptor `e % LINES`, one cache line. Up to `INLINE_BYTES` are in
//! the descriptor itself; more are in slot `e % slots`, or in the arena of the owner. They stay
//! there until every rank has released the epoch. A page is used only once it is written, so the
//! mapped 3 MiB take memory as far as they are used. Leaves to `Host` which rank waits for which.
//! Invariants:
//! - only the owner writes its segment, and a descriptor or slot only after all ranks have released
//!   its previous epoch;
//! - a reader reads each field of a descriptor once, compares it with what it expects, then uses
//!   it.
//!
//! ```text
//! segment     0     8         64        2048    2560        2688   4096         then     then
//!             left  given up  released  cookie  processors  fault  descriptors  headers  slots
//!             then   then
//!             peers  a ring and payload slots to each rank
//!
//! released    64 bytes for each lane; descriptors, headers and slots: those of lane 0, then 1, ...
//!
//! peer        0         8       16
//!             consumed  opened  parts
//!             64 bytes for each rank of the host: how many messages of its ring to the owner were
//!             consumed, whether the owner has used its ring to that rank, and how many parts of
//!             payloads to the owner were consumed
//!
//! fault       0                   8
//!             length, 0 if none   encoded frame
//!
//! descriptor  0      8      16      24        32            64
//!             stamp  check  length  location  inline bytes
//! ```
//!
//! The location is 0 if the bytes are inline or in the slot, else 1 + their offset in the owner's
//! arena, or 1 + their address. The stamp, `e + 1`, is stored last, with release ordering. The
//! check is a 64-bit digest of the header; the header itself is beside it, to name the call of the
//! owner if the check is not the one that the reader expects.
#![expect(unsafe_code, reason = "slots are seen as bytes here")]

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use rustix::io::Result as SystemResult;

use super::message_ring::RING_BYTES;
use super::payload_slots::PAYLOAD_SLOTS_BYTES;
use super::remote::Cookie;
use crate::memory::{SharedMapping, Writers};
use crate::transport::{EPOCHS, EncodedHeader, Header, HeaderWords, LANES, Lane, SLOT, slots};

const LINE: usize = 64;
const LEFT: usize = 0;
const GIVEN_UP: usize = 8;
const RELEASED: usize = LINE;
const OWNER: usize = 2048;
const PROCESSORS: usize = 2560;
const FAULT_LENGTH: usize = 2688;
const FAULT_FRAME: usize = FAULT_LENGTH + 8;
const FIRST_LINE: usize = 4096;
/// The most bytes of a published fault.
pub const LONGEST_FAULT: usize = FIRST_LINE - FAULT_FRAME;
const FIRST_HEADER: usize = FIRST_LINE + LANES * LINES * LINE;
/// Not aligned to a page, as the buffers of programs often are: loads and stores whose addresses
/// are equal modulo 4096 alias in the store buffer.
const FIRST_SLOT: usize = FIRST_HEADER + LANES * LINES * LINE + 4 * LINE;
const SLOT_STRIDE: usize = SLOT + 4 * LINE;
const FIRST_PEER: usize = (FIRST_SLOT + LANES * EPOCHS * SLOT_STRIDE).next_multiple_of(4096);
const CONSUMED: usize = 0;
const OPENED: usize = 8;
const PARTS_CONSUMED: usize = 16;
/// A ring and payload slots.
const PAIR_BYTES: usize = (RING_BYTES + PAYLOAD_SLOTS_BYTES).next_multiple_of(4096);
/// More ranks of one host send messages over the network: a segment has a ring to each.
pub const MOST_RINGS: usize = 128;

/// Descriptors of a lane: epochs by which a rank that publishes inline may be ahead of the slowest.
pub const LINES: usize = 64;
/// Bytes of a descriptor for data.
pub const INLINE_BYTES: usize = LINE - INLINE_OFFSET;

/// Inline bytes as words, which are aligned for every element.
pub type Inline = [u64; INLINE_BYTES / 8];

const STAMP: usize = 0;
const CHECK: usize = 8;
const LENGTH: usize = 16;
const LOCATION: usize = 24;
const INLINE_OFFSET: usize = 32;

/// A bit for each processor that a rank may use. All zero: unknown.
pub type Processors = [u64; 16];

pub struct SharedSegment {
    memory: SharedMapping,
    /// The slots of a lane that are used.
    slots: u64,
    /// By lane and slot: one more than the last epoch in which the owner has used the slot. Only in
    /// the owner's process.
    slot_stamps: [[AtomicU64; EPOCHS]; LANES],
}

/// What another rank has published in an epoch.
pub enum SlotView<'a> {
    Bytes(&'a [u8]),
    /// Published in place: offset in the owner's arena, or address.
    Elsewhere(u64),
    /// Another call than the expected one. `None`: its header cannot be decoded.
    Other(Option<Header>),
}

impl SharedSegment {
    /// Creates this rank's segment. `ranks`: those of this host, which fix the number of slots.
    pub fn create(ranks: usize) -> SystemResult<(Self, OwnedFd)> {
        let (memory, descriptor) =
            SharedMapping::create("nexar-segment", bytes(ranks), Writers::Owner)?;
        Ok((Self::new(memory, ranks), descriptor))
    }

    pub fn of_peer(descriptor: BorrowedFd<'_>, ranks: usize) -> SystemResult<Self> {
        let memory = SharedMapping::of_peer(descriptor, bytes(ranks), Writers::Owner)?;
        Ok(Self::new(memory, ranks))
    }

    fn new(memory: SharedMapping, ranks: usize) -> Self {
        Self { memory, slots: slots(ranks) as u64, slot_stamps: Default::default() }
    }

    pub(super) fn memory(&self) -> &SharedMapping {
        &self.memory
    }

    /// How many messages of the ring of rank `from` the owner has consumed.
    #[inline]
    pub fn consumed(&self, from: usize) -> u64 {
        self.memory.atomic_u64(peer(from) + CONSUMED).load(Acquire)
    }

    /// The owner has consumed this many messages of the ring of rank `from`.
    #[inline]
    pub fn set_consumed(&self, from: usize, messages: u64) {
        self.memory.atomic_u64(peer(from) + CONSUMED).store(messages, Release);
    }

    /// How many parts of payloads of rank `from` the owner has consumed.
    pub fn parts_consumed(&self, from: usize) -> u64 {
        self.memory.atomic_u64(peer(from) + PARTS_CONSUMED).load(Acquire)
    }

    /// The owner has consumed this many parts of payloads of rank `from`.
    pub fn set_parts_consumed(&self, from: usize, parts: u64) {
        self.memory.atomic_u64(peer(from) + PARTS_CONSUMED).store(parts, Release);
    }

    /// Whether the owner has used its ring to rank `to`. A ring that was not takes no memory.
    #[inline]
    pub fn has_opened(&self, to: usize) -> bool {
        self.memory.atomic_u64(peer(to) + OPENED).load(Acquire) != 0
    }

    /// The owner has used its ring to rank `to`.
    #[inline]
    pub fn open(&self, to: usize) {
        self.memory.atomic_u64(peer(to) + OPENED).store(1, Release);
    }

    /// Epochs by which a rank may be ahead that publishes this many bytes.
    #[inline]
    pub fn most_ahead(&self, bytes: usize) -> u64 {
        if bytes <= INLINE_BYTES { LINES as u64 } else { self.slots }
    }

    /// One more than the epoch in which the owner has last published in the descriptor of this one,
    /// or in its slot if it `uses_slot`; 0 if it has not. Called by the owner.
    pub fn last_use(&self, lane: Lane, epoch: u64, uses_slot: bool) -> u64 {
        let line = self.memory.atomic_u64(line(lane, epoch) + STAMP).load(Relaxed);
        let slot = &self.slot_stamps[lane.0][(epoch % self.slots) as usize];
        if uses_slot { line.max(slot.load(Relaxed)) } else { line }
    }

    /// Whether the owner has published in an epoch.
    #[inline]
    pub fn has(&self, lane: Lane, epoch: u64) -> bool {
        self.memory.atomic_u64(line(lane, epoch) + STAMP).load(Acquire) == epoch + 1
    }

    /// How many epochs the owner has released.
    #[inline]
    pub fn released(&self, lane: Lane) -> u64 {
        self.memory.atomic_u64(RELEASED + lane.0 * LINE).load(Acquire)
    }

    /// The owner has released this many epochs. Called by the owner.
    #[inline]
    pub fn release(&self, lane: Lane, epochs: u64) {
        self.memory.atomic_u64(RELEASED + lane.0 * LINE).store(epochs, Release);
    }

    pub fn has_left(&self) -> bool {
        self.memory.atomic_u64(LEFT).load(Acquire) != 0
    }

    /// The owner publishes nothing more.
    pub fn leave(&self) {
        self.memory.atomic_u64(LEFT).store(1, Release);
    }

    /// The owner ends calls without waiting until what it has published in place was viewed.
    pub fn give_up(&self) {
        self.memory.atomic_u64(GIVEN_UP).store(1, Relaxed);
        fence(SeqCst); // before anything that the program writes
    }

    /// Read after a view of memory in place. If false, the viewed bytes were the published ones.
    pub fn has_given_up(&self) -> bool {
        fence(Acquire);
        self.memory.atomic_u64(GIVEN_UP).load(Relaxed) != 0
    }

    /// The owner publishes, once, the encoded fault of its communicator. Peers find it here even if
    /// the owner exits before a packet of it is sent.
    pub fn publish_fault(&self, frame: &[u8]) {
        assert!(frame.len() <= LONGEST_FAULT);
        for (index, bytes) in frame.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let location = self.memory.atomic_u64(FAULT_FRAME + 8 * index);
            location.store(u64::from_le_bytes(word), Relaxed);
        }
        // Pairs with the Acquire of `published_fault`.
        self.memory.atomic_u64(FAULT_LENGTH).store(frame.len() as u64, Release);
    }

    /// The fault that the owner has published, if any: untrusted bytes.
    pub fn published_fault(&self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.memory.atomic_u64(FAULT_LENGTH).load(Acquire)).ok()?;
        if length == 0 || length > LONGEST_FAULT {
            return None;
        }
        let word = |at| self.memory.atomic_u64(FAULT_FRAME + at).load(Relaxed).to_le_bytes();
        let mut frame: Vec<_> = (0..length).step_by(8).flat_map(word).collect();
        frame.truncate(length);
        Some(frame)
    }

    /// The owner publishes its cookie.
    pub fn cookie(&self, cookie: Cookie) {
        let value = u128::from_le_bytes(cookie.value);
        let words = [cookie.process, cookie.address, value as u64, (value >> 64) as u64];
        for (index, word) in words.into_iter().enumerate() {
            self.memory.atomic_u64(OWNER + 8 * index).store(word, Relaxed);
        }
    }

    /// The cookie that the owner has published.
    pub fn owner(&self) -> Cookie {
        let word = |index: usize| self.memory.atomic_u64(OWNER + 8 * index).load(Relaxed);
        let value = u128::from(word(2)) | u128::from(word(3)) << 64;
        Cookie { process: word(0), address: word(1), value: value.to_le_bytes() }
    }

    /// The owner publishes the processors that it may use.
    pub fn set_processors(&self, processors: &Processors) {
        for (index, word) in processors.iter().enumerate() {
            self.memory.atomic_u64(PROCESSORS + 8 * index).store(*word, Relaxed);
        }
    }

    /// The processors that the owner may use.
    pub fn processors(&self) -> Processors {
        std::array::from_fn(|index| self.memory.atomic_u64(PROCESSORS + 8 * index).load(Relaxed))
    }

    /// The owner publishes bytes, which `fill` writes. All ranks must have released the descriptor
    /// and slot.
    #[inline]
    pub fn publish(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: impl FnOnce(&mut [u8]),
    ) {
        assert!(encoded.bytes() <= SLOT);
        let data = self.data(lane, epoch, encoded.bytes());
        if encoded.bytes() > INLINE_BYTES {
            let slot = (epoch % self.slots) as usize;
            self.slot_stamps[lane.0][slot].store(epoch + 1, Relaxed);
        }
        // SAFETY: this is the owner's mapping, and no rank reads an epoch that it has released.
        fill(unsafe { self.memory.bytes_mut(data) });
        self.write_descriptor(lane, epoch, encoded, 0);
    }

    /// As `publish`, with at most `INLINE_BYTES` bytes.
    #[inline(always)]
    pub fn publish_inline(&self, lane: Lane, epoch: u64, encoded: &EncodedHeader, inline: &Inline) {
        debug_assert!(encoded.bytes() <= INLINE_BYTES);
        // SAFETY: as in `publish`.
        let bytes = unsafe { self.memory.bytes_mut(self.data(lane, epoch, INLINE_BYTES)) };
        bytes.copy_from_slice(bytemuck::bytes_of(inline));
        self.write_descriptor(lane, epoch, encoded, 0);
        // Other processors share the next line: requesting ownership takes a while.
        self.memory.prefetch_for_write(line(lane, epoch + 1));
    }

    /// Prefetches a descriptor that will be read soon.
    #[inline]
    pub fn prefetch(&self, lane: Lane, epoch: u64) {
        self.memory.prefetch_for_read(line(lane, epoch));
    }

    /// As `publish`, with bytes in the owner's arena.
    #[inline]
    pub fn publish_in_place(&self, lane: Lane, epoch: u64, encoded: &EncodedHeader, offset: u64) {
        self.write_descriptor(lane, epoch, encoded, offset + 1);
    }

    /// The address that the owner has published in an epoch, if it `has`. `Err`: the header that is
    /// there instead, if it can be decoded.
    pub fn published_address(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
    ) -> Result<u64, Option<Header>> {
        match self.view(lane, epoch, encoded) {
            SlotView::Elsewhere(address) => Ok(address),
            SlotView::Other(theirs) => Err(theirs),
            SlotView::Bytes(_) => Err(None),
        }
    }

    /// Where the bytes of an epoch are in this segment.
    #[inline]
    fn data(&self, lane: Lane, epoch: u64, bytes: usize) -> Range<usize> {
        let start = if bytes <= INLINE_BYTES {
            line(lane, epoch) + INLINE_OFFSET
        } else {
            FIRST_SLOT + (lane.0 * EPOCHS + (epoch % self.slots) as usize) * SLOT_STRIDE
        };
        start..start + bytes
    }

    #[inline(always)]
    fn write_descriptor(&self, lane: Lane, epoch: u64, encoded: &EncodedHeader, location: u64) {
        let header = header(lane, epoch);
        for (index, word) in encoded.words.iter().enumerate() {
            self.memory.atomic_u64(header + 8 * index).store(*word, Relaxed);
        }
        let line = line(lane, epoch);
        self.memory.atomic_u64(line + CHECK).store(encoded.check, Relaxed);
        self.memory.atomic_u64(line + LENGTH).store(encoded.bytes() as u64, Relaxed);
        self.memory.atomic_u64(line + LOCATION).store(location, Relaxed);
        self.memory.atomic_u64(line + STAMP).store(epoch + 1, Release);
    }

    /// What the owner has published in an epoch, if it `has`.
    #[inline]
    pub fn view(&self, lane: Lane, epoch: u64, encoded: &EncodedHeader) -> SlotView<'_> {
        let line = line(lane, epoch);
        let length = self.memory.atomic_u64(line + LENGTH).load(Relaxed);
        let found = self.memory.atomic_u64(line + CHECK).load(Relaxed);
        if found != encoded.check || length != encoded.bytes() as u64 {
            let header = header(lane, epoch);
            let words: HeaderWords = std::array::from_fn(|index| {
                self.memory.atomic_u64(header + 8 * index).load(Relaxed)
            });
            return SlotView::Other(Header::of_words(words));
        }
        match self.memory.atomic_u64(line + LOCATION).load(Relaxed).checked_sub(1) {
            Some(offset) => SlotView::Elsewhere(offset),
            None if encoded.bytes() <= SLOT => {
                let data = self.data(lane, epoch, encoded.bytes());
                // SAFETY: the owner does not write it until this rank has released the epoch. The
                // length is this rank's own.
                SlotView::Bytes(unsafe { self.memory.bytes(data) })
            }
            None => SlotView::Other(None),
        }
    }

    /// As `view`, of inline bytes. `None` if something else is there.
    #[inline(always)]
    pub fn view_inline(&self, lane: Lane, epoch: u64, encoded: &EncodedHeader) -> Option<Inline> {
        let line = line(lane, epoch);
        let is_length =
            self.memory.atomic_u64(line + LENGTH).load(Relaxed) == encoded.bytes() as u64;
        let is_call = self.memory.atomic_u64(line + CHECK).load(Relaxed) == encoded.check;
        let is_here = self.memory.atomic_u64(line + LOCATION).load(Relaxed) == 0;
        // SAFETY: the owner does not write it until this rank has released the epoch.
        let bytes = unsafe { self.memory.bytes(self.data(lane, epoch, INLINE_BYTES)) };
        let mut inline = [0; INLINE_BYTES / 8];
        bytemuck::bytes_of_mut(&mut inline).copy_from_slice(bytes);
        (is_length && is_call && is_here).then_some(inline)
    }
}

/// The length of a segment. `ranks`: those of the host.
fn bytes(ranks: usize) -> usize {
    let rings = if ranks <= MOST_RINGS { ranks } else { 0 };
    first_ring(ranks) + rings * PAIR_BYTES
}

fn first_ring(ranks: usize) -> usize {
    peer(ranks).next_multiple_of(4096)
}

/// Where the ring to rank `to` begins in a segment.
pub fn ring(ranks: usize, to: usize) -> usize {
    first_ring(ranks) + to * PAIR_BYTES
}

/// Where the payload slots to rank `to` begin in a segment.
pub fn payload_slots(ranks: usize, to: usize) -> usize {
    ring(ranks, to) + RING_BYTES
}

/// Where a segment has what concerns one peer.
pub fn peer(index: usize) -> usize {
    FIRST_PEER + index * LINE
}

#[inline]
fn line(lane: Lane, epoch: u64) -> usize {
    FIRST_LINE + (lane.0 * LINES + (epoch % LINES as u64) as usize) * LINE
}

#[inline]
fn header(lane: Lane, epoch: u64) -> usize {
    line(lane, epoch) - FIRST_LINE + FIRST_HEADER
}
