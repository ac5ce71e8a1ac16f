//! The slots through which one rank of a host sends payloads to another: both copy at the same
//! time, each with its own processor.
//!
//! A payload is cut into parts of at most `PAYLOAD_SLOT` bytes, and payloads to one rank follow
//! each other. Leaves to `segment` where the slots are, and to `messages` which rank is woken.
//! Invariants:
//! - only the sender writes the slots; the receiver counts what it has consumed in its own segment;
//! - a slot is overwritten only after the receiver has consumed it;
//! - all parts of a payload but its last are full;
//! - the receiver reads each field once, and copies as much as its own buffer implies.
//!
//! ```text
//! slots  0                   768
//!        a line for each     the slots
//!
//! line   0      8             16
//!        stamp  message's id  length
//! ```
//!
//! The stamp of part `n` is `n + 1`. It is stored last, with release ordering.
#![expect(unsafe_code, reason = "slots are seen as bytes here")]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::memory::SharedMapping;

const LINE: usize = 64;
const STAMP: usize = 0;
const ID: usize = 8;
const LENGTH: usize = 16;
const SLOTS: usize = 12;
/// Smaller slots are slower, and larger ones too: both ranks then copy at the same time for less of
/// the payload. All of them stay in a processor's cache.
const PAYLOAD_SLOT: usize = 16 << 10;
const FIRST_SLOT: usize = SLOTS * LINE;

pub const PAYLOAD_SLOTS_BYTES: usize = FIRST_SLOT + SLOTS * PAYLOAD_SLOT;

/// The sender's end.
#[derive(Default)]
pub struct SlotWriter {
    /// Parts that were written.
    written: u64,
    /// A lower bound of the parts that the receiver has consumed.
    consumed: u64,
    /// The message of whose payload a part is still to be written.
    current: Option<u64>,
}

impl SlotWriter {
    /// Writes the next part of the payload of message `id`, and cuts it off `rest`, if there is a
    /// free slot and no other payload is being written. `consumed`: reads how many parts the
    /// receiver has consumed. `memory`: the sender's own segment, in which the slots begin at
    /// `start`.
    pub fn write(
        &mut self,
        memory: &SharedMapping,
        start: usize,
        id: u64,
        rest: &mut &[u8],
        consumed: impl FnOnce() -> u64,
    ) -> bool {
        if self.current.is_some_and(|current| current != id) {
            return false;
        }
        if self.written - self.consumed == SLOTS as u64 {
            // A wrong count of the receiver spoils only what it receives itself.
            self.consumed = consumed().clamp(self.consumed, self.written);
            if self.written - self.consumed == SLOTS as u64 {
                return false;
            }
        }
        let (part, behind) = rest.split_at(rest.len().min(PAYLOAD_SLOT));
        let slot = slot(start, self.written);
        // SAFETY: this is the owner's mapping, and the receiver has consumed what was here before.
        unsafe { memory.bytes_mut(slot..slot + part.len()) }.copy_from_slice(part);
        let line = line(start, self.written);
        memory.atomic_u64(line + ID).store(id, Relaxed);
        memory.atomic_u64(line + LENGTH).store(part.len() as u64, Relaxed);
        memory.atomic_u64(line + STAMP).store(self.written + 1, Release);
        self.written += 1;
        *rest = behind;
        self.current = Some(id).filter(|_| !behind.is_empty());
        true
    }
}

/// The receiver's end.
#[derive(Default)]
pub struct SlotReader {
    consumed: u64,
}

/// The result of an attempt to read a part.
#[derive(Debug, PartialEq, Eq)]
pub enum PayloadPart {
    /// It was copied and consumed.
    Read,
    NotThere,
    /// The next part is of this message's payload.
    OfMessage(u64),
    /// The part has not the length that the rest of the payload implies.
    Malformed,
}

impl SlotReader {
    /// Reads the next part of the payload of message `id` into the beginning of `rest`, which must
    /// not be empty, and cuts it off. `memory`: the sender's segment.
    pub fn read(
        &mut self,
        memory: &SharedMapping,
        start: usize,
        id: u64,
        rest: &mut &mut [u8],
    ) -> PayloadPart {
        let line = line(start, self.consumed);
        if memory.atomic_u64(line + STAMP).load(Acquire) != self.consumed + 1 {
            return PayloadPart::NotThere;
        }
        let found = memory.atomic_u64(line + ID).load(Relaxed);
        if found != id {
            return PayloadPart::OfMessage(found);
        }
        let length = memory.atomic_u64(line + LENGTH).load(Relaxed);
        let expected = rest.len().min(PAYLOAD_SLOT);
        if length != expected as u64 {
            return PayloadPart::Malformed;
        }
        let (part, behind) = std::mem::take(rest).split_at_mut(expected);
        let slot = slot(start, self.consumed);
        // SAFETY: the sender does not write it until it is consumed. Its length was checked.
        part.copy_from_slice(unsafe { memory.bytes(slot..slot + expected) });
        *rest = behind;
        self.consumed += 1;
        PayloadPart::Read
    }

