//! One thread writes messages, another reads them.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::file::{LINES, RING_BYTES, RingReader, RingWriter};
use crate::memory::SharedMapping;
use crate::transport::ControlMessage;
use crate::{in_every_order, in_orders_with};

fn message(id: u64, bytes: usize) -> ControlMessage {
    ControlMessage { id, payload: vec![id as u8 + 1; bytes] }
}

/// The messages have these lengths.
fn messages_arrive(lengths: &'static [usize]) {
    let memory = Arc::new(SharedMapping::of_model(LINES * 8, RING_BYTES));
    let consumed = Arc::new(AtomicU64::new(0));
    let (its_memory, its_count) = (Arc::clone(&memory), Arc::clone(&consumed));
    let sender = thread::spawn(move || {
        let mut writer = RingWriter::default();
        for (id, bytes) in (0..).zip(lengths) {
            let message = message(id, *bytes);
            let count = || its_count.load(Ordering::Acquire);
            while !writer.write(&its_memory, 0, &message.head(), &message.payload, count) {
                thread::yield_now();
            }
        }
    });
    let mut reader = RingReader::default();
    for (id, bytes) in (0..).zip(lengths) {
        while !RingReader::has_written(&memory, 0, reader.consumed()) {
            thread::yield_now();
        }
        let read = ControlMessage::decode_shared(&reader.head(&memory, 0)).map(|mut read| {
            reader.take(&memory, 0, read.payload_mut());
            read
        });
        assert_eq!(read, Some(message(id, *bytes)), "message {id} is torn");
        consumed.store(reader.consumed(), Ordering::Release);
    }
    sender.join().unwrap();
}

pub fn short_messages_are_read_whole_and_in_order() {
    in_every_order(|| messages_arrive(&[8, 8]));
    in_orders_with(3, || messages_arrive(&[8, 8, 8]));
}

pub fn long_payloads_are_read_before_they_are_overwritten() {
    in_orders_with(3, || messages_arrive(&[40, 40]));
    in_orders_with(2, || messages_arrive(&[40, 8, 40]));
}

pub fn all() {
    short_messages_are_read_whole_and_in_order();
    long_payloads_are_read_before_they_are_overwritten();
}
