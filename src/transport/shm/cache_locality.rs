//! Whether the ranks of a host run on processors that share a cache: measured by the time to read a
//! cache line that another rank has written last.
//!
//! Processors that share a cache transfer a line in 40 to 80 ns, others in 120 to 200 ns. The
//! latter exchange freshly written data five times as slowly as memory does, so large data is
//! better written past the caches, to memory. No interface of the system tells which is the case,
//! because virtual processors migrate. Leaves to `exchange` which data is large.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

/// The least time, including that of the clock, to read a line from a processor that shares no
/// cache.
const FAR: Duration = Duration::from_nanos(90);
/// A longer measurement was interrupted.
const INTERRUPTED: Duration = Duration::from_nanos(800);
/// The weight of a measurement in the moving average is 1 / `MEMORY`.
const MEMORY: u32 = 4;

/// The moving average of the times, in nanoseconds.
#[derive(Default)]
pub(super) struct CacheLocality(AtomicU32);

impl CacheLocality {
    /// Reads lines that other ranks have written last. The longest time counts: a rank on this
    /// rank's own processor says nothing.
    pub fn measure(
        &self,
        lines: impl Iterator<Item = (usize, impl FnOnce() -> u64)>,
    ) -> impl Iterator<Item = (u64, usize)> {
        let mut longest = Duration::ZERO;
        let read: SmallVec<[_; 8]> = lines
            .map(|(index, read)| {
                let start = Instant::now();
                let value = read();
                longest = longest.max(start.elapsed());
                (value, index)
            })
            .collect();
        if longest < INTERRUPTED {
            let mean = self.0.load(Ordering::Relaxed);
            let mean = mean - mean / MEMORY + longest.as_nanos() as u32 / MEMORY;
            self.0.store(mean, Ordering::Relaxed);
        }
        read.into_iter()
    }

    pub fn is_far(&self) -> bool {
        self.0.load(Ordering::Relaxed) > FAR.as_nanos() as u32
    }
}
