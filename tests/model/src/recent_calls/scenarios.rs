//! One thread records calls while another reads them.

use std::sync::Arc;

use loom::thread;

use super::file::RecentCalls;
use crate::in_every_order;
use crate::op::Call;
use crate::transport::call_table::REMEMBERED;

/// The words of a call. Each differs by the sequence number and from the other.
fn words(seq: u64) -> [u64; 2] {
    [100 + seq, 200 + seq]
}

/// Starts a thread that records the first `calls` calls.
fn record(recent: &Arc<RecentCalls>, calls: u64) -> thread::JoinHandle<()> {
    let recent = Arc::clone(recent);
    thread::spawn(move || (0..calls).for_each(|seq| recent.record(seq, words(seq))))
}

pub fn a_reader_gets_whole_calls_of_their_numbers() {
    in_every_order(|| {
        let recent = Arc::new(RecentCalls::default());
        let calls = REMEMBERED as u64 + 1;
        let writer = record(&recent, calls);
        for (seq, call) in recent.since(0) {
            assert_eq!(call, Call(words(seq)), "call {seq} is torn");
        }
        writer.join().unwrap();
        let latest = (calls - REMEMBERED as u64..calls).map(|seq| (seq, Call(words(seq))));
        assert!(recent.since(0).eq(latest), "one of the latest calls is missing");
    });
}

/// While no call has been overwritten, a reader that has read `end` finds every call before it.
pub fn a_call_before_the_end_is_there() {
    in_every_order(|| {
        let recent = Arc::new(RecentCalls::default());
        let writer = record(&recent, REMEMBERED as u64);
        let end = recent.end();
        let found = recent.since(0).take_while(|(seq, _)| *seq < end).count();
        assert_eq!(found as u64, end, "a call before the end is missing");
        writer.join().unwrap();
    });
}

pub fn all() {
    a_reader_gets_whole_calls_of_their_numbers();
    a_call_before_the_end_is_there();
}
