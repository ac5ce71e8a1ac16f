//! The ring through which one rank of a host sends control messages to another.
//!
//! A message takes one line: its head, and up to `INLINE` bytes of payload. Longer payloads are
//! copied to the payload area, which is used in the order of the lines. Both sides compute where a
//! payload is from the lengths of all payloads before it. Leaves to `segment` where the ring is,
//! and to `Host` which rank is woken. Invariants:
//! - only the sender writes the ring; the receiver counts what it has consumed in its own segment;
//! - a line or payload is overwritten only after the receiver has consumed it;
//! - the receiver reads each field once, and a payload is never longer than its head allows.
//!
//! ```text
//! ring   0         8192
//!        lines     payload area
//!
//! line   0         8                        32
//!        stamp     head of the message      payload, if it is short
//! ```
//!
//! The stamp of message `n` of a ring is `n + 1`. It is stored last, with release ordering.
#![expect(unsafe_code, reason = "payloads are seen as bytes here")]

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::memory::SharedMapping;
use crate::transport::{CONTROL_HEAD_BYTES, MOST_MESSAGES};

const LINE: usize = 64;
/// The messages of a ring that may be written and not consumed.
const LINES: usize = MOST_MESSAGES;
const HEAD: usize = 8;
const SHORT: usize = HEAD + CONTROL_HEAD_BYTES;
/// Payload bytes of a line.
const INLINE: usize = LINE - SHORT;
/// Three times the longest eager payload: an empty ring takes any message.
const AREA: usize = 48 << 10;
const FIRST_PAYLOAD: usize = LINES * LINE;

/// How far ahead lines are prefetched: behind the one that the receiver polls.
const PREFETCHED: u64 = 4;

/// The encoded head of a message.
type Head = [u8; CONTROL_HEAD_BYTES];

pub const RING_BYTES: usize = FIRST_PAYLOAD + AREA;

/// The payload area, as both sides count the bytes that were used of it.
#[derive(Default)]
struct PayloadArea {
    used: u64,
}

impl PayloadArea {
    /// Where a payload begins, as a count of used bytes. A payload is not wrapped around.
    fn place(&self, bytes: usize) -> u64 {
        let at = (self.used % AREA as u64) as usize;
        let skipped = if at + bytes > AREA { AREA - at } else { 0 };
        self.used + skipped as u64
    }

    fn end(at: u64, bytes: usize) -> u64 {
        at + bytes.next_multiple_of(LINE) as u64
    }

    /// Where these bytes are in the ring that begins at `start`.
    fn range(start: usize, at: u64, bytes: usize) -> Range<usize> {
        let first = start + FIRST_PAYLOAD + (at % AREA as u64) as usize;
        first..first + bytes
    }
}

/// The sender's end.
pub struct RingWriter {
    /// Messages that were written.
    written: u64,
    /// A lower bound of the messages that the receiver has consumed.
    consumed: u64,
    payloads: PayloadArea,
    /// For each line: how much of the payload area was used when its message was written.
    ends: [u64; LINES],
}

impl Default for RingWriter {
    fn default() -> Self {
        Self { written: 0, consumed: 0, payloads: PayloadArea::default(), ends: [0; LINES] }
    }
}

impl RingWriter {
    pub fn is_unused(&self) -> bool {
        self.written == 0
    }

    /// Writes a message, if there is room for it. `consumed`: reads how many messages the receiver
    /// has consumed. `memory`: the sender's own segment, in which the ring begins at `start`.
    #[inline]
    pub fn write(
        &mut self,
        memory: &SharedMapping,
        start: usize,
        head: &Head,
        payload: &[u8],
        consumed: impl FnOnce() -> u64,
    ) -> bool {
        let (at, end) = match payload.len() {
            0..=INLINE => (0, self.payloads.used),
            bytes => {
                let at = self.payloads.place(bytes);
                (at, PayloadArea::end(at, bytes))
            }
        };
        if !self.has_room(end) {
            // A wrong count of the receiver spoils only what it receives itself.
            self.consumed = consumed().clamp(self.consumed, self.written);
            if !self.has_room(end) {
                return false;
            }
        }
        let line = line(start, self.written);
        let range = match payload.len() {
            bytes @ 0..=INLINE => line + SHORT..line + SHORT + bytes,
            bytes => PayloadArea::range(start, at, bytes),
        };
        // SAFETY: this is the owner's mapping, and the receiver has consumed what was here before.
        unsafe { memory.bytes_mut(range) }.copy_from_slice(payload);
        for (index, word) in head.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("chunks of eight bytes"));
            memory.atomic_u64(line + HEAD + 8 * index).store(word, Relaxed);
        }
        memory.atomic_u64(line).store(self.written + 1, Release);
        // So that many messages in a row need not wait for their lines one after another.
        memory.prefetch_for_write(self::line(start, self.written + PREFETCHED));
        self.ends[(self.written % LINES as u64) as usize] = end;
        self.payloads.used = end;
        self.written += 1;
        true
    }

    /// Whether there is a line, and room for payloads up to `end`.
    fn has_room(&self, end: u64) -> bool {
        let freed = match self.consumed {
            0 => 0,
            consumed => self.ends[((consumed - 1) % LINES as u64) as usize],
        };
        self.written - self.consumed < LINES as u64 && end - freed <= AREA as u64
    }
}

/// The receiver's end.
#[derive(Default)]
pub struct RingReader {
    consumed: u64,
    payloads: PayloadArea,
}

