//! The operators on one pair of elements: the definition that every faster form must equal.
//!
//! Leaves the loops over arrays to `array`. Invariants: every operator is commutative to the last
//! bit, and nothing here branches on data, so that the compiler can vectorise the loops.

use std::ops::{BitAnd, BitOr, BitXor};

use bytemuck::Pod;

/// The operators on integers, which wrap.
pub(super) trait Integer:
    Pod + Ord + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    const LEAST: Self;
    const GREATEST: Self;
    const ALL_ONES: Self;

    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// Divided towards zero by a number that may be larger than the type.
    fn divide(self, by: usize) -> Self;
    fn truth(self) -> bool;
    fn from_truth(truth: bool) -> Self;
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;
            const ALL_ONES: Self = !0;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn divide(self, by: usize) -> Self {
                match Self::BITS {
                    64 => self / by as Self,
                    _ => whole_quotient(self as f64, by as f64) as Self,
                }
            }
            #[inline(always)]
            fn truth(self) -> bool {
                self != 0
            }
            #[inline(always)]
            fn from_truth(truth: bool) -> Self {
                Self::from(truth)
            }
        }
    )*};
}
integer!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Divides integers of up to 32 bits towards zero: as floats, because CPUs divide vectors of floats
/// but not of integers. A quotient that is not whole is at least 1/divisor away from the next whole
/// number, and rounding changes it by far less. The result is in the lowest bits, in two's
/// complement.
#[inline(always)]
fn whole_quotient(dividend: f64, divisor: f64) -> u64 {
    const LAST_PLACE_IS_ONE: f64 = 1.5 * (1_u64 << 52) as f64;
    ((dividend / divisor).trunc() + LAST_PLACE_IS_ONE).to_bits()
}

/// The operators on floats that are computed in their own precision. A NaN result is the canonical
/// NaN, for any NaN in either operand.
pub(super) trait Real: Pod {
    const ZERO: Self;
    const ONE: Self;
    const INFINITY: Self;
    const MINUS_INFINITY: Self;

    fn one_over(size: usize) -> Self;
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
}

macro_rules! real {
    ($($type:ty),*) => {$(
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = Self::INFINITY;
            const MINUS_INFINITY: Self = Self::NEG_INFINITY;

            #[inline(always)]
            fn one_over(size: usize) -> Self {
                1.0 / size as Self
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                let sum = self + other;
                if sum.is_nan() { Self::NAN } else { sum }
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                let product = self * other;
                if product.is_nan() { Self::NAN } else { product }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let one = if self > other { self } else { other };
                let two = if other > self { other } else { self };
                // They differ in bits only if both are zeros: +0 wins, so the signs are and-ed.
                let larger = Self::from_bits(one.to_bits() & two.to_bits());
                if self.is_nan() | other.is_nan() { Self::NAN } else { larger }
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let one = if self < other { self } else { other };
                let two = if other < self { other } else { self };
                // They differ in bits only if both are zeros: -0 wins, so the signs are or-ed.
                let smaller = Self::from_bits(one.to_bits() | two.to_bits());
                if self.is_nan() | other.is_nan() { Self::NAN } else { smaller }
            }
        }
    )*};
}
real!(f32, f64);

/// The operators on floats smaller than f32. Their arithmetic is done in f32; their order is that
/// of their codes.
pub(super) trait Small {
    type Code: FloatCode;
    /// The code of infinity, or of the largest number if there is no infinity.
    const LARGEST: u32;
    /// The code of the canonical NaN.
    const NAN: u32;

    /// Converts the element in the lowest bits; the bits above it are ignored.
    fn widen(low: u32) -> f32;
    /// Rounds to nearest, ties to even. `wide` is a number or the canonical NaN, as every result of
    /// an operator is. The bits above the result are 0.
    fn narrow(wide: f32) -> u32;

    #[inline(always)]
    fn max(a: Self::Code, b: Self::Code) -> Self::Code {
        Self::unless_nan(a, b, in_order(in_order(a).max(in_order(b))))
    }

    #[inline(always)]
    fn min(a: Self::Code, b: Self::Code) -> Self::Code {
        Self::unless_nan(a, b, in_order(in_order(a).min(in_order(b))))
    }

    #[inline(always)]
    fn unless_nan(a: Self::Code, b: Self::Code, result: Self::Code) -> Self::Code {
        let without_sign = Self::Code::GREATEST;
        let magnitude = (a & without_sign).max(b & without_sign);
        let largest = Self::Code::lowest(Self::LARGEST);
        if magnitude > largest { Self::Code::lowest(Self::NAN) } else { result }
    }
}

/// The bits of a small float as a signed integer.
pub(super) trait FloatCode: Integer {
    const BITS: u32;
    fn lowest(bits: u32) -> Self;
}

impl FloatCode for i8 {
    const BITS: u32 = 8;
    #[inline(always)]
    fn lowest(bits: u32) -> Self {
        bits as Self
    }
}

impl FloatCode for i16 {
    const BITS: u32 = 16;
    #[inline(always)]
    fn lowest(bits: u32) -> Self {
        bits as Self
    }
}

/// Converts a code, whose negative values grow downwards, to an integer that is ordered like the
/// value of the code; and converts it back.
#[inline(always)]
fn in_order<C: Integer>(code: C) -> C {
    let flipped = if code < C::ZERO { C::GREATEST } else { C::ZERO };
    code ^ flipped
}
