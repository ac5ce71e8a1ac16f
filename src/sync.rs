//! Locks and threads of the files that `tests/model` tries, under one name: it puts a model checker's in
//! their place.

pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use std::sync::{Mutex, MutexGuard, PoisonError};
pub use std::thread::{Thread, current, park_timeout};

use std::sync::OnceLock;

pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
