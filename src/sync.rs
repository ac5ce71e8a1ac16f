//! Atomics, locks, threads, time and system calls of the files that `tests/model` checks. The
//! model replaces this module by one of the model checker's types.
//!
//! Leaves their use to those files. Invariant: no logic; each name is one of std's or one system
//! call.

use std::time::Duration;

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
pub use std::thread::{Thread, current, park_timeout, sleep, yield_now};
pub use std::time::Instant;

use rustix::thread::{MembarrierCommand, futex};

pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Sleeps until `futex_wake_all`, or for `limit`, unless the word has changed from `seen`.
/// Processes may share the word. May return early for any reason.
pub fn futex_wait(word: &AtomicU32, seen: u32, limit: Duration) {
    let limit = rustix::time::Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
}

/// Wakes all threads of all processes that sleep on the word.
pub fn futex_wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Executes a full memory barrier on every processor that runs a thread of a process registered for
/// it, this one included. False if the kernel refuses; then no barrier was executed.
pub fn membarrier() -> bool {
    rustix::thread::membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}
