//! Of `src/sync.rs`, as loom has it.

use std::time::Duration;

pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use loom::sync::{Mutex, MutexGuard};
pub use loom::thread::{Thread, current};
pub use std::sync::PoisonError;

/// Without an end: time does not pass in a model.
pub fn park_timeout(_: Duration) {
    loom::thread::park();
}

pub fn cores() -> usize {
    1
}
