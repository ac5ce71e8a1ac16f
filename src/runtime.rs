//! Waiting: a future polled on the caller's own thread until it is ready or its deadline passes.
//!
//! Leaves to others what the future does. Invariant: a wake-up that comes while the future is
//! being polled is never lost.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// Polls `future` on this thread: spins briefly after each poll, then sleeps until woken.
/// `None` if the deadline passed first; the future is then dropped where it stands.
pub fn block_on<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    let parker = Parker::of_this_thread();
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        parker.woken.store(false, Ordering::Relaxed);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if !parker.spin() && !parker.sleep(deadline) {
            return None;
        }
    }
}

/// A thread that sleeps until somebody wakes it.
struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    fn of_this_thread() -> Arc<Self> {
        thread_local! {
            static PARKER: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
        }
        // A block_on inside another, or in a thread that is ending, makes a parker of its own.
        let fresh =
            || Arc::new(Self { thread: std::thread::current(), woken: AtomicBool::new(false) });
        PARKER
            .try_with(|cell| {
                let parker = cell.take().unwrap_or_else(fresh);
                cell.set(Some(Arc::clone(&parker)));
                parker
            })
            .unwrap_or_else(|_| fresh())
    }

    /// True if woken within a few microseconds: less than putting the thread to sleep costs.
    fn spin(&self) -> bool {
        for _ in 0..spins() {
            if self.woken.load(Ordering::Acquire) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// True if woken, false if the deadline came first.
    fn sleep(&self, deadline: Instant) -> bool {
        loop {
            if self.woken.load(Ordering::Acquire) {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            if left.is_zero() {
                return false;
            }
            std::thread::park_timeout(left);
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

/// On a single core nobody could wake a spinning thread.
fn spins() -> u32 {
    static SPINS: OnceLock<u32> = OnceLock::new();
    *SPINS.get_or_init(|| match std::thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => 300,
        _ => 0,
    })
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
    fn a_future_nobody_wakes_ends_at_the_deadline() {
        assert_eq!(block_on(pending::<()>(), within(Duration::from_millis(20))), None);
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
