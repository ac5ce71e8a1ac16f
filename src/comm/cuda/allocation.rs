//! Mutual exclusion between streams that wait for this process and allocations of pinned memory.
//!
//! A driver may wait for all streams of the process before it allocates or frees memory. A stream
//! inside a call waits for other ranks, and those may be threads of this process that wait for the
//! thread that allocates. Leaves to `state` and `pinned_pool` what is allocated. Invariants: no
//! memory is allocated or freed while a stream waits for this process; during an allocation nothing
//! that waits is put on a stream; every wait here is bounded.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::device::staging::Staging;

/// How often a thread that wants to allocate checks whether streams still wait.
const POLL: Duration = Duration::from_micros(100);
/// How long a call yields to a thread that allocates or waits to allocate, so that streams become
/// idle. Longer than the patience of any such thread in a call, and than most allocations take.
const YIELD_LIMIT: Duration = Duration::from_millis(250);

/// How long a thread that wants to allocate or free waits.
#[derive(Clone, Copy)]
pub struct Patience {
    /// For streams that are inside calls.
    pub streams: Duration,
    /// For allocations of other threads.
    pub allocations: Duration,
}

impl Patience {
    pub const NONE: Self = Self { streams: Duration::ZERO, allocations: Duration::ZERO };
}

struct Exclusion {
    /// Threads that put calls on streams.
    enqueuing: usize,
    /// Threads that wait to allocate.
    waiting: usize,
    is_allocating: bool,
    /// The memory of all communicators, also of those that have ended.
    stagings: Vec<Weak<Staging>>,
}

static EXCLUSION: Mutex<Exclusion> =
    Mutex::new(Exclusion { enqueuing: 0, waiting: 0, is_allocating: false, stagings: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Exclusion> {
    EXCLUSION.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exclusion {
    fn live(&mut self) -> Vec<Arc<Staging>> {
        self.stagings.retain(|staging| staging.strong_count() > 0);
        self.stagings.iter().filter_map(Weak::upgrade).collect()
    }

    fn may_allocate(&mut self) -> bool {
        let holds_a_stream = |staging: &Arc<Staging>| staging.holds_a_stream();
        self.enqueuing == 0 && !self.is_allocating && !self.live().iter().any(holds_a_stream)
    }
}

/// While this guard lives, calls may be put on streams.
pub struct Enqueuing(());

impl Enqueuing {
    /// `None`: a thread is inside a long allocation, so nothing that waits may be put on a stream
    /// now.
    pub fn begin() -> Option<Self> {
        let is_closed =
            |exclusion: &mut Exclusion| exclusion.waiting > 0 || exclusion.is_allocating;
        let waited = CHANGED.wait_timeout_while(lock(), YIELD_LIMIT, is_closed);
        let (mut exclusion, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if exclusion.is_allocating {
            return None;
        }
        exclusion.enqueuing += 1;
        Some(Self(()))
    }
}

impl Drop for Enqueuing {
    fn drop(&mut self) {
        lock().enqueuing -= 1;
        CHANGED.notify_all();
    }
}

/// Runs `body`, which allocates or frees pinned memory, when no stream waits for this process.
/// `None`: the patience ended before that, and `body` did not run.
pub fn while_no_stream_waits<T>(patience: Patience, body: impl FnOnce() -> T) -> Option<T> {
    /// Ends the allocation, also if `body` panics.
    struct Allocating;
    impl Drop for Allocating {
        fn drop(&mut self) {
            lock().is_allocating = false;
            CHANGED.notify_all();
        }
    }

    let mut exclusion = lock();
    let waits = usize::from(!patience.streams.is_zero());
    let end = Instant::now() + patience.allocations;
    let mut until = Instant::now() + patience.streams;
    exclusion.waiting += waits;
    while !exclusion.may_allocate() && Instant::now() < until {
        if exclusion.is_allocating && Instant::now() < end {
            until = Instant::now() + patience.streams;
        }
        let waited = CHANGED.wait_timeout(exclusion, POLL);
        (exclusion, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
    exclusion.waiting -= waits;
    let may_allocate = exclusion.may_allocate();
    exclusion.is_allocating |= may_allocate;
    drop(exclusion);
    CHANGED.notify_all();
    if !may_allocate {
        return None;
    }
    let _allocating = Allocating;
    Some(body())
}

/// From now on allocations wait for the streams that use this memory.
pub fn watch(staging: &Arc<Staging>) {
    lock().stagings.push(Arc::downgrade(staging));
}

/// Releases every stream that waits for this process, which ends: nothing else could end those
/// waits.
pub fn release_all() {
    let live = lock().live();
    live.iter().for_each(|staging| staging.release());
}
