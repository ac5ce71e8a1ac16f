//! The pinned memory of a communicator: rooms for the data of a device, and the cells by which the
//! device and this process tell each other how far they are.
//!
//! ```text
//! caller's stream    copy in | start = n | wait: done >= n | copy out | ... | retired = last
//! this process                 start >= n: its turn -> work -> done = n
//! ```
//!
//! Whatever is enqueued gets the next *number* of its track: pieces have one, what is made at once
//! another, since a message may wait for what its receiver does only behind the pieces. The device
//! writes `start` in the order of numbers; numbers end in any order, and `done` follows those that
//! have ended without a gap. Leaves to its user what is enqueued. Invariants: a room is lent only
//! while its number has come and has not ended, and until then the device does not touch it, unless
//! all was released; `done` never goes back.
#![expect(unsafe_code, reason = "parts of pinned memory are lent as slices")]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Pinned, TimelineSemaphore, reach};
use crate::error::Result;

/// So many pieces of a call are under way at once, each in a room of its own.
pub const SLOTS: usize = 4;
/// For what is not cut into pieces.
pub const WHOLE: usize = 16 << 20;

/// Numbers begin behind this, shortly before they wrap around: so every program passes that, not
/// the longest alone.
const FIRST: u32 = u32::MAX - 16;

/// Cells stand on lines of their own, before all rooms.
const SEMAPHORE: usize = 64;
const BUFFERS: usize = 4096;

pub struct Staging {
    /// `None`: it was given back.
    pinned: Mutex<Option<Pinned>>,
    memory: StagingMemory,
    slot: usize,
    pieces: TimelineState,
    whole: TimelineState,
    retired: TimelineSemaphore,
    /// What `retired` will come to, as far as it was put on a stream.
    expected: AtomicU32,
    /// Something was put on a stream, but not what says that it has ended.
    is_lost: AtomicBool,
    /// Numbers of which somebody may use the memory.
    in_use: AtomicUsize,
    /// Nobody waits for anything any more.
    is_over: AtomicBool,
}

/// Numbers of one track, and the cells they are told by.
struct TimelineState {
    start: TimelineSemaphore,
    done: TimelineSemaphore,
    numbers: Mutex<Issued>,
}

struct Issued {
    issued: u32,
    /// All up to here have ended.
    ended: u32,
    /// Those behind it that have.
    ended_early: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timeline {
    Pieces,
    Whole,
}

/// A number and where it is told.
#[derive(Clone, Copy)]
pub struct TimelineValue {
    timeline: Timeline,
    pub value: u32,
}

impl TimelineState {
    fn new(start: TimelineSemaphore, done: TimelineSemaphore) -> Self {
        let numbers = Issued { issued: FIRST, ended: FIRST, ended_early: Vec::new() };
        Self { start, done, numbers: Mutex::new(numbers) }
    }

    fn issue(&self) -> u32 {
        let mut numbers = self.lock();
        numbers.issued = numbers.issued.wrapping_add(1);
        numbers.issued
    }

    fn end(&self, number: u32) {
        let mut numbers = self.lock();
        numbers.ended_early.push(number);
        loop {
            let next = numbers.ended.wrapping_add(1);
            let Some(at) = numbers.ended_early.iter().position(|one| *one == next) else { break };
            numbers.ended_early.swap_remove(at);
            numbers.ended = next;
        }
        self.done.advance(numbers.ended);
    }

    fn release(&self) {
        self.done.advance(self.lock().issued);
    }

    fn has_unended(&self) -> bool {
        let numbers = self.lock();
        numbers.issued != numbers.ended
    }

    fn lock(&self) -> MutexGuard<'_, Issued> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where all rooms begin, as this process and as the device know it.
#[derive(Clone, Copy)]
struct StagingMemory {
    host: *mut u8,
    device: u64,
}

// SAFETY: plain addresses; who may use what lies there is said by numbers.
unsafe impl Send for StagingMemory {}
// SAFETY: as above.
unsafe impl Sync for StagingMemory {}

impl Staging {
    /// How much pinned memory is needed for pieces of at most `slot` bytes.
    pub fn bytes_of(slot: usize) -> usize {
        BUFFERS + SLOTS * slot + WHOLE
    }

