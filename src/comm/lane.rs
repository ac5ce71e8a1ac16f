//! Turns: operations that share a lane run one after another, in the order of their numbers.
//!
//! Number `seq` runs in lane `seq % LANES`, so that every rank agrees on the lane without talking.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::transport::{LANES, Lane, Past};

#[derive(Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Ended operations of each lane, without a gap before them.
    ended: [u64; LANES],
    /// Operations that were given up before their turn came.
    abandoned: Vec<u64>,
    waiting: Vec<Waker>,
}

/// An operation's place in its lane. Dropping it lets the next one in, also if it never came to
/// its turn.
pub(super) struct Turn<'a> {
    lanes: &'a Lanes,
    pub seq: u64,
    /// The calls before it.
    pub past: Past,
}

impl Lanes {
    /// The turn of operation number `seq`, which has yet to come.
    pub fn turn(&self, seq: u64, past: Past) -> Turn<'_> {
        Turn { lanes: self, seq, past }
    }

    /// Waits until every operation with a lower number, in any lane, has ended.
    pub async fn all_before(&self, seq: u64) {
        poll_fn(|context| {
            let mut state = self.lock();
            let ended = |lane: usize| {
                let lower = (seq + LANES as u64 - 1 - lane as u64) / LANES as u64;
                state.ended[lane] >= lower
            };
            if (0..LANES).all(ended) {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Waits until every operation with a lower number in this lane has ended.
    pub async fn come(&self) {
        poll_fn(|context| {
            let mut state = self.lanes.lock();
            if state.ended[self.lane().0] == self.before() {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub fn lane(&self) -> Lane {
        Lane((self.seq % LANES as u64) as usize)
    }

    /// How many operations of the lane come before this one.
    fn before(&self) -> u64 {
        self.seq / LANES as u64
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let lane = self.lane().0;
        let waiting = {
            let mut state = self.lanes.lock();
            state.abandoned.push(self.seq);
            // This one, and those behind it that were given up while it ran.
            while let Some(next) = state
                .abandoned
                .iter()
                .position(|seq| *seq == state.ended[lane] * LANES as u64 + lane as u64)
            {
                state.abandoned.swap_remove(next);
                state.ended[lane] += 1;
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    /// Polls once: has the turn come?
    fn has_come(turn: &Turn<'_>) -> bool {
        pin!(turn.come()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_lane_lets_its_operations_in_one_by_one_and_lanes_do_not_wait_for_each_other() {
        let lanes = Lanes::default();
        let (first, second) =
            (lanes.turn(0, Past::default()), lanes.turn(LANES as u64, Past::default()));
        assert!(
            has_come(&first) && !has_come(&second) && has_come(&lanes.turn(1, Past::default()))
        );
        drop(first);
        assert!(has_come(&second));
    }

    #[test]
    fn one_that_waits_for_all_before_it_waits_for_every_lane() {
        let lanes = Lanes::default();
        let mut turns: Vec<_> = (0..6).map(|seq| lanes.turn(seq, Past::default())).collect();
        let ready = |seq| {
            let waiting = pin!(lanes.all_before(seq));
            waiting.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(ready(0) && !ready(1) && !ready(6));
        for ended in 1..=6 {
            drop(turns.remove(0));
            assert!(ready(ended) && !ready(ended + 1), "{ended} have ended");
        }
    }

    #[test]
    fn an_operation_given_up_while_it_waits_does_not_block_the_next() {
        let lanes = Lanes::default();
        let first = lanes.turn(0, Past::default());
        drop(lanes.turn(LANES as u64, Past::default()));
        let third = lanes.turn(2 * LANES as u64, Past::default());
        assert!(has_come(&first) && !has_come(&third));
        drop(first);
        assert!(has_come(&third));
    }
}
