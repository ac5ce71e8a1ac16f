//! What the operators mean on one pair of elements: the definition every faster form must equal.

use std::ops::{BitAnd, BitOr, BitXor};

use bytemuck::Pod;
use half::{bf16, f16};

/// Integers wrap.
pub(super) trait Integer:
    Pod + Ord + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// Divided towards zero by a number that may be larger than the type.
    fn divide(self, by: usize) -> Self;
    fn truth(self) -> bool;
    fn from_truth(truth: bool) -> Self;
}

macro_rules! integer {
    ($($type:ty as $wide:ty),*) => {$(
        impl Integer for $type {
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn divide(self, by: usize) -> Self {
                (<$wide>::from(self) / by as $wide) as Self
            }
            fn truth(self) -> bool {
                self != 0
            }
            fn from_truth(truth: bool) -> Self {
                Self::from(truth)
            }
        }
    )*};
}
integer!(
    i8 as i64, i16 as i64, i32 as i64, i64 as i64, u8 as u64, u16 as u64, u32 as u64, u64 as u64
);

/// Floats that are computed in their own precision. A NaN result is the canonical one, whatever
/// NaN went in and whichever operand it was.
pub(super) trait Real: Pod {
    fn canonical(self) -> Self;
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
}

macro_rules! real {
    ($($type:ty),*) => {$(
        impl Real for $type {
            fn canonical(self) -> Self {
                if self.is_nan() { Self::NAN } else { self }
            }
            fn add(self, other: Self) -> Self {
                (self + other).canonical()
            }
            fn multiply(self, other: Self) -> Self {
                (self * other).canonical()
            }
            fn max(self, other: Self) -> Self {
                let larger = if self > other { self } else { other };
                // Equal values differ in bits only as zeros: +0 wins, so the signs are and-ed.
                let equal = Self::from_bits(self.to_bits() & other.to_bits());
                let result = if self == other { equal } else { larger };
                if self.is_nan() || other.is_nan() { Self::NAN } else { result }
            }
            fn min(self, other: Self) -> Self {
                let smaller = if self < other { self } else { other };
                // Equal values differ in bits only as zeros: -0 wins, so the signs are or-ed.
                let equal = Self::from_bits(self.to_bits() | other.to_bits());
                let result = if self == other { equal } else { smaller };
                if self.is_nan() || other.is_nan() { Self::NAN } else { result }
            }
        }
    )*};
}
real!(f32, f64);

/// An element type whose arithmetic is done in `W`.
pub(super) trait Element<W>: Pod {
    fn widen(self) -> W;
    /// Rounds to nearest, ties to even.
    fn narrow(wide: W) -> Self;

    fn with(self, other: Self, op: impl Fn(W, W) -> W) -> Self {
        Self::narrow(op(self.widen(), other.widen()))
    }
}

impl<W: Real> Element<W> for W {
    fn widen(self) -> W {
        self
    }
    fn narrow(wide: W) -> Self {
        wide
    }
}

macro_rules! half_element {
    ($($type:ty),*) => {$(
        impl Element<f32> for $type {
            fn widen(self) -> f32 {
                self.to_f32()
            }
            fn narrow(wide: f32) -> Self {
                Self::from_f32(wide)
            }
        }
    )*};
}
half_element!(f16, bf16);
