//! The device poller: tasks of this process wait until a device has written a value.
//!
//! A device cannot wake a thread, so one thread of the process polls all semaphores that tasks wait
//! for. It spins briefly after each event, because a device is mostly fast, then yields, then
//! sleeps; while no task waits it sleeps on a condition variable. Leaves to others what the tasks
//! wait for. Invariants:
//! - the poller makes no CUDA call;
//! - it reads a semaphore only while a task waits for it, so its memory may be freed afterwards;
//! - it holds no lock while it wakes a task;
//! - a task evaluates its own `is_cancelled`, once in a millisecond: no other thread calls or drops
//!   a task's closure.

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

/// How long the poller spins after an event, and until when it then yields.
const SPIN: Duration = Duration::from_micros(10);
const YIELD: Duration = Duration::from_micros(60);
/// A sleep takes this fraction of the time since the last event: a task that has waited long can
/// wait a little longer. On a virtual processor each sleep costs 10 us, so a longest sleep of 50 us
/// used a quarter of one.
const SLEEP_FRACTION: u32 = 16;
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_micros(200);
/// How often every waiting task is woken to evaluate its `is_cancelled`.
const RECHECK: Duration = Duration::from_millis(1);

/// Waits until the semaphore has reached the value: true; or until `is_cancelled`: false. May be
/// dropped at any time.
pub async fn reach(
    semaphore: TimelineSemaphore,
    value: u32,
    is_cancelled: impl Fn() -> bool + Send + Sync + 'static,
) -> bool {
    let mut registration = PolledRegistration { poller: poller(), key: None };
    poll_fn(|context| {
        if semaphore.has_reached(value) {
            return Poll::Ready(true);
        }
        if is_cancelled() {
            return Poll::Ready(false);
        }
        registration.register(semaphore, value, context);
        Poll::Pending
    })
    .await
}

struct DevicePoller {
    queue: Mutex<WaiterQueue>,
    /// Notified when the queue is no longer empty.
    not_empty: Condvar,
    /// Whether the poller's thread could be started. If not, waiting tasks poll by themselves.
    has_thread: bool,
}

#[derive(Default)]
struct WaiterQueue {
    waits: SlotMap<DefaultKey, Wait>,
    /// Counts the waits that were ever registered.
    registered: u64,
}

/// A task to wake when the semaphore has reached the value, and at each recheck.
struct Wait {
    semaphore: TimelineSemaphore,
    value: u32,
    waker: Waker,
}

/// A task's entry in the queue, until the value is reached or the task stops waiting.
struct PolledRegistration {
    poller: &'static DevicePoller,
    key: Option<DefaultKey>,
}

fn poller() -> &'static DevicePoller {
    static POLLER: OnceLock<DevicePoller> = OnceLock::new();
    POLLER.get_or_init(|| {
        let started = start_thread("nexar-device-poll", || POLLER.wait().run());
        if let Err(error) = &started {
            debug!("{error}; each thread that waits for a device polls by itself");
        }
        let has_thread = started.is_ok();
        DevicePoller { queue: Mutex::default(), not_empty: Condvar::new(), has_thread }
    })
}

impl PolledRegistration {
    fn register(&mut self, semaphore: TimelineSemaphore, value: u32, context: &Context<'_>) {
        if !self.poller.has_thread {
            context.waker().wake_by_ref();
            return;
        }
        let mut queue = self.poller.queue();
        if let Some(wait) = self.key.and_then(|key| queue.waits.get_mut(key)) {
            if !wait.waker.will_wake(context.waker()) {
                let old = std::mem::replace(&mut wait.waker, context.waker().clone());
                drop(queue);
                // Without the lock: the drop may end a task that has an entry in the queue.
                drop(old);
            }
            return;
        }
        let is_first = queue.waits.is_empty();
        self.key =
            Some(queue.waits.insert(Wait { semaphore, value, waker: context.waker().clone() }));
        queue.registered += 1;
        drop(queue);
        if is_first {
            self.poller.not_empty.notify_one();
        }
    }
}

impl Drop for PolledRegistration {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let removed = self.poller.queue().waits.remove(key);
            // Without the lock, as above.
            drop(removed);
        }
    }
}

impl DevicePoller {
    fn queue(&self) -> MutexGuard<'_, WaiterQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of the thread `nexar-device-poll`.
    fn run(&self) {
        // Without a small slack, sleeps take longer than requested. A failure is harmless.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        let spin = if cores() > 1 { SPIN } else { Duration::ZERO };
        let mut registered = 0;
        let mut quiet_since = Instant::now();
        let mut rechecked = quiet_since;
        let mut wakers = Vec::new();
        loop {
            let mut queue = self.queue();
            while queue.waits.is_empty() {
                queue = self.not_empty.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let now = Instant::now();
            let recheck = now - rechecked >= RECHECK;
            if recheck {
                rechecked = now;
            }
            queue.take_wakers(recheck, &mut wakers);
            if queue.registered != registered {
                registered = queue.registered;
                quiet_since = now;
            }
            drop(queue);
            wakers.drain(..).for_each(Waker::wake);
            match now - quiet_since {
                quiet if quiet < spin => std::hint::spin_loop(),
                quiet if quiet < YIELD => yield_now(),
                quiet => sleep((quiet / SLEEP_FRACTION).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)),
            }
        }
    }
}

