//! Replaces `src/sync.rs`: loom's atomics, locks and threads, and models of what loom lacks (time,
//! futexes and membarrier(2)).
//!
//! Leaves to the scenarios what they check. Invariant: each replacement guarantees at most what the
//! original does, so what the model proves of a file holds for it in the library.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::Sub;
use std::sync::Arc;
use std::time::Duration;

use loom::lazy_static::Lazy;

pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub use loom::sync::{Condvar, Mutex, MutexGuard};
pub use loom::thread::{Thread, current};
pub use std::sync::PoisonError;

/// Ignores the timeout, so that a lost wake-up is a deadlock, which loom reports.
pub fn park_timeout(_: Duration) {
    loom::thread::park();
}

pub fn cores() -> usize {
    1
}

loom::thread_local! {
    static PAUSES: Cell<u32> = Cell::new(0);
}

/// loom resumes a thread that yields only when all others are blocked. The first calls of a thread
/// therefore do not yield: so a polling thread also observes the states in between.
pub fn yield_now() {
    const WITHOUT_YIELD: u32 = 2;
    if CLOCK.is_running.load(Ordering::Relaxed) {
        CLOCK.milliseconds.fetch_add(1, Ordering::Relaxed);
    }
    let pauses = PAUSES.with(|pauses| pauses.replace(pauses.get() + 1));
    if pauses >= WITHOUT_YIELD {
        loom::thread::yield_now();
    }
}

pub fn sleep(_: Duration) {
    yield_now();
}

/// A clock that stands still until `let_time_pass`, so that no wait ends by elapsed time alone.
#[derive(Clone, Copy)]
pub struct Instant(Duration);

#[derive(Default)]
struct Clock {
    is_running: AtomicBool,
    milliseconds: std::sync::atomic::AtomicU64,
}

loom::lazy_static! {
    static ref CLOCK: Clock = Clock::default();
}

impl Instant {
    pub fn now() -> Self {
        Self(Duration::from_millis(CLOCK.milliseconds.load(Ordering::Relaxed)))
    }
}

/// From now on each `yield_now` and each `sleep` advances the clock by one millisecond.
pub fn let_time_pass() {
    CLOCK.is_running.store(true, Ordering::Relaxed);
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}

/// A static that loom creates anew for each execution of the model.
pub struct OnceLock<T: 'static>(Lazy<Once<T>>);

struct Once<T> {
    value: std::sync::OnceLock<T>,
    initialising: Mutex<()>,
    initialised: Condvar,
}

impl<T> Once<T> {
    fn new() -> Self {
        let value = std::sync::OnceLock::new();
        Self { value, initialising: Mutex::default(), initialised: Condvar::new() }
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        // A failed model is dropped outside of loom, where loom's types must not be used.
        if std::thread::panicking() {
            std::mem::forget(self.value.take());
        }
    }
}

impl<T> OnceLock<T> {
    #[expect(clippy::new_without_default, reason = "a const fn, as std's is")]
    pub const fn new() -> Self {
        Self(Lazy { init: Once::new, _p: PhantomData })
    }

    pub fn get_or_init(&'static self, initialise: impl FnOnce() -> T) -> &'static T {
        let once = self.0.get();
        let _initialising = once.initialising.lock().unwrap();
        let value = once.value.get_or_init(initialise);
        once.initialised.notify_all();
        value
    }

    pub fn wait(&'static self) -> &'static T {
        let once = self.0.get();
        let mut initialising = once.initialising.lock().unwrap();
        loop {
            match once.value.get() {
                Some(value) => return value,
                None => initialising = once.initialised.wait(initialising).unwrap(),
            }
        }
    }
}

/// A futex word, which processes share. An interrupt of membarrier(2) may occur before each access.
pub struct AtomicU32 {
    value: loom::sync::atomic::AtomicU32,
    /// The kernel's lock and wait queue of this futex.
    sleeping: Mutex<()>,
    woken: Condvar,
}

impl AtomicU32 {
    pub fn new(value: u32) -> Self {
        let value = loom::sync::atomic::AtomicU32::new(value);
        Self { value, sleeping: Mutex::default(), woken: Condvar::new() }
    }

    pub fn load(&self, order: Ordering) -> u32 {
        may_be_interrupted();
        self.value.load(order)
    }

    pub fn store(&self, value: u32, order: Ordering) {
        may_be_interrupted();
        self.value.store(value, order);
    }

    pub fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        may_be_interrupted();
        self.value.fetch_add(value, order)
    }

    pub fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        // Called from the drop of a sleeper after the model has failed.
        if std::thread::panicking() {
            return 0;
        }
        may_be_interrupted();
        self.value.fetch_sub(value, order)
    }
}

