//! Fold one array into another: right for every type and operator.
//!
//! Which arrays, in which order and when is the collectives' business. Invariants:
//! - every operator is commutative to the last bit: a NaN result is always the canonical NaN
//!   and -0 < +0, so a result depends on the grouping of the operands alone;
//! - f16 and bf16 are widened to f32, folded and rounded to nearest even; integers wrap;
//! - an array may begin at any address.

mod element;
mod reducer;

use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use half::{bf16, f16};

use crate::dtype::DataType;
use crate::op::{Fold, RedOp};

use element::{Element, Integer, Real};

pub use reducer::Side;

/// `into[i] = into[i] op from[i]`. Both hold the same number of whole elements.
pub fn fold(fold: Fold, into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "folded arrays are equally long");
    match fold.dtype() {
        DataType::Int8 => integers::<i8>(fold.redop(), into, from),
        DataType::Uint8 => integers::<u8>(fold.redop(), into, from),
        DataType::Int16 => integers::<i16>(fold.redop(), into, from),
        DataType::Uint16 => integers::<u16>(fold.redop(), into, from),
        DataType::Int32 => integers::<i32>(fold.redop(), into, from),
        DataType::Uint32 => integers::<u32>(fold.redop(), into, from),
        DataType::Int64 => integers::<i64>(fold.redop(), into, from),
        DataType::Uint64 => integers::<u64>(fold.redop(), into, from),
        DataType::Float32 => floats::<f32, f32>(fold.redop(), into, from),
        DataType::Float64 => floats::<f64, f64>(fold.redop(), into, from),
        DataType::Float16 => floats::<f16, f32>(fold.redop(), into, from),
        DataType::Bfloat16 => floats::<bf16, f32>(fold.redop(), into, from),
        DataType::Float8e4m3 | DataType::Float8e5m2 => unreachable!("Fold::new refuses them"),
    }
}

/// What this rank's own elements need before they are folded: Avg multiplies floats by 1/size,
/// logical operators see 0 and 1 only.
pub fn prepare(fold: Fold, data: &mut [u8], size: usize) {
    match fold.redop() {
        RedOp::Avg => scale(fold.dtype(), data, size),
        RedOp::LogicalAnd | RedOp::LogicalOr | RedOp::LogicalXor => truths(fold.dtype(), data),
        // A rank alone folds nothing, but its NaNs become canonical as they would by folding.
        _ if size == 1 => scale(fold.dtype(), data, 1),
        _ => {}
    }
}

/// Each element times `scalar`, which is one element.
fn premultiply(dtype: DataType, scalar: &[u8], data: &mut [u8]) {
    match dtype {
        DataType::Int8 => times::<i8>(scalar, data, i8::multiply),
        DataType::Uint8 => times::<u8>(scalar, data, u8::multiply),
        DataType::Int16 => times::<i16>(scalar, data, i16::multiply),
        DataType::Uint16 => times::<u16>(scalar, data, u16::multiply),
        DataType::Int32 => times::<i32>(scalar, data, i32::multiply),
        DataType::Uint32 => times::<u32>(scalar, data, u32::multiply),
        DataType::Int64 => times::<i64>(scalar, data, i64::multiply),
        DataType::Uint64 => times::<u64>(scalar, data, u64::multiply),
        DataType::Float32 => times(scalar, data, f32::multiply),
        DataType::Float64 => times(scalar, data, f64::multiply),
        DataType::Float16 => times(scalar, data, |a: f16, b| a.with(b, f32::multiply)),
        DataType::Bfloat16 => times(scalar, data, |a: bf16, b| a.with(b, f32::multiply)),
        DataType::Float8e4m3 | DataType::Float8e5m2 => unreachable!("Fold::new refuses them"),
    }
}

fn identity(_fold: Fold, data: &mut [u8]) {
    data.fill(0);
}

fn times<T: Pod>(scalar: &[u8], data: &mut [u8], multiply: impl Fn(T, T) -> T) {
    let scalar = pod_read_unaligned(scalar);
    each(data, |x| multiply(x, scalar));
}

fn scale(dtype: DataType, data: &mut [u8], size: usize) {
    let narrow = 1.0 / size as f32;
    match dtype {
        DataType::Float32 => each(data, |x: f32| x.multiply(narrow)),
        DataType::Float64 => each(data, |x: f64| x.multiply(1.0 / size as f64)),
        DataType::Float16 => each(data, |x: f16| f16::narrow(x.widen().multiply(narrow))),
        DataType::Bfloat16 => each(data, |x: bf16| bf16::narrow(x.widen().multiply(narrow))),
        _ => {}
    }
}

fn truths(dtype: DataType, data: &mut [u8]) {
    match dtype.size() {
        1 => each(data, |x: u8| u8::from_truth(x.truth())),
        2 => each(data, |x: u16| u16::from_truth(x.truth())),
        4 => each(data, |x: u32| u32::from_truth(x.truth())),
        _ => each(data, |x: u64| u64::from_truth(x.truth())),
    }
}

