//! The floats smaller than f32, bit by bit, and their conversions.
//!
//! ```text
//!          sign  exponent  mantissa    bias   largest   infinity   NaN           canonical NaN
//!   bf16   s     eeeeeeee  mmmmmmm      127   3.39e38   7f80       7f81..=7fff   7fc0
//!   f16    s     eeeee     mmmmmmmmmm    15   65504     7c00       7c01..=7fff   7e00
//!   e5m2   s     eeeee     mm            15   57344     7c         7d..=7f       7e
//!   e4m3   s     eeee      mmm            7   448       none       7f            7f
//! ```
//!
//! A number beyond the largest becomes infinity; in e4m3, which has none, the largest. Leaves to
//! `element` the operators. Invariant: except for bf16, whose subnormals are those of f32, no
//! result depends on subnormal f32, so a CPU that flushes them to zero changes nothing.

use super::element::{FloatCode, Small};

pub(super) struct Bf16;
pub(super) struct F16;
pub(super) struct E5m2;
pub(super) struct E4m3;

impl Small for Bf16 {
    type Code = i16;
    const LARGEST: u32 = 0x7f80;
    const NAN: u32 = 0x7fc0;

    #[inline(always)]
    fn widen(low: u32) -> f32 {
        f32::from_bits(low << 16)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> u32 {
        let bits = wide.to_bits();
        let odd = (bits >> 16) & 1;
        // Rounds up above half, and at half if the upper half is odd. Infinity and the canonical
        // NaN, whose lower halves are 0, stay unchanged.
        (bits + 0x7fff + odd) >> 16
    }
}

/// A format with a range of exponents of its own.
pub(super) trait Format {
    type Code: FloatCode;
    const MANTISSA: u32;
    const BIAS: u32;
    const INFINITY: bool;
    const LARGEST: u32;
    const NAN: u32;
}

impl Format for F16 {
    type Code = i16;
    const MANTISSA: u32 = 10;
    const BIAS: u32 = 15;
    const INFINITY: bool = true;
    const LARGEST: u32 = 0x7c00;
    const NAN: u32 = 0x7e00;
}

impl Format for E5m2 {
    type Code = i8;
    const MANTISSA: u32 = 2;
    const BIAS: u32 = 15;
    const INFINITY: bool = true;
    const LARGEST: u32 = 0x7c;
    const NAN: u32 = 0x7e;
}

impl Format for E4m3 {
    type Code = i8;
    const MANTISSA: u32 = 3;
    const BIAS: u32 = 7;
    const INFINITY: bool = false;
    const LARGEST: u32 = 0x7e;
    const NAN: u32 = 0x7f;
}

const F32_MANTISSA: u32 = 23;
const F32_BIAS: u32 = 127;
const F32_EXPONENT: u32 = 0x7f80_0000;
const F32_SIGN: u32 = 0x8000_0000;

impl<F: Format> Small for F {
    type Code = F::Code;
    const LARGEST: u32 = F::LARGEST;
    const NAN: u32 = F::NAN;

    #[inline(always)]
    fn widen(low: u32) -> f32 {
        let magnitude = low & ((1 << (F::Code::BITS - 1)) - 1);
        // The value of a subnormal: that of its mantissa behind the leading 1 of the smallest
        // exponent, less that 1.
        let one = 1 << F::MANTISSA;
        let subnormal = normal::<F>(one + magnitude) - normal::<F>(one);
        let number = if magnitude < one { subnormal } else { normal::<F>(magnitude) };
        let special = magnitude << (F32_MANTISSA - F::MANTISSA) | F32_EXPONENT;
        let first_special = if F::INFINITY { F::LARGEST } else { F::LARGEST + 1 };
        let bits = if magnitude < first_special { number.to_bits() } else { special };
        f32::from_bits(bits | (low << (32 - F::Code::BITS)) & F32_SIGN)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> u32 {
        // If infinity is the largest code, this is the power of two that the code would mean.
        let largest = normal::<F>(F::LARGEST);
        let size = if wide.abs() < largest { wide.abs() } else { largest };
        let smallest = normal::<F>(1 << F::MANTISSA);
        let at_least = if size > smallest { size } else { smallest };
        let exponent = at_least.to_bits() & F32_EXPONENT;
        // The power of two whose last place is that of the result: adding it rounds, and its bits
        // grow by the mantissa, the leading 1 included.
        let excess = F32_MANTISSA - F::MANTISSA;
        let power = exponent + (excess << F32_MANTISSA);
        let mantissa = (size + f32::from_bits(power)).to_bits() - power;
        // That leading 1 counts as one step of the exponent.
        let code = mantissa + ((exponent - smallest.to_bits()) >> excess);
        let sign = wide.to_bits() >> 31 << (F::Code::BITS - 1);
        if wide.is_nan() { F::NAN } else { code | sign }
    }
}

/// The value of the code of a normal number.
#[inline(always)]
const fn normal<F: Format>(code: u32) -> f32 {
    let rebias = (F32_BIAS - F::BIAS) << F32_MANTISSA;
    f32::from_bits((code << (F32_MANTISSA - F::MANTISSA)) + rebias)
}
