//! How threads of ours wait for a number that a device writes.
//!
//! A device wakes nobody, so one thread of the process looks at all numbers that are waited for. It
//! spins briefly when something happens, since a device is mostly quick, then gives way, then naps;
//! while nobody waits it sleeps. Leaves to others what they wait for. Invariants: it makes no CUDA
//! call; a number is looked at only while somebody waits for it, so that its memory may be freed
//! after; no lock is held while somebody is woken or asked, and who waits asks himself, each
//! millisecond, whether he still needs to: what belongs to him is never dropped by another thread.

use std::future::poll_fn;
use std::num::NonZeroU64;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slotmap::{DefaultKey, SlotMap};
use tracing::debug;

use crate::device::pinned::TimelineSemaphore;
use crate::runtime::start_thread;
use crate::sync::{
    Condvar, Instant, Mutex, MutexGuard, OnceLock, PoisonError, cores, sleep, yield_now,
};

/// How long it looks at once, then letting others have the processor.
const SPIN: Duration = Duration::from_micros(10);
const YIELD: Duration = Duration::from_micros(60);
/// A nap is this part of the time since something happened: who has waited long does not mind a
/// little more. On a virtual processor each nap costs 10 us, so that a longest of 50 us took a
/// quarter of one.
const NAP_PART: u32 = 16;
const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(200);
/// How often all who wait ask whether they need to.
const ASK: Duration = Duration::from_millis(1);

/// Waits until the cell has come to the value: true; or `is_over` says that nobody needs it any
/// more: false. May be dropped at any time.
pub async fn reach(
    semaphore: TimelineSemaphore,
    value: u32,
    is_over: impl Fn() -> bool + Send + Sync + 'static,
) -> bool {
    let mut waiter = PolledWait { poller: poller(), key: None };
    poll_fn(|context| {
        if semaphore.has_reached(value) {
            return Poll::Ready(true);
        }
        if is_over() {
            return Poll::Ready(false);
        }
        waiter.wait(semaphore, value, context);
        Poll::Pending
    })
    .await
}

struct DevicePoller {
    queue: Mutex<WaiterQueue>,
    /// Wakes the thread.
    somebody: Condvar,
    /// There is a thread that looks.
    is_kept: bool,
}

#[derive(Default)]
struct WaiterQueue {
    waits: SlotMap<DefaultKey, Wait>,
    /// Counts the waits that have begun.
    begun: u64,
}

/// Somebody who will be woken when the number has come, and now and then before.
struct Wait {
    semaphore: TimelineSemaphore,
    value: u32,
    waker: Waker,
}

/// A seat in the queue, kept until its number comes or its owner leaves.
struct PolledWait {
    poller: &'static DevicePoller,
    key: Option<DefaultKey>,
}

fn poller() -> &'static DevicePoller {
    static POLLER: OnceLock<DevicePoller> = OnceLock::new();
    POLLER.get_or_init(|| {
        let started = start_thread("nexar-device-poll", || POLLER.wait().keep());
        if let Err(error) = &started {
            debug!("{error}; who waits for a device looks himself");
        }
        DevicePoller { queue: Mutex::default(), somebody: Condvar::new(), is_kept: started.is_ok() }
    })
}

impl PolledWait {
    fn wait(&mut self, semaphore: TimelineSemaphore, value: u32, context: &Context<'_>) {
        if !self.poller.is_kept {
            context.waker().wake_by_ref();
            return;
        }
        let mut queue = self.poller.queue();
        if let Some(wait) = self.key.and_then(|key| queue.waits.get_mut(key)) {
            if !wait.waker.will_wake(context.waker()) {
                let old = std::mem::replace(&mut wait.waker, context.waker().clone());
                drop(queue);
                // What it belonged to may be somebody who waits here.
                drop(old);
            }
            return;
        }
        let is_first = queue.waits.is_empty();
        self.key =
            Some(queue.waits.insert(Wait { semaphore, value, waker: context.waker().clone() }));
        queue.begun += 1;
        drop(queue);
        if is_first {
            self.poller.somebody.notify_one();
        }
    }
}

impl Drop for PolledWait {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let left = self.poller.queue().waits.remove(key);
            // Without the lock, as above.
            drop(left);
        }
    }
}

