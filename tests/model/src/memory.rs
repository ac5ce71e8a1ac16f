//! Replaces `src/memory.rs`: shared memory whose words are loom's atomics and whose bytes are
//! loom's cells, so that loom reports bytes that one thread writes while another may access them.
//!
//! Invariant: bytes are compared and copied when they are asked for, and never later.
#![expect(unsafe_code, reason = "loom checks each access to a cell, not the compiler")]

use std::ops::Range;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

/// Bytes that loom tracks as one.
const UNIT: usize = 8;

pub struct SharedMapping {
    words: Vec<AtomicU64>,
    units: Vec<UnsafeCell<[u8; UNIT]>>,
}

// SAFETY: loom reports every access to a cell that another one does not precede.
unsafe impl Sync for SharedMapping {}

/// Bytes that are about to be written.
pub struct Writing<'a> {
    units: &'a [UnsafeCell<[u8; UNIT]>],
    bytes: usize,
}

impl SharedMapping {
    /// Zeros. `words`: how many words at the beginning are atomics.
    pub fn of_model(words: usize, bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            units: (0..units).map(|_| UnsafeCell::new([0; UNIT])).collect(),
        }
    }

    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        &self.words[offset / 8]
    }

    /// A hint, which changes nothing.
    pub fn prefetch_for_write(&self, _offset: usize) {}

    fn units(&self, range: &Range<usize>) -> &[UnsafeCell<[u8; UNIT]>] {
        assert!(range.start.is_multiple_of(UNIT));
        &self.units[range.start / UNIT..range.end.div_ceil(UNIT)]
    }

    /// # Safety
    /// None: loom checks it.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: loom has checked that no other thread writes the unit.
        let read = |unit: &UnsafeCell<[u8; UNIT]>| unit.with(|bytes| unsafe { *bytes });
        let bytes: Vec<u8> = self.units(&range).iter().flat_map(read).collect();
        // A few bytes for each read, until the test ends.
        &bytes.leak()[..range.len()]
    }

    /// # Safety
    /// None: loom checks it.
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> Writing<'_> {
        Writing { units: self.units(&range), bytes: range.len() }
    }
}

impl Writing<'_> {
    pub fn copy_from_slice(self, from: &[u8]) {
        assert_eq!(from.len(), self.bytes);
        for (unit, bytes) in self.units.iter().zip(from.chunks(UNIT)) {
            // SAFETY: loom has checked that no other thread accesses the unit.
            unit.with_mut(|unit| unsafe { (&mut *unit)[..bytes.len()].copy_from_slice(bytes) });
        }
    }
}
