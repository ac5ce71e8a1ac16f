//! The backlog of a communicator: batches of streams run one behind the other.
//!
//! Each batch knows how many were before it. Batches of one group have the same number before them
//! and run side by side. Invariant: none ends before those in front of it, unless the backlog is
//! dissolved because the communicator has failed; then nobody waits.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::comm::Communicator;

#[derive(Default)]
pub struct Backlog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: u64,
    dissolved: bool,
    waiting: Vec<Waker>,
}

/// A batch's place in the backlog of one communicator. Dropping it ends the batch there.
pub struct InBacklog(pub Arc<Communicator>);

impl Backlog {
    /// Waits until so many batches have ended.
    pub async fn ended(&self, count: u64) {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.ended >= count || state.dissolved {
                return Poll::Ready(());
            }
            // It is polled again whenever something beside it moves.
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Whether so many batches have ended. Most communicators have had none.
    #[inline]
    pub fn has_ended(&self, count: u64) -> bool {
        count == 0 || self.lock().ended >= count
    }

    pub fn dissolve(&self) {
        self.change(|state| state.dissolved = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.lock();
            change(&mut state);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InBacklog {
    fn drop(&mut self) {
        self.0.backlog.change(|state| state.ended += 1);
    }
}
