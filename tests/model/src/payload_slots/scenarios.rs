//! One thread copies payloads into the slots, another out of them.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::file::{PAYLOAD_SLOTS_BYTES, PayloadPart, SlotReader, SlotWriter};
use crate::memory::SharedMapping;
use crate::{in_every_order, in_orders_with};

/// Words of the lines: one slot has one.
const WORDS: usize = 8;

/// The payloads have these lengths. Each follows the one before it.
fn payloads_arrive(lengths: &'static [usize]) {
    let memory = Arc::new(SharedMapping::of_model(WORDS, PAYLOAD_SLOTS_BYTES));
    let consumed = Arc::new(AtomicU64::new(0));
    let (its_memory, its_count) = (Arc::clone(&memory), Arc::clone(&consumed));
    let sender = thread::spawn(move || {
        let mut writer = SlotWriter::default();
        for (id, bytes) in (0..).zip(lengths) {
            let payload = vec![id as u8 + 1; *bytes];
            let mut rest = payload.as_slice();
            while !rest.is_empty() {
                let count = || its_count.load(Ordering::Acquire);
                if !writer.write(&its_memory, 0, id, &mut rest, count) {
                    thread::yield_now();
                }
            }
        }
    });
    let mut reader = SlotReader::default();
    for (id, bytes) in (0..).zip(lengths) {
        let mut payload = vec![0; *bytes];
        let mut rest = payload.as_mut_slice();
        while !rest.is_empty() {
            match reader.read(&memory, 0, id, &mut rest) {
                PayloadPart::Read => consumed.store(reader.consumed(), Ordering::Release),
                PayloadPart::NotThere => thread::yield_now(),
                wrong => panic!("payload {id} is torn: {wrong:?}"),
            }
        }
        assert_eq!(payload, vec![id as u8 + 1; *bytes], "payload {id} is torn");
    }
    sender.join().unwrap();
}

pub fn parts_of_a_payload_arrive_in_order() {
    in_every_order(|| payloads_arrive(&[12]));
    in_orders_with(3, || payloads_arrive(&[20]));
}

pub fn payloads_arrive_one_after_another() {
    in_every_order(|| payloads_arrive(&[3, 4]));
    in_orders_with(3, || payloads_arrive(&[12, 3]));
}

pub fn all() {
    parts_of_a_payload_arrive_in_order();
    payloads_arrive_one_after_another();
}
