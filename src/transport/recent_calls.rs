//! The latest calls of this rank, recorded without a lock and read by the threads that compare
//! calls with those of other ranks.
//!
//! A seqlock per entry. One thread at a time writes, in the order of sequence numbers, while it
//! holds the communicator's lock. Leaves the comparison to `call_table`. Invariant: a reader
//! discards an entry that is overwritten meanwhile, because its stamp is then that of no call.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::op::Call;
use crate::sync::{AtomicU64, fence};
use crate::transport::call_table::REMEMBERED;
use crate::transport::wire::{CallWords, call_of_words};

/// How many calls are kept: as many as a `CallTable` compares.
const KEPT: usize = REMEMBERED;

pub struct RecentCalls {
    /// Call number `seq` is in entry `seq % KEPT`.
    entries: Box<[RecentCall; KEPT]>,
    /// One more than the latest sequence number.
    end: AtomicU64,
}

#[derive(Default)]
struct RecentCall {
    /// One more than the sequence number of the call. 0 while the entry is written.
    stamp: AtomicU64,
    words: [AtomicU64; 2],
}

impl Default for RecentCalls {
    fn default() -> Self {
        Self {
            entries: Box::new(std::array::from_fn(|_| RecentCall::default())),
            end: AtomicU64::new(0),
        }
    }
}

impl RecentCalls {
    #[inline]
    pub fn record(&self, seq: u64, call: CallWords) {
        let entry = &self.entries[seq as usize % KEPT];
        entry.stamp.store(0, Relaxed);
        fence(Release); // before the words
        entry.words[0].store(call[0], Relaxed);
        entry.words[1].store(call[1], Relaxed);
        entry.stamp.store(seq + 1, Release);
        self.end.store(seq + 1, Release);
    }

    /// One more than the latest sequence number that was recorded.
    pub fn end(&self) -> u64 {
        self.end.load(Acquire)
    }

    /// The calls that are still kept, beginning with call number `begin`.
    pub fn since(&self, begin: u64) -> impl Iterator<Item = (u64, Call)> + '_ {
        let end = self.end();
        let begin = begin.max(end.saturating_sub(KEPT as u64));
        (begin..end).filter_map(|seq| self.read(seq).map(|call| (seq, call)))
    }

    fn read(&self, seq: u64) -> Option<Call> {
        let entry = &self.entries[seq as usize % KEPT];
        let before = entry.stamp.load(Acquire);
        let words = [entry.words[0].load(Relaxed), entry.words[1].load(Relaxed)];
        fence(Acquire); // after the words
        let is_whole = before == seq + 1 && entry.stamp.load(Relaxed) == before;
        if is_whole { call_of_words(words) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;
    use crate::op::Counts;
    use crate::transport::wire::call_words;

    fn gather(count: u64) -> Call {
        Call::all_gather(Counts::Each(count as usize), DataType::Int8.into())
    }

    #[test]
    fn the_latest_calls_are_kept_and_older_ones_are_not() {
        let calls = RecentCalls::default();
        assert_eq!(calls.since(0).count(), 0);
        for seq in 0..1000 {
            calls.record(seq, call_words(&gather(seq)));
        }
        let latest: Vec<_> = (1000 - KEPT as u64..1000).map(|seq| (seq, gather(seq))).collect();
        assert_eq!(calls.since(0).collect::<Vec<_>>(), latest);
        assert_eq!(calls.since(998).collect::<Vec<_>>(), latest[KEPT - 2..]);
    }

    #[test]
    fn a_concurrent_reader_sees_whole_calls_under_their_numbers() {
        let calls = RecentCalls::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..200_000).for_each(|seq| calls.record(seq, call_words(&gather(seq))));
            });
            while !writer.is_finished() {
                calls.since(0).for_each(|(seq, call)| assert_eq!(call, gather(seq)));
            }
        });
    }
}
