//! Pinned memory, which host and devices can access, and timeline semaphores in it.
//!
//! Leaves to `context` the allocation and release of the memory, and to others the use of its
//! parts. Invariants: a semaphore is written by a device, or by this process with `advance`, which
//! never decreases it; a reader that sees a value sees everything that the writer wrote before
//! (release/acquire).
#![expect(unsafe_code, reason = "memory of the driver is accessed as atomics and bytes")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A block of pinned memory. `Device::free` frees it, when no stream, slice or semaphore uses it
/// any more.
pub struct Pinned {
    host: NonNull<u8>,
    device: u64,
    bytes: usize,
    /// The driver's id for the block, which no other memory ever has.
    id: u64,
}

// SAFETY: the memory belongs to the value and is accessed through atomics, or through slices for
// which their users are responsible.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Wraps memory that the driver has just allocated. Its bytes count as initialized: they come
    /// from the operating system and not from a Rust allocator.
    pub(super) fn new(host: NonNull<u8>, device: u64, bytes: usize, id: u64) -> Self {
        Self { host, device, bytes, id }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn host(&self) -> NonNull<u8> {
        self.host
    }

    /// The device's address of the byte at `offset`.
    pub fn device_address(&self, offset: usize) -> u64 {
        assert!(offset <= self.bytes);
        self.device + offset as u64
    }

    /// The semaphore at `offset`, a multiple of 64: each has a cache line of its own, so that
    /// writers of different semaphores do not share one.
    pub fn semaphore(&self, offset: usize) -> TimelineSemaphore {
        assert!(offset.is_multiple_of(64) && offset + size_of::<AtomicU32>() <= self.bytes);
        // SAFETY: inside the block, as was just checked. The block begins at a page boundary, so
        // the result is aligned.
        let word = unsafe { self.host.add(offset) };
        TimelineSemaphore { word: word.cast(), device: self.device_address(offset) }
    }
}

/// A timeline semaphore: a 32-bit value that the device and this process write and read. It only
/// increases, modulo 2^32. Valid as long as its `Pinned`.
#[derive(Clone, Copy)]
pub struct TimelineSemaphore {
    word: NonNull<AtomicU32>,
    device: u64,
}

// SAFETY: an atomic, which all threads use as such; the thread that frees its memory ensures that
// no other still uses it.
unsafe impl Send for TimelineSemaphore {}
// SAFETY: as above.
unsafe impl Sync for TimelineSemaphore {}

impl TimelineSemaphore {
    /// A semaphore of a test, without a device.
    #[cfg(test)]
    pub(crate) fn of_test(start: u32) -> Self {
        Self { word: NonNull::from(Box::leak(Box::new(AtomicU32::new(start)))), device: 0 }
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: aligned and inside its `Pinned`, which still exists.
        unsafe { self.word.as_ref() }
    }

    /// Sets the initial value, before any other thread or the device uses the semaphore.
    pub fn initialize(&self, value: u32) {
        self.word().store(value, Ordering::Relaxed);
    }

    #[inline]
    pub fn load(&self) -> u32 {
        let value = self.word().load(Ordering::Acquire);
        order_with_device();
        value
    }

    /// Whether it is at or past the value, compared modulo 2^32.
    #[inline]
    pub fn has_reached(&self, value: u32) -> bool {
        is_past(self.load(), value)
    }

    /// Raises it to the value, unless it is at or past it: a late writer never decreases it.
    pub fn advance(&self, value: u32) {
        order_with_device();
        let forward = |current| (!is_past(current, value)).then_some(value);
        let _ = self.word().fetch_update(Ordering::Release, Ordering::Relaxed, forward);
    }

    pub fn device_address(&self) -> u64 {
        self.device
    }
}

/// Whether `current` is at or past `value`, modulo 2^32.
fn is_past(current: u32, value: u32) -> bool {
    current.wrapping_sub(value) as i32 >= 0
}

/// A full barrier that includes devices: on aarch64 the barriers of atomics may order accesses for
/// processors alone.
#[inline]
fn order_with_device() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier, which changes nothing but the order of accesses.
    unsafe {
        std::arch::asm!("dmb sy", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semaphore_has_reached_a_value_modulo_2_to_the_32() {
        let cases = [
            (0, 0, true),
            (1, 0, true),
            (0, 1, false),
            (u32::MAX, u32::MAX, true),
            (0, u32::MAX, true),
            (5, u32::MAX - 5, true),
            (u32::MAX, 0, false),
            (u32::MAX - 5, 5, false),
            (i32::MAX as u32, 0, true),
            (i32::MAX as u32 + 1, 0, false),
        ];
        for (current, value, expected) in cases {
            let has_reached = TimelineSemaphore::of_test(current).has_reached(value);
            assert_eq!(has_reached, expected, "{current} to {value}");
        }
    }

    #[test]
    fn a_semaphore_wraps_around_and_never_decreases() {
        let semaphore = TimelineSemaphore::of_test(u32::MAX - 1);
        for (value, expected) in
            [(u32::MAX, u32::MAX), (u32::MAX - 1, u32::MAX), (1, 1), (0, 1), (u32::MAX, 1), (7, 7)]
        {
            semaphore.advance(value);
            assert_eq!(semaphore.load(), expected, "after {value}");
        }
    }

    #[test]
    fn the_larger_value_of_two_writers_prevails_in_any_order() {
        const STEPS: u32 = 100_000;
        let start = u32::MAX - STEPS / 2;
        let semaphore = TimelineSemaphore::of_test(start);
        std::thread::scope(|scope| {
            for first in 0..2 {
                scope.spawn(move || {
                    for step in (first..STEPS).step_by(2) {
                        semaphore.advance(start.wrapping_add(step));
                        assert!(semaphore.has_reached(start.wrapping_add(step)));
                    }
                });
            }
            let mut last = semaphore.load();
            while !semaphore.has_reached(start.wrapping_add(STEPS - 1)) {
                let next = semaphore.load();
                assert!(is_past(next, last), "{next} after {last}");
                last = next;
            }
        });
        assert_eq!(semaphore.load(), start.wrapping_add(STEPS - 1));
    }
}