impl DevicePoller {
    fn queue(&self) -> MutexGuard<'_, WaiterQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of the thread `nexar-device-poll`.
    fn keep(&self) {
        // Else a nap is longer than it is meant to be. If that cannot be had, it is.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        let spin = if cores() > 1 { SPIN } else { Duration::ZERO };
        let mut begun = 0;
        let mut quiet_since = Instant::now();
        let mut asked = quiet_since;
        let mut woken = Vec::new();
        loop {
            let mut queue = self.queue();
            while queue.waits.is_empty() {
                queue = self.somebody.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let now = Instant::now();
            let ask = now - asked >= ASK;
            if ask {
                asked = now;
            }
            queue.take_those_to_wake(ask, &mut woken);
            if queue.begun != begun {
                begun = queue.begun;
                quiet_since = now;
            }
            drop(queue);
            woken.drain(..).for_each(Waker::wake);
            match now - quiet_since {
                quiet if quiet < spin => std::hint::spin_loop(),
                quiet if quiet < YIELD => yield_now(),
                quiet => sleep((quiet / NAP_PART).clamp(SHORTEST_NAP, LONGEST_NAP)),
            }
        }
    }
}

impl WaiterQueue {
    /// Those whose number has come, who leave, or all.
    fn take_those_to_wake(&mut self, all: bool, woken: &mut Vec<Waker>) {
        self.waits.retain(|_, wait| {
            let has_reached = wait.semaphore.has_reached(wait.value);
            if has_reached {
                woken.push(std::mem::replace(&mut wait.waker, Waker::noop().clone()));
            } else if all {
                woken.push(wait.waker.clone());
            }
            !has_reached
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::parker::block_on;

    fn awaited<T>(future: impl Future<Output = T>) -> T {
        block_on(future, Instant::now() + Duration::from_secs(60)).expect("somebody wakes it")
    }

    #[test]
    fn who_waits_is_woken_when_the_number_has_come() {
        for naps in [0, 1, 200] {
            let semaphore = TimelineSemaphore::of_test(u32::MAX);
            let writer = std::thread::spawn(move || {
                (0..naps).for_each(|_| sleep(SHORTEST_NAP));
                semaphore.advance(2);
            });
            assert!(awaited(reach(semaphore, 1, || false)));
            writer.join().unwrap();
        }
    }

    #[test]
    fn a_number_that_has_come_is_not_waited_for_even_if_all_is_over() {
        let semaphore = TimelineSemaphore::of_test(5);
        let mut nobody = Context::from_waker(Waker::noop());
        let mut coming = std::pin::pin!(reach(semaphore, 5, || true));
        assert_eq!(coming.as_mut().poll(&mut nobody), Poll::Ready(true));
    }

    #[test]
    fn a_wait_that_nobody_needs_ends() {
        let is_over = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicUsize::new(0));
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&asked));
        let waiter = std::thread::spawn(move || {
            awaited(reach(TimelineSemaphore::of_test(0), 1, move || {
                count.fetch_add(1, Ordering::Relaxed);
                over.load(Ordering::Relaxed)
            }))
        });
        while asked.load(Ordering::Relaxed) < 5 {
            yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(!waiter.join().unwrap());
    }

    /// The answer of one is the question of the next, so that all wait at once and none is woken in
    /// vain.
    #[test]
    fn many_wait_at_once_and_each_wakes_the_next() {
        const WAITERS: usize = 8;
        const ROUNDS: u32 = 200;
        let semaphores: Vec<_> =
            (0..WAITERS).map(|_| TimelineSemaphore::of_test(u32::MAX - 50)).collect();
        let start = u32::MAX - 50;
        let one = |index: usize| {
            let (mine, next) = (semaphores[index], semaphores[(index + 1) % WAITERS]);
            async move {
                for round in 1..=ROUNDS {
                    assert!(reach(mine, start.wrapping_add(round), || false).await);
                    let passed_on = round + u32::from(index + 1 == WAITERS);
                    next.advance(start.wrapping_add(passed_on));
                }
            }
        };
        semaphores[0].advance(start.wrapping_add(1));
        // Half on a thread each, half together on one.
        std::thread::scope(|scope| {
            for index in 0..WAITERS / 2 {
                let waiter = one(index);
                scope.spawn(move || awaited(waiter));
            }
            awaited(futures_util::future::join_all((WAITERS / 2..WAITERS).map(one)));
        });
    }

    #[test]
    fn whoever_stops_waiting_leaves_nothing_behind() {
        let semaphore = TimelineSemaphore::of_test(0);
        let waker = Waker::from(Arc::new(Counter::default()));
        let mut coming = Box::pin(reach(semaphore, 1, || false));
        assert!(coming.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let is_watched =
            || poller().queue().waits.values().any(|wait| wait.waker.will_wake(&waker));
        assert!(is_watched());
        drop(coming);
        assert!(!is_watched());
    }

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl std::task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_who_polled_is_woken() {
        let semaphore = TimelineSemaphore::of_test(0);
        let counters = [Arc::new(Counter::default()), Arc::new(Counter::default())];
        let mut coming = Box::pin(reach(semaphore, 1, || false));
        for counter in &counters {
            let waker = Waker::from(Arc::clone(counter));
            assert!(coming.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let woken_before = counters[0].0.load(Ordering::Relaxed);
        semaphore.advance(1);
        let deadline = Instant::now() + Duration::from_secs(60);
        while counters[1].0.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "nobody was woken");
            yield_now();
        }
        assert_eq!(counters[0].0.load(Ordering::Relaxed), woken_before);
    }
}
