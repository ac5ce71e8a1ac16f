//! How far away the processors are that the other ranks run on: measured by what it takes to read a line that
//! another has just written.
//!
//! Processors that share a cache hand each other what they have written in some tens of nanoseconds, others in
//! more than a hundred, line by line: for those it is better to write large data past the caches, to memory. No system
//! tells for sure which is the case: virtual processors wander.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

/// What it takes, the clock's own time included, to read a line of one that shares no cache: at least this.
const FAR: Duration = Duration::from_nanos(90);
/// What takes longer was interrupted.
const INTERRUPTED: Duration = Duration::from_nanos(800);
/// A measurement counts as one of so many.
const MEMORY: u32 = 4;

/// The mean of the latest times, in nanoseconds.
#[derive(Default)]
pub(super) struct Distance(AtomicU32);

impl Distance {
    /// Reads lines that others have written last, and takes the longest time for the distance: a rank on this
    /// rank's own processor tells nothing.
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
