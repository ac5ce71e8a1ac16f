//! When pinned memory may be allocated and freed.
//!
//! A driver may wait for the work of all streams of the process before it allocates or frees memory. A stream
//! inside a call waits for other ranks, and these may be threads of this process that wait for the thread that
//! allocates. Invariant: no memory is allocated or freed while a stream waits for this process, and nothing that
//! waits is put on a stream meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use crate::device::staging::Staging;

/// How often a thread that wants to allocate looks whether streams still wait.
const LOOK: Duration = Duration::from_micros(100);

/// Read-locked by threads that put calls on streams, write-locked by the one that allocates or frees.
static ENQUEUING: RwLock<()> = RwLock::new(());

/// While this is held, calls may be put on streams.
pub(super) fn enqueuing() -> RwLockReadGuard<'static, ()> {
    ENQUEUING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body`, which allocates or frees pinned memory, once no stream waits for this process. `None`: some
/// stream still waits after `patience`, and `body` did not run.
pub(super) fn while_no_stream_waits<T>(patience: Duration, body: impl FnOnce() -> T) -> Option<T> {
    static ALLOCATING: Mutex<()> = Mutex::new(());
    let _alone = ALLOCATING.lock().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + patience;
    loop {
        // Never waits for the lock: a thread that holds it may itself wait for a stream, in the driver.
        let nobody_enqueues = match ENQUEUING.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if nobody_enqueues.is_some() && !live().iter().any(|staging| staging.holds_a_stream()) {
            return Some(body());
        }
        drop(nobody_enqueues);
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// From now on allocations wait for the streams that use this.
pub(super) fn watch(staging: &Arc<Staging>) {
    stagings().push(Arc::downgrade(staging));
}

/// No stream waits for this process any more, which ends: nothing else could interrupt it.
pub(super) fn release_all() {
    live().iter().for_each(|staging| staging.release());
}

fn live() -> Vec<Arc<Staging>> {
    let mut stagings = stagings();
    stagings.retain(|staging| staging.strong_count() > 0);
    stagings.iter().filter_map(Weak::upgrade).collect()
}

fn stagings() -> MutexGuard<'static, Vec<Weak<Staging>>> {
    static STAGINGS: Mutex<Vec<Weak<Staging>>> = Mutex::new(Vec::new());
    STAGINGS.lock().unwrap_or_else(PoisonError::into_inner)
}
