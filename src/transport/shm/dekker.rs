//! The Dekker handshake between a thread that writes shared memory and a thread that sleeps until
//! another process has written.
//!
//! The writer stores, then reads `sleepers`. The sleeper increments `sleepers`, then polls once
//! more what it waits for. With a full barrier between the two steps on both sides, at least one of
//! them sees what the other has stored, so no wake-up is lost. Threads sleep seldom and write
//! often: where membarrier(2) reaches the writer, the sleeper executes the barrier of both, and the
//! writer only keeps the compiler from reordering. Leaves to `doorbell` where the words are and how
//! long a thread spins before it sleeps. `tests/model` runs this file in every interleaving.

use std::time::Duration;

use crate::sync::{
    AtomicU32, Ordering, compiler_fence, fence, futex_wait, futex_wake_all, membarrier,
};

/// The words of one process's doorbell, in memory that all processes of the host write.
pub trait Doorbell {
    /// Counts the wake-ups: the futex that sleepers wait on.
    fn rung(&self) -> &AtomicU32;

    /// Counts the threads of the process that sleep or are about to.
    fn sleepers(&self) -> &AtomicU32;

    /// Whether the process is out of reach of membarrier(2), so that each side of a handshake with
    /// it executes its own full barrier.
    fn needs_fence(&self) -> bool;
}

/// The writer's side: wakes the processes that sleep, after this thread has stored what they wait
/// for. `full_barrier`: the process of the writer, or one of these, `needs_fence`.
#[inline(always)]
pub fn ring<'a, D: Doorbell + 'a>(doorbells: impl Iterator<Item = &'a D>, full_barrier: bool) {
    if full_barrier {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
    for doorbell in doorbells {
        if doorbell.sleepers().load(Ordering::Relaxed) > 0 {
            wake(doorbell);
        }
    }
}

#[cold]
fn wake(doorbell: &impl Doorbell) {
    // Changed before the wake: a thread that has polled but does not sleep yet will not sleep.
    doorbell.rung().fetch_add(1, Ordering::SeqCst);
    futex_wake_all(doorbell.rung());
}

/// The sleeper's side: calls `look` and sleeps for as long as it returns, or until the doorbell of
/// this process is rung. Does not sleep if `look` returns `None`, because the wait is over, or if
/// the doorbell was rung since `look` began.
pub fn look_and_sleep(doorbell: &impl Doorbell, look: impl FnOnce() -> Option<Duration>) {
    let _sleeper = Sleeper::new(doorbell);
    let seen = doorbell.rung().load(Ordering::SeqCst);
    if let Some(limit) = look() {
        futex_wait(doorbell.rung(), seen, limit);
    }
}

/// Counted among the sleepers while it exists.
struct Sleeper<'a, D: Doorbell>(&'a D);

impl<'a, D: Doorbell> Sleeper<'a, D> {
    fn new(doorbell: &'a D) -> Self {
        doorbell.sleepers().fetch_add(1, Ordering::SeqCst);
        // If membarrier(2) is refused although the process has registered, writers that rely on it
        // have no barrier. A wake-up lost for that reason costs the sleeper its time limit.
        if doorbell.needs_fence() || !membarrier() {
            fence(Ordering::SeqCst);
        }
        Self(doorbell)
    }
}

impl<D: Doorbell> Drop for Sleeper<'_, D> {
    fn drop(&mut self) {
        self.0.sleepers().fetch_sub(1, Ordering::SeqCst);
    }
}
