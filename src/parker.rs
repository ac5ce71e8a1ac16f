//! Polls a future on the caller's own thread until it is ready or its deadline passes.
//!
//! Leaves to others what the future does. Invariant: a wake-up that arrives while the future is
//! being polled is not lost.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use crate::sync::{AtomicBool, Ordering, Thread, cores, current, park_timeout};

thread_local! {
    /// This thread's parker and its waker. `None` while a wait uses them.
    static PARKER: Cell<Option<(Arc<Parker>, Waker)>> = const { Cell::new(None) };
}

/// Polls `future` on this thread: spins briefly after each poll, then sleeps until woken.
/// `None` if the deadline passed first; the future is then dropped unfinished.
pub fn block_on<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    with_parker(|parker, context| parker.wait_for(pin!(future), context, deadline))
}

/// Polls `future` once on this thread, without reading the clock. If it is not ready, the caller
/// must call `block_on`, which polls again, so that no wake-up is lost.
pub fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    with_parker(|_, context| future.poll(context))
}

fn with_parker<T>(body: impl FnOnce(&Parker, &mut Context<'_>) -> T) -> T {
    // A wait inside another one, or in a thread that is ending, finds none and creates its own.
    let kept = PARKER.try_with(Cell::take).ok().flatten();
    let (parker, waker) = kept.unwrap_or_else(|| {
        let parker = Parker::new(spins());
        (Arc::clone(&parker), Waker::from(parker))
    });
    let output = body(&parker, &mut Context::from_waker(&waker));
    let _ = PARKER.try_with(|cell| cell.set(Some((parker, waker))));
    output
}

/// The waker of a thread, and the flag on which the thread waits.
pub struct Parker {
    thread: Thread,
    woken: AtomicBool,
    /// How often the thread reads the flag before it sleeps.
    spins: u32,
}

impl Parker {
    pub fn new(spins: u32) -> Arc<Self> {
        Arc::new(Self { thread: current(), woken: AtomicBool::new(false), spins })
    }

    #[cfg(feature = "testing")]
    pub fn block_on<F: Future>(
        self: &Arc<Self>,
        future: F,
        deadline: Instant,
    ) -> Option<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        self.wait_for(pin!(future), &mut Context::from_waker(&waker), deadline)
    }

    fn wait_for<F: Future>(
        &self,
        mut future: Pin<&mut F>,
        context: &mut Context<'_>,
        deadline: Instant,
    ) -> Option<F::Output> {
        loop {
            // A swap, whose acquire orders the poll's reads after the clearing of the flag. It
            // pairs with the release of `wake`.
            self.woken.swap(false, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Some(output);
            }
            let woken = if self.spin() { Instant::now() < deadline } else { self.sleep(deadline) };
            if !woken {
                return None;
            }
        }
    }

    /// True if woken within a few microseconds, which is less than a sleep costs.
    fn spin(&self) -> bool {
        for _ in 0..self.spins {
            if self.woken.load(Ordering::Acquire) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// True if woken, false if the deadline passed first.
    fn sleep(&self, deadline: Instant) -> bool {
        loop {
            if self.woken.load(Ordering::Acquire) {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            if left.is_zero() {
                return false;
            }
            park_timeout(left);
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

/// None on a single core, where no other thread can run while this one spins.
fn spins() -> u32 {
    if cores() > 1 { 300 } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::time::Duration;

    use super::*;

    fn within(time: Duration) -> Instant {
        Instant::now() + time
    }

    #[test]
    fn a_ready_future_needs_no_waiting() {
        assert_eq!(block_on(ready(7), within(Duration::ZERO)), Some(7));
    }

    #[test]
    fn a_future_that_is_never_woken_ends_at_the_deadline() {
        assert_eq!(block_on(pending::<()>(), within(Duration::from_millis(20))), None);
    }

    #[test]
    fn a_future_that_is_always_woken_ends_at_the_deadline_too() {
        let restless = poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(block_on(restless, within(Duration::from_millis(20))), None);
    }

    #[test]
    fn a_wake_between_a_poll_and_the_wait_behind_it_is_not_lost() {
        let mut polls = 0;
        let mut future = pin!(poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert!(poll(future.as_mut()).is_pending());
        assert_eq!(block_on(future, within(Duration::from_secs(30))), Some(()));
    }

    #[test]
    fn a_wait_inside_another_loses_no_wake() {
        let outer = poll_fn(|context| {
            context.waker().wake_by_ref();
            assert_eq!(block_on(ready(1), within(Duration::ZERO)), Some(1));
            Poll::Ready(2)
        });
        assert_eq!(block_on(outer, within(Duration::from_secs(30))), Some(2));
    }

    #[test]
    fn a_wake_from_another_thread_is_never_lost() {
        for round in 0..2000 {
            let flag = Arc::new(AtomicBool::new(false));
            let mut helper = None;
            let future = poll_fn(|context| {
                if flag.load(Ordering::Acquire) {
                    return Poll::Ready(round);
                }
                helper.get_or_insert_with(|| {
                    let (flag, waker) = (Arc::clone(&flag), context.waker().clone());
                    std::thread::spawn(move || {
                        flag.store(true, Ordering::Release);
                        waker.wake();
                    })
                });
                Poll::Pending
            });
            assert_eq!(block_on(future, within(Duration::from_secs(30))), Some(round));
            helper.expect("the first poll was pending").join().unwrap();
        }
    }
}
