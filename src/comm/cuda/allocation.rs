//! When pinned memory may be allocated and freed.
//!
//! A driver may wait for the work of all streams of the process before it allocates or frees memory. A
//! stream inside a call waits for other ranks, and these may be threads of this process that wait for
//! the thread that allocates. Invariants: no memory is allocated or freed while a stream waits for this
//! process; meanwhile nothing that waits is put on a stream; no thread waits here without a bound.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::device::staging::Staging;

/// How often a thread that wants to allocate looks whether streams still wait.
const LOOK: Duration = Duration::from_micros(100);
/// How long a call stands back for a thread that allocates or wants to, so that streams become idle. Longer
/// than any thread wants to, and than most allocations take.
const STAND_BACK: Duration = Duration::from_millis(250);

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

struct Gate {
    /// Threads that put calls on streams.
    enqueuing: usize,
    /// Threads that wait until no stream does.
    wanted: usize,
    is_allocating: bool,
    /// The memory of all communicators, and of those that have ended.
    stagings: Vec<Weak<Staging>>,
}

static GATE: Mutex<Gate> =
    Mutex::new(Gate { enqueuing: 0, wanted: 0, is_allocating: false, stagings: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn gate() -> MutexGuard<'static, Gate> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    fn live(&mut self) -> Vec<Arc<Staging>> {
        self.stagings.retain(|staging| staging.strong_count() > 0);
        self.stagings.iter().filter_map(Weak::upgrade).collect()
    }

    fn may_allocate(&mut self) -> bool {
        let holds_a_stream = |staging: &Arc<Staging>| staging.holds_a_stream();
        self.enqueuing == 0 && !self.is_allocating && !self.live().iter().any(holds_a_stream)
    }
}

/// While this lives, calls may be put on streams.
pub struct Enqueuing(());

impl Enqueuing {
    /// `None`: a thread is inside an allocation that takes long, so nothing may wait on a stream now.
    pub fn begin() -> Option<Self> {
        let is_closed = |gate: &mut Gate| gate.wanted > 0 || gate.is_allocating;
        let waited = CHANGED.wait_timeout_while(gate(), STAND_BACK, is_closed);
        let (mut gate, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if gate.is_allocating {
            return None;
        }
        gate.enqueuing += 1;
        Some(Self(()))
    }
}

impl Drop for Enqueuing {
    fn drop(&mut self) {
        gate().enqueuing -= 1;
        CHANGED.notify_all();
    }
}

/// Runs `body`, which allocates or frees pinned memory, once no stream waits for this process. `None`:
/// the patience has ended before, and `body` did not run.
pub fn while_no_stream_waits<T>(patience: Patience, body: impl FnOnce() -> T) -> Option<T> {
    /// The gate opens again also if `body` panics.
    struct Allocating;
    impl Drop for Allocating {
        fn drop(&mut self) {
            gate().is_allocating = false;
            CHANGED.notify_all();
        }
    }

    let mut gate = gate();
    let wants = usize::from(!patience.streams.is_zero());
    let end = Instant::now() + patience.allocations;
    let mut until = Instant::now() + patience.streams;
    gate.wanted += wants;
    while !gate.may_allocate() && Instant::now() < until {
        if gate.is_allocating && Instant::now() < end {
            until = Instant::now() + patience.streams;
        }
        let waited = CHANGED.wait_timeout(gate, LOOK);
        (gate, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
    gate.wanted -= wants;
    let may_allocate = gate.may_allocate();
    gate.is_allocating |= may_allocate;
    drop(gate);
    CHANGED.notify_all();
    if !may_allocate {
        return None;
    }
    let _allocating = Allocating;
    Some(body())
}

/// From now on allocations wait for the streams that use this.
pub fn watch(staging: &Arc<Staging>) {
    gate().stagings.push(Arc::downgrade(staging));
}

/// The process ends: no stream waits for it any more, because nothing else could interrupt the wait.
pub fn release_all() {
    let live = gate().live();
    live.iter().for_each(|staging| staging.release());
}
