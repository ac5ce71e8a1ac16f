//! Messages between ranks of one host: for each direction of each pair a ring for control messages,
//! and slots for payloads.
//!
//! Leaves the ring to `message_ring`, the slots to `payload_slots`, and to the mesh what a message
//! means and which rank is lost. Invariant: one thread at a time reads a ring, so that messages are
//! delivered in the order in which they were written.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError, TryLockError};

use super::message_ring::{Malformed, RingReader};
use super::payload_slots::PayloadPart;
use super::segment::{MOST_RINGS, payload_slots, ring};
use super::{Host, dekker};
use crate::message::Envelope;
use crate::transport::{CONTROL_HEAD_BYTES, ControlMessage};

impl Host {
    /// Whether messages of this host travel through rings.
    pub fn has_rings(&self) -> bool {
        self.size() <= MOST_RINGS
    }

    /// Sends a message, if there is room for it.
    #[inline]
    pub fn send_message(&self, to: usize, head: &[u8; CONTROL_HEAD_BYTES], payload: &[u8]) -> bool {
        let mut writer = self.rings[to].writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, start) = (&self.segments[self.me], ring(self.size(), to));
        let consumed = || self.segments[to].consumed(self.me);
        let is_first = writer.is_unused();
        if !writer.write(own.memory(), start, head, payload, consumed) {
            return false;
        }
        if is_first {
            own.open(to);
        }
        drop(writer);
        self.ring_one(to);
        true
    }

    /// Delivers the messages that a rank has written. `waits`: if another thread delivers them just
    /// now, waits until it has. `Err`: how the rank has violated the protocol.
    pub fn receive_messages(
        &self,
        from: usize,
        waits: bool,
        mut deliver: impl FnMut(ControlMessage) -> Result<(), String>,
    ) -> Result<(), String> {
        if !self.is_message_there(from, waits) {
            return Ok(());
        }
        let (rings, segment) = (&self.rings[from], &self.segments[from]);
        let start = ring(self.size(), self.me);
        let mut reader = match rings.reader.try_lock() {
            Ok(reader) => reader,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if waits => {
                rings.reader.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let mut result = Ok(());
        let mut has_read = false;
        while result.is_ok()
            && let Some(message) = reader.read(segment.memory(), start)
        {
            has_read = true;
            result = match message {
                Ok(message) => deliver(message),
                Err(Malformed) => Err("sent a malformed control message".to_owned()),
            };
        }
        if has_read {
            self.consume(from, reader);
        }
        result
    }

    /// Receives the next message of a rank straight into a buffer, if it is eager and `accepts`
    /// its id and envelope. The buffer has the length of the payload then.
    #[inline]
    pub fn receive_message_into(
        &self,
        from: usize,
        into: &mut [u8],
        accepts: impl FnOnce(u64, &Envelope) -> bool,
    ) -> bool {
        let (rings, segment) = (&self.rings[from], &self.segments[from]);
        let start = ring(self.size(), self.me);
        let Ok(mut reader) = rings.reader.try_lock() else { return false };
        if !RingReader::has_written(segment.memory(), start, reader.consumed()) {
            return false;
        }
        let eager = ControlMessage::eager(&reader.head(segment.memory(), start));
        let Some((id, envelope)) = eager else { return false };
        if envelope.bytes() != into.len() || !accepts(id, &envelope) {
            return false;
        }
        reader.take(segment.memory(), start, into);
        self.consume(from, reader);
        true
    }

    /// Whether a rank has written a message. `certainly`: also if another thread reads just now.
    #[inline]
    pub fn is_message_there(&self, from: usize, certainly: bool) -> bool {
        let (rings, segment) = (&self.rings[from], &self.segments[from]);
        if !rings.is_opened.load(Ordering::Relaxed) {
            if !segment.has_opened(self.me) {
                return false;
            }
            rings.is_opened.store(true, Ordering::Relaxed);
        }
        let consumed = rings.consumed.load(Ordering::Relaxed);
        let start = ring(self.size(), self.me);
        certainly || RingReader::has_written(segment.memory(), start, consumed)
    }

    /// Sends the next part of the payload of message `id`, and cuts it off `rest`, if a slot is
    /// free.
    pub fn send_part(&self, to: usize, id: u64, rest: &mut &[u8]) -> bool {
        let mut writer = self.rings[to].slot_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, start) = (&self.segments[self.me], payload_slots(self.size(), to));
        let consumed = || self.segments[to].parts_consumed(self.me);
        let is_written = writer.write(own.memory(), start, id, rest, consumed);
        drop(writer);
        if is_written {
            self.ring_one(to);
        }
        is_written
    }

    /// Receives the next part of the payload of message `id` into the beginning of `rest`, and cuts
    /// it off, if it is there.
    pub fn receive_part(&self, from: usize, id: u64, rest: &mut &mut [u8]) -> PayloadPart {
        let (rings, segment) = (&self.rings[from], &self.segments[from]);
        let mut reader = rings.slot_reader.lock().unwrap_or_else(PoisonError::into_inner);
        let part = reader.read(segment.memory(), payload_slots(self.size(), self.me), id, rest);
        if part == PayloadPart::Read {
            self.segments[self.me].set_parts_consumed(from, reader.consumed());
            drop(reader);
            self.ring_one(from);
        }
        part
    }

    /// Tells the sender how much was consumed.
    #[inline]
    fn consume(&self, from: usize, reader: MutexGuard<'_, RingReader>) {
        self.rings[from].consumed.store(reader.consumed(), Ordering::Relaxed);
        self.segments[self.me].set_consumed(from, reader.consumed());
        drop(reader);
        self.ring_one(from);
    }

    /// Wakes the process of one rank if it sleeps.
    fn ring_one(&self, index: usize) {
        let doorbell = self.doorbells[index].iter().map(AsRef::as_ref);
        dekker::ring(doorbell, self.fences);
    }
}