    /// Uses as much pinned memory as `slot` needs, which nothing else uses any more.
    pub fn new(pinned: Pinned, slot: usize) -> Arc<Self> {
        let semaphores = [0, 1, 2, 3, 4].map(|index| pinned.semaphore(index * SEMAPHORE));
        semaphores.iter().for_each(|semaphore| semaphore.begin_at(FIRST));
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
            expected: AtomicU32::new(FIRST),
            is_lost: AtomicBool::new(false),
            in_use: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// How much a piece may take.
    pub fn slot_bytes(&self) -> usize {
        self.slot
    }

    /// The room of a piece.
    pub fn slot(&self, piece: usize) -> Range<usize> {
        let start = piece % SLOTS * self.slot;
        start..start + self.slot
    }

    /// The room of what is not cut.
    pub fn whole(&self) -> Range<usize> {
        let start = SLOTS * self.slot;
        start..start + WHOLE
    }

    /// As the device knows a byte of a room.
    pub fn device_address(&self, at: usize) -> u64 {
        self.memory.device + at as u64
    }

    /// The next number: of what is enqueued next. It ends when the last of these is dropped.
    pub fn issue(self: &Arc<Self>, timeline: Timeline) -> Arc<Number> {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        let point = TimelineValue { timeline, value: self.numbered(timeline).issue() };
        Arc::new(Number { staging: Arc::clone(self), point, is_held: AtomicBool::new(false) })
    }

    fn numbered(&self, timeline: Timeline) -> &TimelineState {
        match timeline {
            Timeline::Pieces => &self.pieces,
            Timeline::Whole => &self.whole,
        }
    }

    /// Where the device says that it has come to the number.
    pub fn start(&self, point: TimelineValue) -> &TimelineSemaphore {
        &self.numbered(point.timeline).start
    }

    /// Where it awaits that the number has ended.
    pub fn done(&self, point: TimelineValue) -> &TimelineSemaphore {
        &self.numbered(point.timeline).done
    }

    /// Lets the device go on with all that was issued, with whatever lies in its rooms.
    pub fn release(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if self.pinned().is_some() {
            self.pieces.release();
            self.whole.release();
        }
    }

    /// Whether a stream may wait for something that this process has not ended.
    pub fn holds_a_stream(&self) -> bool {
        !self.is_over() && (self.pieces.has_unended() || self.whole.has_unended())
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Has the device say, with `tell`, when it has done all that was enqueued so far. One thread
    /// at a time.
    pub fn retire(&self, tell: impl FnOnce(&TimelineSemaphore, u32) -> Result<()>) -> Result<()> {
        let next = self.expected.load(Ordering::SeqCst).wrapping_add(1);
        tell(&self.retired, next)?;
        self.expected.store(next, Ordering::SeqCst);
        Ok(())
    }

    /// Nobody will ever know when the device needs it no more.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// Whether neither the device nor this process needs it any more.
    pub fn is_idle(&self) -> bool {
        let pinned = self.pinned();
        if pinned.is_none() {
            return true;
        }
        let has_retired = self.retired.has_reached(self.expected.load(Ordering::SeqCst));
        has_retired && !self.is_lost() && self.in_use.load(Ordering::SeqCst) == 0
    }

    /// Takes the memory out, for whoever frees it or uses it anew. It is idle, and nothing is
    /// issued any more.
    pub fn take(&self) -> Option<Pinned> {
        self.pinned().take()
    }

    /// Whether it has memory of which that is true.
    pub fn is_there(&self, is_there: impl FnOnce(&Pinned) -> bool) -> bool {
        self.pinned().as_ref().is_some_and(is_there)
    }

    /// While this is held the memory is not freed.
    fn pinned(&self) -> MutexGuard<'_, Option<Pinned>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something enqueued that has not ended.
pub struct Number {
    staging: Arc<Staging>,
    pub point: TimelineValue,
    is_held: AtomicBool,
}

impl Number {
    pub fn staging(&self) -> &Arc<Staging> {
        &self.staging
    }

    /// Waits until the device has copied in what this needs, and lends its room. `None` if
    /// `is_over` or the memory was released first. Others that share the value are lent other
    /// parts.
    pub async fn lend(
        self: &Arc<Self>,
        buffer: Range<usize>,
        is_over: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Option<Lent> {
        let staging = Arc::clone(&self.staging);
        let over = move || staging.is_over() || is_over();
        let has_reached = reach(*self.staging.start(self.point), self.point.value, over).await;
        (has_reached && !self.staging.is_over()).then(|| Lent { number: Arc::clone(self), buffer })
    }

    /// It will never end by itself: the device is held until all is released.
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if !self.is_held.load(Ordering::SeqCst) {
            self.staging.numbered(self.point.timeline).end(self.point.value);
        }
        self.staging.in_use.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A room between its number's beginning and end.
pub struct Lent {
    number: Arc<Number>,
    buffer: Range<usize>,
}

impl Lent {
    pub fn memory(&mut self) -> &mut [u8] {
        let StagingMemory { host, .. } = self.number.staging.memory;
        let Range { start, end } = self.buffer;
        // SAFETY: rooms lie behind the beginning of the pinned block, which is freed when none is
        // lent.
        let begin = unsafe { host.add(start) };
        // SAFETY: the number has come, so that the device has written the room and touches it again
        // when the number has ended; until then nobody else is lent this part. If all was released
        // meanwhile, because the communicator was aborted, the device may copy from and to these
        // bytes at any time: no Rust code does, they are numbers of which any pattern is one, and
        // nobody takes the result for one.
        unsafe { std::slice::from_raw_parts_mut(begin, end - start) }
    }
}
