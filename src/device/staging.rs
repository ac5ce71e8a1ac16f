//! The staging buffer of a communicator in pinned memory, and the timelines by which the device and
//! this process synchronise.
//!
//! ```text
//! caller's stream    copy in | start = n | wait: done >= n | copy out | ... | retired = last
//! this process                 start >= n: its turn -> work -> done = n
//! ```
//!
//! Each enqueued item gets the next *value* of its timeline. Pieces have one timeline, and items
//! that are staged as a whole another: a message may wait for something that its receiver does only
//! after its pieces. The device writes `start` in the order of values. Items complete in any order;
//! `done` is the largest value up to which all have completed. Leaves to `comm/cuda` what is
//! enqueued. Invariants: this process uses a part of the buffer only between the start and the
//! completion of its value, and the device only outside of that, unless all values were released;
//! `done` never decreases.
#![expect(unsafe_code, reason = "parts of pinned memory are lent as slices")]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Pinned, TimelineSemaphore, reach};
use crate::error::Result;

/// Slots of the ring: the pieces of a call that are in progress at once.
pub const SLOTS: usize = 4;
/// Bytes for items that are staged as a whole.
pub const WHOLE: usize = 16 << 20;

/// The initial value of every timeline, shortly before the wrap-around, so that not only the
/// longest programs execute it.
const INITIAL: u32 = u32::MAX - 16;

/// The semaphores come first, each on a cache line of its own; the buffers follow.
const SEMAPHORE: usize = 64;
const BUFFERS: usize = 4096;

pub struct Staging {
    /// `None`: the memory was taken out.
    pinned: Mutex<Option<Pinned>>,
    memory: StagingMemory,
    slot: usize,
    pieces: TimelineState,
    whole: TimelineState,
    retired: TimelineSemaphore,
    /// The last value of `retired` that was enqueued on a stream.
    expected: AtomicU32,
    /// Work was enqueued on a stream, but the write that reports its completion was not.
    is_lost: AtomicBool,
    /// Issued values through which this process may still use the memory.
    in_use: AtomicUsize,
    /// All values were released: no thread waits for the device any more.
    is_released: AtomicBool,
}

/// One timeline: its semaphores and the values that were issued.
struct TimelineState {
    start: TimelineSemaphore,
    done: TimelineSemaphore,
    issued: Mutex<IssuedValues>,
}

struct IssuedValues {
    last: u32,
    /// All values up to this one have completed.
    completed: u32,
    /// Completed values beyond `completed`.
    completed_early: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timeline {
    Pieces,
    Whole,
}

/// A value of a timeline.
#[derive(Clone, Copy)]
pub struct TimelineValue {
    timeline: Timeline,
    pub value: u32,
}

impl TimelineState {
    fn new(start: TimelineSemaphore, done: TimelineSemaphore) -> Self {
        let issued =
            IssuedValues { last: INITIAL, completed: INITIAL, completed_early: Vec::new() };
        Self { start, done, issued: Mutex::new(issued) }
    }

    fn issue(&self) -> u32 {
        let mut issued = self.lock();
        issued.last = issued.last.wrapping_add(1);
        issued.last
    }

    fn complete(&self, value: u32) {
        let mut issued = self.lock();
        issued.completed_early.push(value);
        loop {
            let next = issued.completed.wrapping_add(1);
            let Some(at) = issued.completed_early.iter().position(|one| *one == next) else {
                break;
            };
            issued.completed_early.swap_remove(at);
            issued.completed = next;
        }
        self.done.advance(issued.completed);
    }

    fn release(&self) {
        self.done.advance(self.lock().last);
    }

    fn has_pending(&self) -> bool {
        let issued = self.lock();
        issued.last != issued.completed
    }

    fn lock(&self) -> MutexGuard<'_, IssuedValues> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the buffers begin, as addresses of this process and of the device.
#[derive(Clone, Copy)]
struct StagingMemory {
    host: *mut u8,
    device: u64,
}

// SAFETY: plain addresses; the timelines decide which thread may access the memory there.
unsafe impl Send for StagingMemory {}
// SAFETY: as above.
unsafe impl Sync for StagingMemory {}

impl Staging {
    /// Bytes of pinned memory for pieces of at most `slot` bytes.
    pub fn bytes_of(slot: usize) -> usize {
        BUFFERS + SLOTS * slot + WHOLE
    }

    /// Uses `pinned`, of at least `bytes_of(slot)` bytes. Nothing else may use that memory.
    pub fn new(pinned: Pinned, slot: usize) -> Arc<Self> {
        let semaphores = [0, 1, 2, 3, 4].map(|index| pinned.semaphore(index * SEMAPHORE));
        semaphores.iter().for_each(|semaphore| semaphore.initialize(INITIAL));
        let [start, done, start_whole, done_whole, retired] = semaphores;
        let memory = StagingMemory {
            host: pinned.host().as_ptr().wrapping_add(BUFFERS),
            device: pinned.device_address(BUFFERS),
        };
        Arc::new(Self {
            pinned: Mutex::new(Some(pinned)),
            memory,
            slot,
            pieces: TimelineState::new(start, done),
            whole: TimelineState::new(start_whole, done_whole),
            retired,
            expected: AtomicU32::new(INITIAL),
            is_lost: AtomicBool::new(false),
            in_use: AtomicUsize::new(0),
            is_released: AtomicBool::new(false),
        })
    }

    /// Most bytes of a piece.
    pub fn slot_bytes(&self) -> usize {
        self.slot
    }