/// What the folded elements need at the end: Avg divides integers by size, towards zero.
pub fn finish(fold: Fold, data: &mut [u8], size: usize) {
    if fold.redop() != RedOp::Avg {
        return;
    }
    match fold.dtype() {
        DataType::Int8 => each(data, |x: i8| x.divide(size)),
        DataType::Uint8 => each(data, |x: u8| x.divide(size)),
        DataType::Int16 => each(data, |x: i16| x.divide(size)),
        DataType::Uint16 => each(data, |x: u16| x.divide(size)),
        DataType::Int32 => each(data, |x: i32| x.divide(size)),
        DataType::Uint32 => each(data, |x: u32| x.divide(size)),
        DataType::Int64 => each(data, |x: i64| x.divide(size)),
        DataType::Uint64 => each(data, |x: u64| x.divide(size)),
        _ => {}
    }
}

fn integers<T: Integer>(redop: RedOp, into: &mut [u8], from: &[u8]) {
    match redop {
        RedOp::Sum | RedOp::Avg => pairs(into, from, T::add),
        RedOp::Prod => pairs(into, from, T::multiply),
        RedOp::Max => pairs(into, from, T::max),
        RedOp::Min => pairs(into, from, T::min),
        RedOp::BitAnd => pairs(into, from, |a: T, b: T| a & b),
        RedOp::BitOr => pairs(into, from, |a: T, b: T| a | b),
        RedOp::BitXor => pairs(into, from, |a: T, b: T| a ^ b),
        RedOp::LogicalAnd => pairs(into, from, |a: T, b: T| T::from_truth(a.truth() & b.truth())),
        RedOp::LogicalOr => pairs(into, from, |a: T, b: T| T::from_truth(a.truth() | b.truth())),
        RedOp::LogicalXor => pairs(into, from, |a: T, b: T| T::from_truth(a.truth() ^ b.truth())),
        RedOp::MaxRedOp => unreachable!("Fold::new refuses it"),
    }
}

/// Elements of type `T`, computed in `W`.
fn floats<T: Element<W>, W: Real>(redop: RedOp, into: &mut [u8], from: &[u8]) {
    match redop {
        RedOp::Sum | RedOp::Avg => pairs(into, from, |a: T, b: T| a.with(b, W::add)),
        RedOp::Prod => pairs(into, from, |a: T, b: T| a.with(b, W::multiply)),
        RedOp::Max => pairs(into, from, |a: T, b: T| a.with(b, W::max)),
        RedOp::Min => pairs(into, from, |a: T, b: T| a.with(b, W::min)),
        RedOp::BitAnd | RedOp::BitOr | RedOp::BitXor | RedOp::MaxRedOp => {
            unreachable!("Fold::new refuses them")
        }
        RedOp::LogicalAnd | RedOp::LogicalOr | RedOp::LogicalXor => {
            unreachable!("Fold::new refuses them")
        }
    }
}

fn pairs<T: Pod>(into: &mut [u8], from: &[u8], op: impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    for (a, b) in into.chunks_exact_mut(size).zip(from.chunks_exact(size)) {
        let result = op(pod_read_unaligned(a), pod_read_unaligned(b));
        a.copy_from_slice(bytes_of(&result));
    }
}