impl RingReader {
    /// Whether message number `index` has been written. `memory`: the sender's segment.
    #[inline]
    pub fn has_written(memory: &SharedMapping, start: usize, index: u64) -> bool {
        memory.atomic_u64(line(start, index)).load(Acquire) == index + 1
    }

    /// The head of the next message, which has been written.
    #[inline]
    pub fn head(&self, memory: &SharedMapping, start: usize) -> Head {
        let mut head = [0; CONTROL_HEAD_BYTES];
        for (index, bytes) in head.chunks_exact_mut(8).enumerate() {
            let word = memory.atomic_u64(line(start, self.consumed) + HEAD + 8 * index);
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        head
    }

    /// Consumes the next message, which has been written. `payload` has the length that its head
    /// says.
    #[inline]
    pub fn take(&mut self, memory: &SharedMapping, start: usize, payload: &mut [u8]) {
        let (line, bytes) = (line(start, self.consumed), payload.len());
        let range = if bytes <= INLINE {
            line + SHORT..line + SHORT + bytes
        } else {
            let at = self.payloads.place(bytes);
            self.payloads.used = PayloadArea::end(at, bytes);
            PayloadArea::range(start, at, bytes)
        };
        // SAFETY: the sender does not write it until it is consumed. The decoder limits its length.
        payload.copy_from_slice(unsafe { memory.bytes(range) });
        self.consumed += 1;
    }

    /// How many messages were consumed.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }
}

#[inline]
fn line(start: usize, index: u64) -> usize {
    start + (index % LINES as u64) as usize * LINE
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::dtype::DataType;
    use crate::memory::Writers;
    use crate::message::{Envelope, Tag};
    use crate::transport::{ControlMessage, Location, Protocol};

    fn memory() -> SharedMapping {
        SharedMapping::create("nexar-test", RING_BYTES, Writers::Owner).unwrap().0
    }

    fn write(
        writer: &mut RingWriter,
        memory: &SharedMapping,
        message: &ControlMessage,
        consumed: u64,
    ) -> bool {
        writer.write(memory, 0, &message.head(), message.payload(), || consumed)
    }

    fn read(reader: &mut RingReader, memory: &SharedMapping) -> Option<ControlMessage> {
        RingReader::has_written(memory, 0, reader.consumed()).then(|| {
            let mut message = ControlMessage::decode_shared(&reader.head(memory, 0)).unwrap();
            reader.take(memory, 0, message.payload_mut());
            message
        })
    }

    fn eager(id: u64, bytes: usize) -> ControlMessage {
        let envelope = Envelope { tag: Tag::None, dtype: DataType::Uint8.into(), count: bytes };
        let payload = (0..bytes).map(|index| (id as usize + index) as u8).collect();
        ControlMessage::Message {
            id,
            envelope,
            protocol: Protocol::Eager { payload, wants_cts: false },
        }
    }

    fn rts(id: u64, bytes: usize) -> ControlMessage {
        let envelope =
            Envelope { tag: Tag::Number(3), dtype: DataType::Uint8.into(), count: bytes };
        let location = Some(Location::new(bytes as u64));
        ControlMessage::Message { id, envelope, protocol: Protocol::Rendezvous { location } }
    }

    fn message(id: u64, kind: u8, bytes: usize) -> ControlMessage {
        match kind {
            0 => eager(id, bytes),
            1 => rts(id, bytes),
            2 => ControlMessage::ClearToSend { id },
            _ => ControlMessage::Credit { bytes },
        }
    }

    proptest! {
        #[test]
        fn messages_are_read_in_order_and_none_is_overwritten(
            steps in prop::collection::vec((any::<bool>(), 0..4_u8, 0..=16_384_usize), 0..400)
        ) {
            let (memory, mut under_way) = (memory(), VecDeque::new());
            let (mut writer, mut reader) = (RingWriter::default(), RingReader::default());
            for (id, (writes, kind, bytes)) in steps.into_iter().enumerate() {
                if writes {
                    let message = message(id as u64, kind, bytes);
                    if write(&mut writer, &memory, &message, reader.consumed()) {
                        under_way.push_back(message);
                    } else {
                        prop_assert!(!under_way.is_empty(), "an empty ring takes any message");
                    }
                } else {
                    prop_assert_eq!(read(&mut reader, &memory), under_way.pop_front());
                }
            }
        }
    }

    #[test]
    fn an_empty_ring_takes_the_longest_message_wherever_the_last_one_ended() {
        let memory = memory();
        let (mut writer, mut reader) = (RingWriter::default(), RingReader::default());
        for id in 0..1000 {
            let message = eager(id, if id % 2 == 0 { 16_384 } else { 33 + id as usize });
            assert!(write(&mut writer, &memory, &message, reader.consumed()), "message {id}");
            assert_eq!(read(&mut reader, &memory), Some(message));
        }
    }

    #[test]
    fn a_full_ring_takes_no_message_until_one_was_consumed() {
        let memory = memory();
        let (mut writer, mut reader) = (RingWriter::default(), RingReader::default());
        let message = ControlMessage::ClearToSend { id: 1 };
        let mut fits = |consumed| write(&mut writer, &memory, &message, consumed);
        assert_eq!((0..).take_while(|_| fits(0)).count(), LINES);
        read(&mut reader, &memory).unwrap();
        assert!(fits(1) && !fits(1));
    }

    #[test]
    fn a_receiver_that_counts_wrongly_gets_no_other_memory_overwritten() {
        let memory = memory();
        let mut writer = RingWriter::default();
        for id in 0..1000 {
            write(&mut writer, &memory, &eager(id, 16_384), u64::MAX);
        }
        assert!(writer.written > 0 && writer.consumed <= writer.written);
    }
}
