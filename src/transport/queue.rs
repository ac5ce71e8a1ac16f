//! One direction of one lane between two ranks of a process: an ordered, bounded queue of parcels.
//!
//! A message is one or more parcels, the first of which carries its header. Access rules:
//! 1. all state is behind one lock, and no lock is taken inside it;
//! 2. at most one task sends and one receives at a time (lanes ensure that), so one waker each;
//! 3. a thread that changes what a waiter waits for wakes it after the change.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Header;

/// Memory of the parcels in one queue at which a sender waits.
pub const WINDOW: usize = 1 << 20;

/// A part of a message.
pub struct Parcel {
    pub header: Option<Header>,
    pub bytes: Vec<u8>,
}

impl Parcel {
    /// The memory that it takes up. It is never 0, so that empty parcels are bounded too.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

/// Why one end sends or receives no more.
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
    /// Appends the parcel once the queue is below its window. `failed` ends a wait only: an
    /// operation that need not wait still completes. It is called under the lock, so that a failure
    /// is either seen here or finds the waker.
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

    /// Removes the next parcel once there is one. `failed`: as in `poll_put`.
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

    /// The sender sends no more; what it has sent can still be received.
    pub fn close_sender(&self, reason: Reason) {
        let mut state = self.lock();
        state.sender_gone.get_or_insert(reason);
        wake(state.receiver.take(), state);
    }

    /// The receiver receives no more.
    pub fn close_receiver(&self, reason: Reason) {
        let mut state = self.lock();
        state.receiver_gone.get_or_insert(reason);
        wake(state.sender.take(), state);
    }

    /// Has both ends poll again.
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

/// Wakes after the lock is released: the woken thread takes it at once.
fn wake(waker: Option<Waker>, state: MutexGuard<'_, State>) {
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