    /// How many parts were consumed.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }
}

fn line(start: usize, index: u64) -> usize {
    start + (index % SLOTS as u64) as usize * LINE
}

fn slot(start: usize, index: u64) -> usize {
    start + FIRST_SLOT + (index % SLOTS as u64) as usize * PAYLOAD_SLOT
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::Writers;

    fn memory() -> SharedMapping {
        SharedMapping::create("nexar-test", PAYLOAD_SLOTS_BYTES, Writers::Owner).unwrap().0
    }

    fn payload(id: u64, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index as u64 * 7 + id) as u8).collect()
    }

    proptest! {
        #[test]
        fn payloads_arrive_whole_and_in_order(
            lengths in prop::collection::vec(1..5 * PAYLOAD_SLOT, 1..6),
            turns in prop::collection::vec(any::<bool>(), 0..100),
        ) {
            let memory = memory();
            let (mut writer, mut reader) = (SlotWriter::default(), SlotReader::default());
            let sent: Vec<_> =
                lengths.iter().zip(0..).map(|(bytes, id)| payload(id, *bytes)).collect();
            let mut to_write: VecDeque<(u64, &[u8])> =
                (0..).zip(sent.iter().map(Vec::as_slice)).collect();
            let mut received: Vec<_> = lengths.iter().map(|bytes| vec![0; *bytes]).collect();
            let mut to_read: VecDeque<(u64, &mut [u8])> =
                (0..).zip(received.iter_mut().map(Vec::as_mut_slice)).collect();
            // After the drawn turns, each side has one in turn.
            let turns = turns.into_iter().chain((0..).map(|turn| turn % 2 == 0));
            for writes in turns {
                if writes {
                    let Some((id, rest)) = to_write.front_mut() else { continue };
                    writer.write(&memory, 0, *id, rest, || reader.consumed());
                    if rest.is_empty() {
                        to_write.pop_front();
                    }
                } else {
                    let Some((id, rest)) = to_read.front_mut() else { break };
                    let part = reader.read(&memory, 0, *id, rest);
                    let is_expected = matches!(part, PayloadPart::Read | PayloadPart::NotThere);
                    prop_assert!(is_expected, "{part:?}");
                    if rest.is_empty() {
                        to_read.pop_front();
                    }
                }
            }
            prop_assert_eq!(received, sent);
        }
    }

    #[test]
    fn a_payload_waits_until_the_one_before_it_is_written() {
        let memory = memory();
        let mut writer = SlotWriter::default();
        let bytes = payload(0, (SLOTS + 1) * PAYLOAD_SLOT);
        let mut first = bytes.as_slice();
        let written = (0..).take_while(|_| writer.write(&memory, 0, 0, &mut first, || 0)).count();
        assert_eq!((written, first.len()), (SLOTS, PAYLOAD_SLOT));
        let mut second = &bytes[..10];
        assert!(!writer.write(&memory, 0, 1, &mut second, || 1), "message 0 is not complete");
        assert!(writer.write(&memory, 0, 0, &mut first, || 1) && first.is_empty());
        assert!(!writer.write(&memory, 0, 1, &mut second, || 1), "no slot is free");
        assert!(writer.write(&memory, 0, 1, &mut second, || u64::MAX) && second.is_empty());
    }

    #[test]
    fn a_part_of_another_message_or_of_a_wrong_length_is_not_copied() {
        let memory = memory();
        let mut bytes = [0; 100];
        let read = |id, mut rest: &mut [u8]| {
            (SlotReader::default().read(&memory, 0, id, &mut rest), rest.len())
        };
        assert_eq!(read(7, &mut bytes), (PayloadPart::NotThere, 100));
        SlotWriter::default().write(&memory, 0, 7, &mut [1; 50].as_slice(), || 0);
        assert_eq!(read(8, &mut bytes), (PayloadPart::OfMessage(7), 100));
        assert_eq!(read(7, &mut bytes[..49]), (PayloadPart::Malformed, 49));
        assert_eq!(read(7, &mut bytes[..51]), (PayloadPart::Malformed, 51));
        assert_eq!(read(7, &mut bytes[..50]), (PayloadPart::Read, 0));
        for length in [0, PAYLOAD_SLOT as u64 + 1, u64::MAX] {
            memory.atomic_u64(LENGTH).store(length, Relaxed);
            assert_eq!(read(7, &mut bytes).0, PayloadPart::Malformed, "{length} bytes");
        }
        assert_eq!(bytes[50..], [0; 50]);
    }
}
