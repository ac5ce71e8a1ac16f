//! Turns: operations that share a lane run one after another, in the order of their numbers.
//!
//! Number `seq` runs in lane `seq % LANES`, so that every rank agrees on the lane without talking.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::transport::{LANES, Lane};

pub(super) struct Lanes<const N: usize = LANES> {
    state: Mutex<State<N>>,
}

struct State<const N: usize> {
    /// Ended operations of each lane, without a gap before them.
    ended: [u64; N],
    /// Ended operations whose turn has not come.
    ended_early: Vec<u64>,
    /// By number, so that only the one whose turn comes is woken.
    waiting: BTreeMap<u64, Waker>,
}

impl<const N: usize> Default for Lanes<N> {
    fn default() -> Self {
        let state = State { ended: [0; N], ended_early: Vec::new(), waiting: BTreeMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl<const N: usize> Lanes<N> {
    pub fn of(seq: u64) -> Lane {
        Lane((seq % N as u64) as usize)
    }

    /// Waits until every operation with a lower number in the lane of `seq` has ended.
    pub async fn turn(&self, seq: u64) {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.next(Self::of(seq)) == seq {
                return Poll::Ready(());
            }
            state.waiting.insert(seq, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Lets the next one in, once for each number, also if its turn never came.
    pub fn end(&self, seq: u64) {
        let lane = Self::of(seq);
        let next = {
            let mut state = self.lock();
            state.ended_early.push(seq);
            // This one, and those behind it that were given up while it ran.
            while let Some(ended) =
                state.ended_early.iter().position(|seq| *seq == state.next(lane))
            {
                state.ended_early.swap_remove(ended);
                state.ended[lane.0] += 1;
            }
            state.waiting.remove(&seq);
            let next = state.next(lane);
            state.waiting.remove(&next)
        };
        if let Some(next) = next {
            next.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize> State<N> {
    /// The operation whose turn it is.
    fn next(&self, lane: Lane) -> u64 {
        self.ended[lane.0] * N as u64 + lane.0 as u64
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    /// Polls once: has the turn come?
    fn has_come(lanes: &Lanes, seq: u64) -> bool {
        pin!(lanes.turn(seq)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_lane_lets_its_operations_in_one_by_one_and_lanes_do_not_wait_for_each_other() {
        let lanes = Lanes::default();
        let second = LANES as u64;
        assert!(has_come(&lanes, 0) && !has_come(&lanes, second) && has_come(&lanes, 1));
        lanes.end(0);
        assert!(has_come(&lanes, second));
    }

    #[test]
    fn an_operation_given_up_while_it_waits_does_not_block_the_next() {
        let lanes = Lanes::default();
        let (second, third) = (LANES as u64, 2 * LANES as u64);
        lanes.end(second);
        assert!(!has_come(&lanes, third));
        lanes.end(0);
        assert!(has_come(&lanes, third));
    }
}
