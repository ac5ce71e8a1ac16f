//! How a process wakes another one that sleeps until shared memory changes.
//!
//! Each process has one doorbell for all its threads. A thread polls what it waits for, sleeps if
//! the poll is pending, and polls again whenever the doorbell was rung. Leaves to `dekker` the
//! handshake by which no wake-up is lost. A peer that breaks the handshake costs at most
//! `LONGEST_SLEEP`.

use std::cell::Cell;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::io::Result;
use rustix::thread::{MembarrierCommand, membarrier};

use super::dekker::{self, Doorbell};
use crate::kept::{Kept, Registry};
use crate::memory::{SharedMapping, Writers};

const BYTES: usize = 4096;
/// Counts the rings: the futex on which threads sleep.
const RUNG: usize = 0;
/// Threads of the process that sleep. On a cache line of its own, which seldom changes.
const SLEEPERS: usize = 64;
/// Whether membarrier(2) reaches the process.
const REACHED: usize = 68;

/// A thread sleeps no longer without polling.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// How long a thread polls and yields before it sleeps. That is longer than ranks that share a
/// processor keep each other waiting. Sleeping is expensive: a membarrier interrupts all
/// processors, and a wake-up takes tens of microseconds.
const AWAKE: Duration = Duration::from_millis(2);
/// Polls before the first yield.
const SPINS: u32 = 200;

pub struct ProcessDoorbell(SharedMapping);

impl ProcessDoorbell {
    /// The doorbell of a peer's process, mapped once for all communicators of this process.
    pub fn of_peer(descriptor: BorrowedFd<'_>) -> Result<Arc<Self>> {
        static KNOWN: Registry<(u64, u64), ProcessDoorbell> = Registry::empty();
        let stat = rustix::fs::fstat(descriptor)?;
        let map = || SharedMapping::of_peer(descriptor, BYTES, Writers::All).map(Self);
        KNOWN.get_or_try((stat.st_dev, stat.st_ino), map)
    }
}

impl Doorbell for ProcessDoorbell {
    fn rung(&self) -> &AtomicU32 {
        self.0.atomic_u32(RUNG)
    }

    #[inline(always)]
    fn sleepers(&self) -> &AtomicU32 {
        self.0.atomic_u32(SLEEPERS)
    }

    fn needs_fence(&self) -> bool {
        self.0.atomic_u32(REACHED).load(Ordering::Relaxed) == 0
    }
}

/// The doorbell of this process, and its descriptor for peers.
pub fn own() -> Result<(&'static ProcessDoorbell, BorrowedFd<'static>)> {
    static OWN: Kept<(ProcessDoorbell, OwnedFd)> = Kept::empty();
    let (doorbell, descriptor) = OWN.get_or_try(|| {
        let (memory, descriptor) = SharedMapping::create("nexar-doorbell", BYTES, Writers::All)?;
        let reached = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok();
        memory.atomic_u32(REACHED).store(reached.into(), Ordering::Relaxed);
        Ok((ProcessDoorbell(memory), descriptor))
    })?;
    Ok((doorbell, descriptor.as_fd()))
}

thread_local! {
    /// Wakers of the futures, polled by this thread, that wait for shared memory.
    static POLLED: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
}

/// Has a future that waits for shared memory polled again at the next poll of this thread: nothing
/// else wakes it.
pub fn poll_again(context: &Context<'_>) {
    let registered = POLLED.try_with(|wakers| {
        let mut polled = wakers.take();
        polled.push(context.waker().clone());
        wakers.set(polled);
    });
    // A thread that is ending has no list any more. It does not sleep.
    if registered.is_err() {
        context.waker().wake_by_ref();
    }
}

fn wake_polled() {
    let _ = POLLED.try_with(|wakers| {
        let mut polled = wakers.take();
        polled.drain(..).for_each(Waker::wake);
        wakers.set(polled);
    });
}

/// Polls a future, and every future in it that waits for shared memory.
fn poll<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    wake_polled();
    future.poll(context)
}

/// Polls a future that may wait for shared memory until it completes or its deadline passes.
/// `crowded`: ranks outnumber processors, so a thread that waits yields at once.
pub fn block_on<F: Future>(future: F, deadline: Instant, crowded: bool) -> Option<F::Output> {
    let mut future = pin!(future);
    let spins = if crowded { 1 } else { SPINS };
    let mut ringer = None;
    loop {
        // A thread that polls again anyway needs no waker.
        let mut awake = Context::from_waker(Waker::noop());
        for _ in 0..spins {
            if let Poll::Ready(output) = poll(future.as_mut(), &mut awake) {
                return Some(output);
            }
            std::hint::spin_loop();
        }
        let start = Instant::now();
        while start.elapsed() < AWAKE {
            std::thread::yield_now();
            if let Poll::Ready(output) = poll(future.as_mut(), &mut awake) {
                return Some(output);
            }
        }
        if Instant::now() >= deadline {
            return None;
        }
        let ringer = ringer.get_or_insert_with(Ringer::new);
        if let Poll::Ready(output) = ringer.sleep(future.as_mut(), deadline) {
            return Some(output);
        }
    }
}

/// As `block_on`, but sleeps after each poll.
pub fn block_on_asleep<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    let (mut future, ringer) = (pin!(future), Ringer::new());
    loop {
        if let Poll::Ready(output) = ringer.sleep(future.as_mut(), deadline) {
            return Some(output);
        }
        if Instant::now() >= deadline {
            return None;
        }
    }
}

/// The waker of a sleeping thread for everything but shared memory.
struct Ringer {
    doorbell: &'static ProcessDoorbell,
    woken: AtomicBool,
}

impl Ringer {
    fn new() -> Arc<Self> {
        let doorbell = own()
            .map(|(doorbell, _)| doorbell)
            .expect("a process that shares memory has a doorbell");
        Arc::new(Self { doorbell, woken: AtomicBool::new(false) })
    }

    /// Polls the future a last time, and sleeps if it is not ready.
    fn sleep<F: Future>(self: &Arc<Self>, future: Pin<&mut F>, until: Instant) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        let mut polled = Poll::Pending;
        dekker::look_and_sleep(self.doorbell, || {
            // This wakes the thread's own waker too. Only wakes after the next line count.
            wake_polled();
            self.woken.store(false, Ordering::SeqCst);
            polled = future.poll(&mut Context::from_waker(&waker));
            if polled.is_ready() || self.woken.load(Ordering::SeqCst) {
                return None;
            }
            let left = until.checked_duration_since(Instant::now())?;
            Some(left.min(LONGEST_SLEEP))
        });
        polled
    }
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        dekker::ring(std::iter::once(self.doorbell), true);
    }
}