impl WaiterQueue {
    /// Removes the waits whose value is reached, and collects their wakers; with `all`, collects
    /// the wakers of all other waits too.
    fn take_wakers(&mut self, all: bool, wakers: &mut Vec<Waker>) {
        self.waits.retain(|_, wait| {
            let has_reached = wait.semaphore.has_reached(wait.value);
            if has_reached {
                wakers.push(std::mem::replace(&mut wait.waker, Waker::noop().clone()));
            } else if all {
                wakers.push(wait.waker.clone());
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

    fn complete<T>(future: impl Future<Output = T>) -> T {
        block_on(future, Instant::now() + Duration::from_secs(60)).expect("the wait completes")
    }

    #[test]
    fn a_task_is_woken_when_its_value_is_reached() {
        for sleeps in [0, 1, 200] {
            let semaphore = TimelineSemaphore::of_test(u32::MAX);
            let writer = std::thread::spawn(move || {
                (0..sleeps).for_each(|_| sleep(SHORTEST_SLEEP));
                semaphore.advance(2);
            });
            assert!(complete(reach(semaphore, 1, || false)));
            writer.join().unwrap();
        }
    }

    #[test]
    fn a_wait_for_a_value_that_is_reached_completes_even_if_it_is_cancelled() {
        let semaphore = TimelineSemaphore::of_test(5);
        let mut context = Context::from_waker(Waker::noop());
        let mut wait = std::pin::pin!(reach(semaphore, 5, || true));
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(true));
    }

    #[test]
    fn a_cancelled_wait_ends() {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let checks = Arc::new(AtomicUsize::new(0));
        let (cancelled, count) = (Arc::clone(&is_cancelled), Arc::clone(&checks));
        let waiter = std::thread::spawn(move || {
            complete(reach(TimelineSemaphore::of_test(0), 1, move || {
                count.fetch_add(1, Ordering::Relaxed);
                cancelled.load(Ordering::Relaxed)
            }))
        });
        while checks.load(Ordering::Relaxed) < 5 {
            yield_now();
        }
        is_cancelled.store(true, Ordering::Relaxed);
        assert!(!waiter.join().unwrap());
    }

    /// Each task advances the semaphore of the next, so all wait at once and a lost wake-up stops
    /// all.
    #[test]
    fn many_tasks_wait_at_once_and_each_wakes_the_next() {
        const WAITERS: usize = 8;
        const ROUNDS: u32 = 200;
        let semaphores: Vec<_> =
            (0..WAITERS).map(|_| TimelineSemaphore::of_test(u32::MAX - 50)).collect();
        let start = u32::MAX - 50;
        let one = |index: usize| {
            let (own, next) = (semaphores[index], semaphores[(index + 1) % WAITERS]);
            async move {
                for round in 1..=ROUNDS {
                    assert!(reach(own, start.wrapping_add(round), || false).await);
                    let value = round + u32::from(index + 1 == WAITERS);
                    next.advance(start.wrapping_add(value));
                }
            }
        };
        semaphores[0].advance(start.wrapping_add(1));
        // Half of the tasks have a thread each, the other half share one.
        std::thread::scope(|scope| {
            for index in 0..WAITERS / 2 {
                let waiter = one(index);
                scope.spawn(move || complete(waiter));
            }
            complete(futures_util::future::join_all((WAITERS / 2..WAITERS).map(one)));
        });
    }

    #[test]
    fn a_dropped_wait_leaves_no_entry() {
        let semaphore = TimelineSemaphore::of_test(0);
        let waker = Waker::from(Arc::new(Counter::default()));
        let mut wait = Box::pin(reach(semaphore, 1, || false));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let is_registered =
            || poller().queue().waits.values().any(|wait| wait.waker.will_wake(&waker));
        assert!(is_registered());
        drop(wait);
        assert!(!is_registered());
    }

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl std::task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_waker_of_the_last_poll_is_woken() {
        let semaphore = TimelineSemaphore::of_test(0);
        let counters = [Arc::new(Counter::default()), Arc::new(Counter::default())];
        let mut wait = Box::pin(reach(semaphore, 1, || false));
        for counter in &counters {
            let waker = Waker::from(Arc::clone(counter));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let woken_before = counters[0].0.load(Ordering::Relaxed);
        semaphore.advance(1);
        let deadline = Instant::now() + Duration::from_secs(60);
        while counters[1].0.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "the last waker was not woken");
            yield_now();
        }
        assert_eq!(counters[0].0.load(Ordering::Relaxed), woken_before);
    }
}
