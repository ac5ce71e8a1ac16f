//! How a process that sleeps is woken by another that has written to memory they share.
//!
//! Each process has one bell for all its threads. A thread looks for what it waits for, sleeps if that
//! is not there, and looks again whenever the bell was rung. Leaves to `dekker` the handshake by which no
//! wake-up is lost. A peer that breaks it costs at most `LONGEST_SLEEP`.

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
use crate::memory::{Memory, Writers};

const BYTES: usize = 4096;
/// Counts how often it was rung; what sleepers wait on.
const RUNG: usize = 0;
/// How many threads of the process sleep. On a line of its own, which seldom changes.
const SLEEPERS: usize = 64;
/// Whether the system's barrier reaches the process.
const REACHED: usize = 68;

/// Nobody sleeps longer without a look.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// How long a thread looks before it sleeps, letting others have the processor. That is longer than ranks that
/// share it keep each other waiting, and much less than anybody notices: a sleeper costs an interruption of
/// all processors when he lies down, and tens of microseconds until he is up.
const AWAKE: Duration = Duration::from_millis(2);
/// As long as this, without letting others have the processor.
const LOOKS: u32 = 200;

pub struct Bell(Memory);

impl Bell {
    /// The bell of a peer's process, mapped once for all communicators of this process.
    pub fn of_peer(descriptor: BorrowedFd<'_>) -> Result<Arc<Self>> {
        static KNOWN: Registry<(u64, u64), Bell> = Registry::empty();
        let stat = rustix::fs::fstat(descriptor)?;
        let map = || Memory::of_peer(descriptor, BYTES, Writers::Everybody).map(Self);
        KNOWN.get_or_try((stat.st_dev, stat.st_ino), map)
    }
}

impl Doorbell for Bell {
    fn rung(&self) -> &AtomicU32 {
        self.0.word(RUNG)
    }

    #[inline(always)]
    fn sleepers(&self) -> &AtomicU32 {
        self.0.word(SLEEPERS)
    }

    fn needs_fence(&self) -> bool {
        self.0.word(REACHED).load(Ordering::Relaxed) == 0
    }
}

/// The bell of this process, and the descriptor that peers ring it by.
pub fn own() -> Result<(&'static Bell, BorrowedFd<'static>)> {
    static OWN: Kept<(Bell, OwnedFd)> = Kept::unmade();
    let (bell, descriptor) = OWN.get_or_try(|| {
        let (memory, descriptor) = Memory::create("nexar-bell", BYTES, Writers::Everybody)?;
        let reached = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok();
        memory.word(REACHED).store(reached.into(), Ordering::Relaxed);
        Ok((Bell(memory), descriptor))
    })?;
    Ok((bell, descriptor.as_fd()))
}

thread_local! {
    /// Who waits for shared memory in what this thread polls.
    static LOOKING: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
}

/// Lets a part of what this thread polls look again at its next poll: nobody else wakes it.
pub fn look_again(context: &Context<'_>) {
    let noted = LOOKING.try_with(|cell| {
        let mut looking = cell.take();
        looking.push(context.waker().clone());
        cell.set(looking);
    });
    // A thread that is ending has no list any more, and does not sleep.
    if noted.is_err() {
        context.waker().wake_by_ref();
    }
}

fn wake_looking() {
    let _ = LOOKING.try_with(|cell| {
        let mut looking = cell.take();
        looking.drain(..).for_each(Waker::wake);
        cell.set(looking);
    });
}

/// Polls a future, with all in it that wait for shared memory.
fn poll<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    wake_looking();
    future.poll(context)
}

/// Polls a future that may wait for shared memory until it ends or its deadline passes. `crowded`: more
/// ranks than processors share this host, so that who waits lets others go on.
pub fn block_on<F: Future>(future: F, deadline: Instant, crowded: bool) -> Option<F::Output> {
    let mut future = pin!(future);
    let looks = if crowded { 1 } else { LOOKS };
    let mut ringer = None;
    loop {
        // Whoever looks again anyway needs no waking.
        let mut awake = Context::from_waker(Waker::noop());
        for _ in 0..looks {
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

/// Wakes a thread of this process for anything but shared memory.
struct Ringer {
    bell: &'static Bell,
    woken: AtomicBool,
}

impl Ringer {
    fn new() -> Arc<Self> {
        let bell = own().map(|(bell, _)| bell).expect("who shares memory has a bell");
        Arc::new(Self { bell, woken: AtomicBool::new(false) })
    }

    /// Polls the future a last time, and sleeps if it is not ready.
    fn sleep<F: Future>(self: &Arc<Self>, future: Pin<&mut F>, until: Instant) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        let mut polled = Poll::Pending;
        dekker::look_and_sleep(self.bell, || {
            // Wakes this thread's own waker too; only wakes after this line count.
            wake_looking();
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
        dekker::ring(std::iter::once(self.bell), true);
    }
}
