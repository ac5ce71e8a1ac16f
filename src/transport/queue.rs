//! One direction of one lane between two ranks of a process: an ordered, bounded queue of parcels.
//!
//! A message is one or more parcels, the first of which carries its header. Access rules:
//! 1. all state is behind the one lock, and no lock is taken inside it;
//! 2. at most one task sends and one receives at a time (lanes see to that), so one waker each;
//! 3. whoever changes what a waiter waits for wakes it after the change.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Header;

/// Memory of the parcels on their way in one queue: beyond this a sender waits.
pub const WINDOW: usize = 1 << 20;

/// A part of a message.
pub struct Parcel {
    pub header: Option<Header>,
    pub bytes: Vec<u8>,
}

impl Parcel {
    /// What it costs, empty ones too.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

/// Why nothing more will come or be taken.
pub type Reason = &'static str;

#[derive(Default)]
pub struct ParcelQueue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parcels: VecDeque<Parcel>,
    memory: usize,
    sender_gone: Option<Reason>,
    receiver_gone: Option<Reason>,
    sender: Option<Waker>,
    receiver: Option<Waker>,
}

impl ParcelQueue {
    /// Puts the parcel in once there is room. `failed` ends a wait, not what can be done without
    /// one: an operation whose messages are all there completes. It is asked under the lock, so
    /// that a failure is either seen here or finds the waker.
    pub fn poll_put(
        &self,
        context: &Context<'_>,
        parcel: &mut Option<Parcel>,
        failed: impl Fn() -> bool,
    ) -> Poll<Result<(), Option<Reason>>> {
        let mut state = self.lock();
        if state.receiver_gone.is_some() || state.memory >= WINDOW {
            if failed() {
                return Poll::Ready(Err(None));
            }
            if let Some(reason) = state.receiver_gone {
                return Poll::Ready(Err(Some(reason)));
            }
            state.sender = Some(context.waker().clone());
            return Poll::Pending;
        }
        if let Some(parcel) = parcel.take() {
            state.memory += parcel.memory();
            state.parcels.push_back(parcel);
        }
        wake(state.receiver.take(), state);
        Poll::Ready(Ok(()))
    }

    /// Takes the next parcel out once there is one.
    pub fn poll_take(
        &self,
        context: &Context<'_>,
        failed: impl Fn() -> bool,
    ) -> Poll<Result<Parcel, Option<Reason>>> {
        let mut state = self.lock();
        let Some(parcel) = state.parcels.pop_front() else {
            if failed() {
                return Poll::Ready(Err(None));
            }
            if let Some(reason) = state.sender_gone {
                return Poll::Ready(Err(Some(reason)));
            }
            state.receiver = Some(context.waker().clone());
            return Poll::Pending;
        };
        state.memory -= parcel.memory();
        wake(state.sender.take(), state);
        Poll::Ready(Ok(parcel))
    }

    /// The sender sends no more; what it has sent may still be taken.
    pub fn close_sender(&self, reason: Reason) {
        let mut state = self.lock();
        state.sender_gone.get_or_insert(reason);
        wake(state.receiver.take(), state);
    }

    /// The receiver takes no more.
    pub fn close_receiver(&self, reason: Reason) {
        let mut state = self.lock();
        state.receiver_gone.get_or_insert(reason);
        wake(state.sender.take(), state);
    }

    /// Lets both ends look again.
    pub fn wake_both(&self) {
        let mut state = self.lock();
        let sender = state.sender.take();
        wake(state.receiver.take(), state);
        if let Some(waker) = sender {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes after the lock is released: the woken thread wants it at once.
fn wake(waker: Option<Waker>, state: MutexGuard<'_, State>) {
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
