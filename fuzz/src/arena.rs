//! Buffers for calls, surrounded by guard bytes that must not change.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;

use arbitrary::Arbitrary;
use nexar::dtype::DataType;

/// The start of a buffer: an offset in one of the two regions of an arena, or NULL.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum BufferStart {
    Left(u8),
    Right(u8),
    Null,
}

/// A number of elements.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Count {
    Small(u8),
    /// More elements than memory can hold, of any type.
    Huge(u16),
}

impl Count {
    /// A small count, even with a displacement as large and any offset, stays inside its region.
    pub fn get(self) -> usize {
        match self {
            Self::Small(count) => usize::from(count) % 28,
            Self::Huge(less) => usize::MAX - usize::from(less),
        }
    }
}

/// Two regions for buffers, each between guard bytes.
pub struct Arena {
    bytes: Vec<u8>,
    before: Vec<u8>,
    may_change: Vec<Range<usize>>,
}

const REGION: usize = 512;
const GUARD: usize = 256;
const LEFT: usize = GUARD;
const RIGHT: usize = LEFT + REGION + GUARD;
const WHOLE: usize = RIGHT + REGION + GUARD;

impl Arena {
    pub fn new() -> Self {
        let bytes: Vec<u8> = (0..WHOLE).map(|at| (at * 31) as u8).collect();
        Self { before: bytes.clone(), bytes, may_change: Vec::new() }
    }

    fn at(start: BufferStart) -> Option<usize> {
        match start {
            BufferStart::Left(offset) => Some(LEFT + usize::from(offset) % 64),
            BufferStart::Right(offset) => Some(RIGHT + usize::from(offset) % 64),
            BufferStart::Null => None,
        }
    }

    pub fn pointer(&mut self, start: BufferStart) -> *mut c_void {
        Self::at(start).map_or(null_mut(), |at| self.bytes[at..].as_mut_ptr().cast())
    }

    /// Allows the call to write `count` elements of a buffer, from the element `first`.
    pub fn may_write(&mut self, start: BufferStart, first: usize, count: usize, datatype: c_int) {
        let size = DataType::from_code(datatype).map_or(0, DataType::size);
        let range = |at: usize| {
            let start = at.checked_add(first.checked_mul(size)?)?;
            let end = start.checked_add(count.checked_mul(size)?)?;
            (end <= WHOLE).then_some(start..end)
        };
        self.may_change.extend(Self::at(start).and_then(range));
    }

    /// Forbids all writes, because the call was refused.
    pub fn may_write_nothing(&mut self) {
        self.may_change.clear();
    }

    /// Asserts that only bytes changed which the call may write.
    pub fn check(&self) {
        for at in 0..WHOLE {
            let may = self.may_change.iter().any(|range| range.contains(&at));
            assert!(may || self.bytes[at] == self.before[at], "byte {at} has changed");
        }
    }
}