    /// The slot of a piece of the ring, as a range of the buffers.
    pub fn slot(&self, piece: usize) -> Range<usize> {
        let start = piece % SLOTS * self.slot;
        start..start + self.slot
    }

    /// The range of the buffers for items that are staged as a whole.
    pub fn whole(&self) -> Range<usize> {
        let start = SLOTS * self.slot;
        start..start + WHOLE
    }

    /// The device's address of the byte at an offset of the buffers.
    pub fn device_address(&self, at: usize) -> u64 {
        self.memory.device + at as u64
    }

    /// Issues the next value of a timeline, for the item that is enqueued next. The value completes
    /// when its last reference is dropped.
    pub fn issue(self: &Arc<Self>, timeline: Timeline) -> Arc<PendingValue> {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        let point = TimelineValue { timeline, value: self.timeline(timeline).issue() };
        let is_held = AtomicBool::new(false);
        Arc::new(PendingValue { staging: Arc::clone(self), point, is_held })
    }

    fn timeline(&self, timeline: Timeline) -> &TimelineState {
        match timeline {
            Timeline::Pieces => &self.pieces,
            Timeline::Whole => &self.whole,
        }
    }

    /// The semaphore that the device raises to the value when it has copied the data in.
    pub fn start(&self, point: TimelineValue) -> &TimelineSemaphore {
        &self.timeline(point.timeline).start
    }

    /// The semaphore on which the device waits until the value has completed.
    pub fn done(&self, point: TimelineValue) -> &TimelineSemaphore {
        &self.timeline(point.timeline).done
    }

    /// Releases all issued values: the device continues, whatever the buffers contain.
    pub fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
        if self.pinned().is_some() {
            self.pieces.release();
            self.whole.release();
        }
    }

    /// Whether a stream may wait for a value that this process has not completed.
    pub fn holds_a_stream(&self) -> bool {
        !self.is_released() && (self.pieces.has_pending() || self.whole.has_pending())
    }

    fn is_released(&self) -> bool {
        self.is_released.load(Ordering::SeqCst)
    }

    /// Calls `enqueue_write`, which makes the device report when it has executed all work that was
    /// enqueued so far. Must not be called by two threads at once.
    pub fn retire(
        &self,
        enqueue_write: impl FnOnce(&TimelineSemaphore, u32) -> Result<()>,
    ) -> Result<()> {
        let next = self.expected.load(Ordering::SeqCst).wrapping_add(1);
        enqueue_write(&self.retired, next)?;
        self.expected.store(next, Ordering::SeqCst);
        Ok(())
    }

    /// Marks the memory as lost: no thread can ever know when the device stops using it.
    pub fn mark_lost(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// Whether neither the device nor this process uses the memory any more.
    pub fn is_idle(&self) -> bool {
        let pinned = self.pinned();
        if pinned.is_none() {
            return true;
        }
        let has_retired = self.retired.has_reached(self.expected.load(Ordering::SeqCst));
        has_retired && !self.is_lost() && self.in_use.load(Ordering::SeqCst) == 0
    }

    /// Takes the memory out, to free or to reuse it. It must be idle, and nothing may be issued
    /// any more.
    pub fn take(&self) -> Option<Pinned> {
        self.pinned().take()
    }

    /// Whether the memory was not taken out, and `predicate` is true of it.
    pub fn holds_memory(&self, predicate: impl FnOnce(&Pinned) -> bool) -> bool {
        self.pinned().as_ref().is_some_and(predicate)
    }

    /// Locks the memory: it is not freed while the guard lives.
    fn pinned(&self) -> MutexGuard<'_, Option<Pinned>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An issued value that has not completed.
pub struct PendingValue {
    staging: Arc<Staging>,
    pub point: TimelineValue,
    is_held: AtomicBool,
}

impl PendingValue {
    /// Waits until the device has copied the data in, and lends a part of the buffers. `None` if
    /// `is_cancelled`, or if all values were released first. Users of one value must ask for parts
    /// that do not overlap.
    pub async fn lend(
        self: &Arc<Self>,
        buffer: Range<usize>,
        is_cancelled: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Option<LentBuffer> {
        let staging = Arc::clone(&self.staging);
        let is_cancelled = move || staging.is_released() || is_cancelled();
        let start = *self.staging.start(self.point);
        let has_started = reach(start, self.point.value, is_cancelled).await;
        let is_lent = has_started && !self.staging.is_released();
        is_lent.then(|| LentBuffer { value: Arc::clone(self), buffer })
    }

    /// Keeps the value from completing: its stream waits until all values are released.
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }
}

impl Drop for PendingValue {
    fn drop(&mut self) {
        if !self.is_held.load(Ordering::SeqCst) {
            self.staging.timeline(self.point.timeline).complete(self.point.value);
        }
        self.staging.in_use.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A part of the buffers, between the start and the completion of its value.
pub struct LentBuffer {
    value: Arc<PendingValue>,
    buffer: Range<usize>,
}

impl LentBuffer {
    pub fn memory(&mut self) -> &mut [u8] {
        let StagingMemory { host, .. } = self.value.staging.memory;
        let Range { start, end } = self.buffer;
        // SAFETY: inside the pinned block, behind its semaphores; the block is not freed while a
        // part of it is lent.
        let begin = unsafe { host.add(start) };
        // SAFETY: the value has started, so the device has written the buffer, and accesses it
        // again only after the value has completed; until then no other thread is lent this part.
        // If all values were released meanwhile, because the communicator was aborted, the device
        // may copy from and to these bytes at any time. No Rust code does, every bit pattern of
        // the bytes is valid, and the result is not used.
        unsafe { std::slice::from_raw_parts_mut(begin, end - start) }
    }
}