fn each<T: Pod>(data: &mut [u8], op: impl Fn(T) -> T) {
    for a in data.chunks_exact_mut(size_of::<T>()) {
        let result = op(pod_read_unaligned(a));
        a.copy_from_slice(bytes_of(&result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded<T: Pod>(dtype: DataType, redop: RedOp, a: T, b: T) -> T {
        let mut into = bytes_of(&a).to_vec();
        fold(Fold::new(dtype, redop).unwrap(), &mut into, bytes_of(&b));
        pod_read_unaligned(&into)
    }

    #[test]
    fn integers_wrap_and_compare_by_their_signedness() {
        assert_eq!(folded(DataType::Int8, RedOp::Sum, 127_i8, 1), -128);
        assert_eq!(folded(DataType::Uint8, RedOp::Prod, 16_u8, 17), 16);
        assert_eq!(folded(DataType::Int8, RedOp::Max, -1_i8, 1), 1);
        assert_eq!(folded(DataType::Uint8, RedOp::Max, 255_u8, 1), 255);
        assert_eq!(folded(DataType::Int64, RedOp::Min, i64::MIN, i64::MAX), i64::MIN);
        assert_eq!(folded(DataType::Uint16, RedOp::BitXor, 0xf0f0_u16, 0xffff), 0x0f0f);
        assert_eq!(folded(DataType::Int32, RedOp::LogicalAnd, 8_i32, -3), 1);
        assert_eq!(folded(DataType::Int32, RedOp::LogicalXor, 8_i32, -3), 0);
    }

    #[test]
    fn min_and_max_give_nan_for_nan_and_order_the_zeros_in_every_float_type() {
        fn check<T: Element<W> + Pod, W: Real>(dtype: DataType, from: fn(f32) -> T) {
            let bits = |x: T| bytes_of(&x).to_vec();
            let (zero, minus, nan) = (from(0.0), from(-0.0), from(f32::NAN));
            for (a, b) in [(zero, minus), (minus, zero)] {
                assert_eq!(bits(folded(dtype, RedOp::Min, a, b)), bits(minus), "{dtype}");
                assert_eq!(bits(folded(dtype, RedOp::Max, a, b)), bits(zero), "{dtype}");
            }
            for redop in [RedOp::Min, RedOp::Max, RedOp::Sum, RedOp::Prod] {
                let odd_nan = from(f32::from_bits(0xffc1_2345));
                for (a, b) in [(nan, zero), (zero, nan), (odd_nan, zero), (zero, odd_nan)] {
                    assert_eq!(bits(folded(dtype, redop, a, b)), bits(nan), "{dtype} {redop:?}");
                }
            }
        }
        check::<f32, f32>(DataType::Float32, |x| x);
        check::<f64, f64>(DataType::Float64, f64::from);
        check::<f16, f32>(DataType::Float16, f16::from_f32);
        check::<bf16, f32>(DataType::Bfloat16, bf16::from_f32);
    }

    #[test]
    fn infinity_minus_infinity_is_the_canonical_nan() {
        let sum = folded(DataType::Float32, RedOp::Sum, f32::INFINITY, f32::NEG_INFINITY);
        assert_eq!(sum.to_bits(), 0x7fc0_0000);
        let sum = folded(DataType::Float64, RedOp::Sum, f64::INFINITY, f64::NEG_INFINITY);
        assert_eq!(sum.to_bits(), 0x7ff8_0000_0000_0000);
    }

    #[test]
    fn halves_round_to_nearest_even() {
        let sum =
            |a, b| folded(DataType::Bfloat16, RedOp::Sum, bf16::from_f32(a), bf16::from_f32(b));
        assert_eq!(sum(256.0, 1.0), bf16::from_f32(256.0)); // a tie goes down to even
        assert_eq!(sum(258.0, 1.0), bf16::from_f32(260.0)); // and up to even
        let sum = |a, b| folded(DataType::Float16, RedOp::Sum, f16::from_f32(a), f16::from_f32(b));
        assert_eq!(sum(1.0, 0.9998).to_f32(), 2.0);
        assert_eq!(sum(2048.0, 1.0).to_f32(), 2048.0);
        assert_eq!(sum(2050.0, 1.0).to_f32(), 2052.0);
    }

    #[test]
    fn avg_scales_floats_first_and_divides_integers_last() {
        let avg = |dtype| Fold::new(dtype, RedOp::Avg).unwrap();
        let mut float = 3.0_f32.to_ne_bytes();
        prepare(avg(DataType::Float32), &mut float, 4);
        finish(avg(DataType::Float32), &mut float, 4);
        assert_eq!(f32::from_ne_bytes(float), 0.75);
        let mut int = (-7_i32).to_ne_bytes();
        prepare(avg(DataType::Int32), &mut int, 2);
        finish(avg(DataType::Int32), &mut int, 2);
        assert_eq!(i32::from_ne_bytes(int), -3);
        let mut byte = [100_u8];
        finish(avg(DataType::Int8), &mut byte, 300);
        assert_eq!(byte, [0], "a size that does not fit the type still divides");
    }

    #[test]
    fn logical_operators_see_zero_and_one_only() {
        let or = Fold::new(DataType::Int32, RedOp::LogicalOr).unwrap();
        let mut data = [[0, 0, 0, 0], [0, 7, 0, 0], [0xff; 4]].concat();
        prepare(or, &mut data, 1);
        assert_eq!(data, [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]].concat());
    }

    #[test]
    fn unaligned_arrays_fold_like_aligned_ones() {
        let values: Vec<u8> = (0..8 * 33).map(|i| (i * 37 % 251) as u8).collect();
        for dtype in DataType::ALL.into_iter().filter(|dtype| Fold::new(*dtype, RedOp::Sum).is_ok())
        {
            let sum = Fold::new(dtype, RedOp::Sum).unwrap();
            let mut aligned = values.clone();
            fold(sum, &mut aligned, &values);
            for shift in 1..8 {
                let mut memory = vec![0; values.len() + 8];
                memory[shift..shift + values.len()].copy_from_slice(&values);
                fold(sum, &mut memory[shift..shift + values.len()], &values);
                assert_eq!(memory[shift..shift + values.len()], aligned, "{dtype} at {shift}");
            }
        }
    }
}