/// FUTEX_WAIT: compares the word and enqueues the caller under one lock, which the waker takes
/// after its change of the word. Ignores the timeout, like `park_timeout`.
pub fn futex_wait(word: &AtomicU32, seen: u32, _: Duration) {
    in_the_kernel(|| {
        let sleeping = word.sleeping.lock().unwrap();
        if word.value.load(Ordering::Relaxed) == seen {
            drop(word.woken.wait(sleeping));
        }
    });
}

pub fn futex_wake_all(word: &AtomicU32) {
    let _sleeping = word.sleeping.lock().unwrap();
    word.woken.notify_all();
}

/// Does nothing: loom explores all that the language's memory model allows, compiler reordering
/// included.
pub fn compiler_fence(_: Ordering) {}

/// A processor that runs a thread which membarrier(2) reaches.
///
/// The call guarantees that each such thread executes a full barrier at some point between its
/// begin and its end. So the caller posts a request, and the thread serves it before any one of its
/// next accesses. Both take the lock, so afterwards each sees all that the other did before. A full
/// barrier in an interrupt gives the same, and loom's locks give no more.
#[derive(Default)]
struct Processor {
    interrupts: Mutex<Interrupts>,
    served: Condvar,
}

#[derive(Default)]
struct Interrupts {
    requested: u32,
    served: u32,
    /// The thread is in the kernel or has ended; a barrier precedes both.
    is_away: bool,
}

loom::lazy_static! {
    static ref REACHED: std::sync::Mutex<Vec<Arc<Processor>>> = Default::default();
}

loom::thread_local! {
    static PROCESSOR: RefCell<Option<Arc<Processor>>> = RefCell::new(None);
}

fn own_processor() -> Option<Arc<Processor>> {
    PROCESSOR.with(|own| own.borrow().clone())
}

/// Wraps the body of a thread so that membarrier(2) reaches the thread from this call on.
pub fn reached_by_membarrier(body: impl FnOnce()) -> impl FnOnce() {
    let processor = Arc::new(Processor::default());
    REACHED.lock().unwrap().push(Arc::clone(&processor));
    move || {
        PROCESSOR.with(|own| *own.borrow_mut() = Some(Arc::clone(&processor)));
        body();
        processor.leave();
    }
}

fn may_be_interrupted() {
    if let Some(own) = own_processor() {
        let mut interrupts = own.interrupts.lock().unwrap();
        own.serve(&mut interrupts);
    }
}

fn in_the_kernel(call: impl FnOnce()) {
    let own = own_processor();
    if let Some(own) = &own {
        own.leave();
    }
    call();
    if let Some(own) = &own {
        own.interrupts.lock().unwrap().is_away = false;
    }
}

impl Processor {
    fn serve(&self, interrupts: &mut Interrupts) {
        if interrupts.served != interrupts.requested {
            interrupts.served = interrupts.requested;
            self.served.notify_all();
        }
    }

    fn leave(&self) {
        let mut interrupts = self.interrupts.lock().unwrap();
        interrupts.is_away = true;
        self.serve(&mut interrupts);
    }

    /// Posts a request and returns its number. `None` if there is no thread to interrupt.
    fn request(&self) -> Option<u32> {
        let mut interrupts = self.interrupts.lock().unwrap();
        if interrupts.is_away {
            return None;
        }
        interrupts.requested += 1;
        Some(interrupts.requested)
    }

    fn wait_served(&self, request: u32) {
        let mut interrupts = self.interrupts.lock().unwrap();
        while interrupts.served < request {
            interrupts = self.served.wait(interrupts).unwrap();
        }
    }
}

/// Executes a full barrier on the calling thread and on every thread that the call reaches.
pub fn membarrier() -> bool {
    fence(Ordering::SeqCst);
    in_the_kernel(|| {
        let reached = REACHED.lock().unwrap().clone();
        // `in_the_kernel` has marked the caller's own processor as away.
        let requests: Vec<_> = reached.iter().map(|processor| processor.request()).collect();
        for (processor, request) in reached.iter().zip(requests) {
            request.into_iter().for_each(|request| processor.wait_served(request));
        }
    });
    fence(Ordering::SeqCst);
    true
}
