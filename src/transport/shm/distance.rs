//! How far away the processors are that the other ranks run on: measured by what it takes to read a line that
//! another has just written.
//!
//! Processors that share a cache hand each other what they have written in some tens of nanoseconds, others in
//! some hundreds, line by line: for those it is better to write large data past the caches, to memory. No system
//! tells for sure which is the case: virtual processors wander.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What it takes, the clock's own time included, to read a line of one that shares no cache: at least this.
const FAR: Duration = Duration::from_nanos(130);
/// What takes longer was interrupted.
const INTERRUPTED: Duration = Duration::from_nanos(800);
/// A measurement counts as one of so many.
const MEMORY: u32 = 4;

/// The mean of the latest times, in nanoseconds.
#[derive(Default)]
pub(super) struct Distance(AtomicU32);

impl Distance {
    /// Reads a line that another has written last, by `read`.
    pub fn measure<T>(&self, read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = read();
        let took = start.elapsed();
        if took < INTERRUPTED {
            let mean = self.0.load(Ordering::Relaxed);
            let mean = mean - mean / MEMORY + took.as_nanos() as u32 / MEMORY;
            self.0.store(mean, Ordering::Relaxed);
        }
        value
    }

    pub fn is_far(&self) -> bool {
        self.0.load(Ordering::Relaxed) > FAR.as_nanos() as u32
    }
}
