//! Messages between ranks of one host: for each direction of each pair a ring for control messages,
//! and slots for payloads.
//!
//! Leaves the ring to `message_ring`, the slots to `payload_slots`, and to the mesh what a message
//! means and which rank is lost. Invariant: `MessagePair::consumed` is what the reader of the ring
//! has consumed, so that a thread can poll for messages without the reader.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::message_ring::{RingReader, RingWriter};
use super::payload_slots::PayloadPart;
use super::segment::{MOST_RINGS, payload_slots, ring};
use super::{Host, dekker};
use crate::memory::SharedMapping;
use crate::transport::{CONTROL_HEAD_BYTES, PeerRing};

impl Host {
    /// Whether messages of this host travel through rings.
    pub fn has_rings(&self) -> bool {
        self.size() <= MOST_RINGS
    }

    /// This rank's ends of the rings between it and another rank of its host.
    pub fn rings_with(self: &Arc<Self>, index: usize) -> Box<dyn PeerRing> {
        let (writer, reader) = (RingWriter::default(), RingReader::default());
        Box::new(RingEnds { host: Arc::clone(self), index, writer, reader })
    }

    /// Whether a rank has written a message that was not consumed.
    #[inline]
    pub fn is_message_there(&self, from: usize) -> bool {
        let (rings, segment) = (&self.pairs[from], &self.segments[from]);
        if !rings.is_opened.load(Ordering::Relaxed) {
            if !segment.has_opened(self.me) {
                return false;
            }
            rings.is_opened.store(true, Ordering::Relaxed);
        }
        let consumed = rings.consumed.load(Ordering::Relaxed);
        let start = ring(self.size(), self.me);
        RingReader::has_written(segment.memory(), start, consumed)
    }

    /// Sends the next part of the payload of message `id`, and cuts it off `rest`, if a slot is
    /// free.
    pub fn send_part(&self, to: usize, id: u64, rest: &mut &[u8]) -> bool {
        let mut writer = self.pairs[to].slot_writer.lock().unwrap_or_else(PoisonError::into_inner);
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
        let (rings, segment) = (&self.pairs[from], &self.segments[from]);
        let mut reader = rings.slot_reader.lock().unwrap_or_else(PoisonError::into_inner);
        let part = reader.read(segment.memory(), payload_slots(self.size(), self.me), id, rest);
        if part == PayloadPart::Read {
            self.segments[self.me].set_parts_consumed(from, reader.consumed());
            drop(reader);
            self.ring_one(from);
        }
        part
    }

    /// Wakes the process of one rank if it sleeps.
    fn ring_one(&self, index: usize) {
        let doorbell = self.doorbells[index].iter().map(AsRef::as_ref);
        dekker::ring(doorbell, self.fences);
    }
}

/// See `Host::rings_with`.
struct RingEnds {
    host: Arc<Host>,
    /// The other rank.
    index: usize,
    writer: RingWriter,
    reader: RingReader,
}

impl RingEnds {
    /// The segment in which the other rank writes its ring to this one, and where it begins there.
    fn incoming(&self) -> (&SharedMapping, usize) {
        let host = &self.host;
        (host.segments[self.index].memory(), ring(host.size(), host.me))
    }
}

impl PeerRing for RingEnds {
    #[inline]
    fn write(&mut self, head: &[u8; CONTROL_HEAD_BYTES], payload: &[u8]) -> bool {
        let (host, to) = (&*self.host, self.index);
        let (own, start) = (&host.segments[host.me], ring(host.size(), to));
        let consumed = || host.segments[to].consumed(host.me);
        let is_first = self.writer.is_unused();
        if !self.writer.write(own.memory(), start, head, payload, consumed) {
            return false;
        }
        if is_first {
            own.open(to);
        }
        host.ring_one(to);
        true
    }

    #[inline]
    fn next(&self) -> Option<[u8; CONTROL_HEAD_BYTES]> {
        let (memory, start) = self.incoming();
        // Its memory is not touched before it is in use.
        let is_opened = self.host.pairs[self.index].is_opened.load(Ordering::Relaxed)
            || self.host.is_message_there(self.index);
        let is_there = is_opened && RingReader::has_written(memory, start, self.reader.consumed());
        is_there.then(|| self.reader.head(memory, start))
    }

    #[inline]
    fn take(&mut self, payload: &mut [u8]) {
        let (host, from) = (&*self.host, self.index);
        let start = ring(host.size(), host.me);
        self.reader.take(host.segments[from].memory(), start, payload);
        let consumed = self.reader.consumed();
        host.pairs[from].consumed.store(consumed, Ordering::Relaxed);
        host.segments[host.me].set_consumed(from, consumed);
        host.ring_one(from);
    }
}
