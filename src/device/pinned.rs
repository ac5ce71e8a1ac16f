//! Memory that the program and devices reach, and the numbers in it by which they learn of each
//! other.
//!
//! Leaves to others who uses which part when, and to `context` how it is got and given back.
//! Invariants: a number is written by a device, or by this process with `advance`, which never
//! takes it back; who sees it come to a value sees all that was written before.
#![expect(unsafe_code, reason = "memory of the driver is seen as atomics and bytes")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Given back by `Device::free`, when nobody uses it any more: neither a stream, nor a slice or a
/// cell in it.
pub struct Pinned {
    host: NonNull<u8>,
    device: u64,
    bytes: usize,
    /// The driver's number for it, which no other memory ever has.
    id: u64,
}

// SAFETY: the memory belongs to the value and is reached through atomics, or through slices whose
// users answer for them.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Takes memory that the driver has just allocated. Whatever lies there counts as written: it
    /// comes from the system and not from a Rust allocator.
    pub(super) fn new(host: NonNull<u8>, device: u64, bytes: usize, id: u64) -> Self {
        Self { host, device, bytes, id }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn host(&self) -> NonNull<u8> {
        self.host
    }

    /// The address, as the device knows it, of the byte at `offset`.
    pub fn device_address(&self, offset: usize) -> u64 {
        assert!(offset <= self.bytes);
        self.device + offset as u64
    }

    /// A number at `offset`, which begins a line of 64 bytes: writers of other numbers do not
    /// disturb.
    pub fn semaphore(&self, offset: usize) -> TimelineSemaphore {
        assert!(offset.is_multiple_of(64) && offset + size_of::<AtomicU32>() <= self.bytes);
        // SAFETY: inside, as was just seen. The driver's memory begins at a page, so that it is
        // aligned.
        let number = unsafe { self.host.add(offset) };
        TimelineSemaphore { number: number.cast(), device: self.device_address(offset) }
    }
}

/// A number that the device and this process write and read, which only grows, past its end to 0
/// again. Valid as long as its `Pinned`.
#[derive(Clone, Copy)]
pub struct TimelineSemaphore {
    number: NonNull<AtomicU32>,
    device: u64,
}

// SAFETY: an atomic, used by all as such; who frees its memory answers for that nobody has it any
// more.
unsafe impl Send for TimelineSemaphore {}
// SAFETY: as above.
unsafe impl Sync for TimelineSemaphore {}

impl TimelineSemaphore {
    /// A number of a test, which has no device.
    #[cfg(test)]
    pub(crate) fn of_test(start: u32) -> Self {
        Self { number: NonNull::from(Box::leak(Box::new(AtomicU32::new(start)))), device: 0 }
    }

    fn number(&self) -> &AtomicU32 {
        // SAFETY: aligned and inside its `Pinned`, which is still there.
        unsafe { self.number.as_ref() }
    }

    /// Where it is to begin, before anybody else knows of it.
    pub fn begin_at(&self, value: u32) {
        self.number().store(value, Ordering::Relaxed);
    }

    #[inline]
    pub fn load(&self) -> u32 {
        let value = self.number().load(Ordering::Acquire);
        order_with_device();
        value
    }

    /// Whether it is at the value or, counted cyclically, past it.
    #[inline]
    pub fn has_reached(&self, value: u32) -> bool {
        is_past(self.load(), value)
    }

    /// Brings it to the value, unless it is there or past it: whoever comes late takes nothing
    /// back.
    pub fn advance(&self, value: u32) {
        order_with_device();
        let forward = |seen| (!is_past(seen, value)).then_some(value);
        let _ = self.number().fetch_update(Ordering::Release, Ordering::Relaxed, forward);
    }

    pub fn device_address(&self) -> u64 {
        self.device
    }
}

fn is_past(number: u32, value: u32) -> bool {
    number.wrapping_sub(value) as i32 >= 0
}

/// What an atomic orders on this architecture may be ordered for processors alone, and not for a
/// device.
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
    fn a_number_has_come_to_a_value_counted_cyclically() {
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
        for (number, value, has) in cases {
            assert_eq!(
                TimelineSemaphore::of_test(number).has_reached(value),
                has,
                "{number} to {value}"
            );
        }
    }

    #[test]
    fn a_number_advances_past_its_end_and_never_back() {
        let semaphore = TimelineSemaphore::of_test(u32::MAX - 1);
        for (value, then) in
            [(u32::MAX, u32::MAX), (u32::MAX - 1, u32::MAX), (1, 1), (0, 1), (u32::MAX, 1), (7, 7)]
        {
            semaphore.advance(value);
            assert_eq!(semaphore.load(), then, "after {value}");
        }
    }

    #[test]
    fn of_two_writers_the_farther_prevails_whoever_comes_last() {
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
            let mut seen = semaphore.load();
            while !semaphore.has_reached(start.wrapping_add(STEPS - 1)) {
                let next = semaphore.load();
                assert!(is_past(next, seen), "{next} after {seen}");
                seen = next;
            }
        });
        assert_eq!(semaphore.load(), start.wrapping_add(STEPS - 1));
    }
}
