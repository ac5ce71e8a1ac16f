//! Turns: operations that share a lane run one after another, in the order of their sequence
//! numbers.
//!
//! Number `seq` runs in lane `seq % LANES`, so all ranks agree on the lane without communication.
//! Leaves to its users what an operation does. Invariant: a number is ended once, also if its
//! operation was given up; an operation runs only when all lower numbers of its lane have ended.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, PoisonError};
use crate::transport::{LANES, Lane};

/// The lanes of a communicator. An operation that waits for no other, and for which no other waits,
/// accesses only the word of its lane.
pub struct LaneQueues<const N: usize = LANES> {
    /// For each lane: the number of ended operations before the first that has not ended, times
    /// two, plus `WATCHED`.
    words: [AtomicU64; N],
    queue: Mutex<LaneQueue>,
}

/// Set while operations of the lane wait or have ended early. The word then changes under the lock
/// only.
const WATCHED: u64 = 1;

#[derive(Default)]
struct LaneQueue {
    /// Operations that have ended before their turn.
    ended_early: Vec<u64>,
    /// Wakers by sequence number, so that only the operation that is next is woken.
    waiting: BTreeMap<u64, Waker>,
}

impl<const N: usize> Default for LaneQueues<N> {
    fn default() -> Self {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        Self { words, queue: Mutex::new(LaneQueue::default()) }
    }
}

impl<const N: usize> LaneQueues<N> {
    pub fn of(seq: u64) -> Lane {
        Lane((seq % N as u64) as usize)
    }

    /// Whether every operation with a lower number in the lane of `seq` has ended.
    #[inline]
    pub fn is_turn(&self, seq: u64) -> bool {
        self.word(seq).load(Ordering::Acquire) >> 1 == seq / N as u64
    }

    /// Waits until every operation with a lower number in the lane of `seq` has ended.
    pub async fn turn(&self, seq: u64) {
        let (word, before) = (self.word(seq), seq / N as u64);
        poll_fn(|context| {
            if word.load(Ordering::Acquire) >> 1 == before {
                return Poll::Ready(());
            }
            let mut queue = self.lock();
            if word.fetch_or(WATCHED, Ordering::AcqRel) >> 1 == before {
                return Poll::Ready(());
            }
            queue.waiting.insert(seq, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// `end` for a caller that holds the communicator's lock: no operation with a higher number
    /// exists yet.
    #[inline]
    pub fn end_alone(&self, seq: u64) {
        self.word(seq).store((seq / N as u64 + 1) << 1, Ordering::Release);
    }

    /// Ends an operation and wakes the next of its lane. Must be called once for each number, also
    /// if the operation was given up before its turn.
    pub fn end(&self, seq: u64) {
        let (word, before) = (self.word(seq), seq / N as u64);
        let (running, ended) = (before << 1, (before + 1) << 1);
        let alone = word.compare_exchange(running, ended, Ordering::AcqRel, Ordering::Relaxed);
        if alone.is_ok() {
            return;
        }
        let next = {
            let mut queue = self.lock();
            let mut ended = word.fetch_or(WATCHED, Ordering::AcqRel) >> 1;
            let next_seq = |ended: u64| ended * N as u64 + seq % N as u64;
            queue.ended_early.push(seq);
            // This operation, and later ones that were given up while it ran.
            while let Some(early) = queue.ended_early.iter().position(|seq| *seq == next_seq(ended))
            {
                queue.ended_early.swap_remove(early);
                ended += 1;
            }
            queue.waiting.remove(&seq);
            let next = queue.waiting.remove(&next_seq(ended));
            // The queue is that of all lanes: a word may stay watched without need, which costs the
            // next `end` the lock.
            let watched = !queue.waiting.is_empty() || !queue.ended_early.is_empty();
            word.store(ended << 1 | u64::from(watched), Ordering::Release);
            next
        };
        if let Some(next) = next {
            next.wake();
        }
    }

    fn word(&self, seq: u64) -> &AtomicU64 {
        &self.words[Self::of(seq).0]
    }

    fn lock(&self) -> MutexGuard<'_, LaneQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct WokenFlag(AtomicBool);

    impl Wake for WokenFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Polls `turn` once.
    fn has_turn(lanes: &LaneQueues, seq: u64) -> bool {
        pin!(lanes.turn(seq)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn operations_of_one_lane_run_one_by_one_and_lanes_do_not_wait_for_each_other() {
        let lanes = LaneQueues::default();
        let second = LANES as u64;
        assert!(has_turn(&lanes, 0) && !has_turn(&lanes, second) && has_turn(&lanes, 1));
        lanes.end(0);
        assert!(has_turn(&lanes, second));
    }

    #[test]
    fn an_operation_given_up_while_it_waits_does_not_block_the_next() {
        let lanes = LaneQueues::default();
        let (second, third) = (LANES as u64, 2 * LANES as u64);
        lanes.end(second);
        assert!(!has_turn(&lanes, third));
        lanes.end(0);
        assert!(has_turn(&lanes, third));
    }

    #[test]
    fn a_waiting_operation_is_woken_by_the_end_of_its_predecessor_alone() {
        let (lanes, lane) = (LaneQueues::<LANES>::default(), LANES as u64);
        for round in 0..10 {
            let (first, second, third) =
                (3 * round * lane, (3 * round + 1) * lane, (3 * round + 2) * lane);
            let woken = Arc::new(WokenFlag::default());
            let waker = Waker::from(Arc::clone(&woken));
            let mut context = Context::from_waker(&waker);
            let mut waits = pin!(lanes.turn(third));
            assert!(waits.as_mut().poll(&mut context).is_pending());
            lanes.end(first);
            assert!(!woken.0.load(Ordering::Relaxed));
            lanes.end(second);
            assert!(woken.0.load(Ordering::Relaxed));
            assert!(waits.as_mut().poll(&mut context).is_ready());
            lanes.end(third);
        }
    }
}
