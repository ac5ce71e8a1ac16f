//! Shared by the tests: every fold, special elements, and the definition applied to one pair.

mod conversion;
mod environment;
mod form;
mod meaning;
mod stores;

use super::dispatch::elements;
use super::element::{Integer, Real, Small};
use super::isa::{Arrays, Isa};
use super::small::{Bf16, E4m3, E5m2, F16};
use crate::dtype::DataType;
use crate::op::{Fold, RedOp};

const FLOATS: [DataType; 6] = [
    DataType::Float32,
    DataType::Float64,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Float8e4m3,
    DataType::Float8e5m2,
];

/// Every operator on every type it is defined for.
fn folds() -> impl Iterator<Item = Fold> {
    DataType::ALL.into_iter().flat_map(|dtype| {
        RedOp::ALL.into_iter().filter_map(move |redop| Fold::new(dtype, redop).ok())
    })
}

/// The instruction sets of this machine.
fn isas() -> [Isa; 2] {
    [Isa::Baseline, Isa::best()]
}

fn fold_with(isa: Isa, fold: Fold, into: &mut [u8], from: &[u8]) {
    elements(fold.dtype()).fold(isa, fold.redop(), Arrays::InPlace { into, from });
}

/// `a op b` by the definition in `element`; the elements are in the lowest bits.
fn defined(fold: Fold, a: u64, b: u64) -> u64 {
    match fold.dtype() {
        DataType::Int8 => integer(fold.redop(), a as i8, b as i8) as u8 as u64,
        DataType::Uint8 => integer(fold.redop(), a as u8, b as u8) as u64,
        DataType::Int16 => integer(fold.redop(), a as i16, b as i16) as u16 as u64,
        DataType::Uint16 => integer(fold.redop(), a as u16, b as u16) as u64,
        DataType::Int32 => integer(fold.redop(), a as i32, b as i32) as u32 as u64,
        DataType::Uint32 => integer(fold.redop(), a as u32, b as u32) as u64,
        DataType::Int64 => integer(fold.redop(), a as i64, b as i64) as u64,
        DataType::Uint64 => integer(fold.redop(), a, b),
        DataType::Float32 => {
            let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            real(fold.redop(), a, b).to_bits() as u64
        }
        DataType::Float64 => real(fold.redop(), f64::from_bits(a), f64::from_bits(b)).to_bits(),
        DataType::Float16 => small::<F16>(fold.redop(), a, b),
        DataType::Bfloat16 => small::<Bf16>(fold.redop(), a, b),
        DataType::Float8e4m3 => small::<E4m3>(fold.redop(), a, b),
        DataType::Float8e5m2 => small::<E5m2>(fold.redop(), a, b),
        DataType::MaxDataType => unreachable!(),
    }
}

fn integer<T: Integer>(redop: RedOp, a: T, b: T) -> T {
    match redop {
        RedOp::Sum | RedOp::Avg => a.add(b),
        RedOp::Prod => a.multiply(b),
        RedOp::Max => a.max(b),
        RedOp::Min => a.min(b),
        RedOp::BitAnd => a & b,
        RedOp::BitOr => a | b,
        RedOp::BitXor => a ^ b,
        RedOp::LogicalAnd => T::from_truth(a.truth() && b.truth()),
        RedOp::LogicalOr => T::from_truth(a.truth() || b.truth()),
        RedOp::LogicalXor => T::from_truth(a.truth() != b.truth()),
        RedOp::MaxRedOp => unreachable!(),
    }
}

fn real<T: Real>(redop: RedOp, a: T, b: T) -> T {
    match redop {
        RedOp::Sum | RedOp::Avg => a.add(b),
        RedOp::Prod => a.multiply(b),
        RedOp::Max => a.max(b),
        RedOp::Min => a.min(b),
        _ => unreachable!(),
    }
}

/// Computes Max and Min through f32 too; the code under test compares codes instead.
fn small<S: Small>(redop: RedOp, a: u64, b: u64) -> u64 {
    S::narrow(real(redop, S::widen(a as u32), S::widen(b as u32))) as u64
}

/// Bits of NaNs, zeros, infinities, subnormals, the largest and ordinary numbers. For integers they
/// are ordinary values.
fn special(dtype: DataType) -> Vec<u64> {
    let positive: &[u64] = match dtype {
        DataType::Float64 | DataType::Int64 | DataType::Uint64 => &[
            0x7ff8_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            0x7fff_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0x7fef_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x000f_ffff_ffff_ffff,
            0x0000_0000_0000_0001,
            0x3ff0_0000_0000_0000,
            0x3fb9_9999_9999_999a,
            0x4340_0000_0000_0001,
            0x0000_0000_0000_0000,
        ],
        DataType::Float32 | DataType::Int32 | DataType::Uint32 => &[
            0x7fc0_0000,
            0x7f80_0001,
            0x7fff_ffff,
            0x7f80_0000,
            0x7f7f_ffff,
            0x0080_0000,
            0x007f_ffff,
            0x0000_0001,
            0x3f80_0000,
            0x3dcc_cccd,
            0x4b80_0001,
            0x0000_0000,
        ],
        DataType::Float16 | DataType::Int16 | DataType::Uint16 => &[
            0x7e00, 0x7c01, 0x7fff, 0x7c00, 0x7bff, 0x0400, 0x03ff, 0x0001, 0x3c00, 0x2e66, 0x6801,
            0x0000,
        ],
        DataType::Bfloat16 => &[
            0x7fc0, 0x7f81, 0x7fff, 0x7f80, 0x7f7f, 0x0080, 0x007f, 0x0001, 0x3f80, 0x3dcd, 0x4381,
            0x0000,
        ],
        DataType::Float8e4m3 => &[0x7f, 0x7e, 0x77, 0x08, 0x07, 0x01, 0x38, 0x1d, 0x59, 0x00],
        DataType::MaxDataType => unreachable!(),
        DataType::Float8e5m2 | DataType::Int8 | DataType::Uint8 => {
            &[0x7e, 0x7d, 0x7f, 0x7c, 0x7b, 0x04, 0x03, 0x01, 0x3c, 0x2e, 0x51, 0x00]
        }
    };
    let sign = 1 << (8 * dtype.size() - 1);
    positive.iter().flat_map(|bits| [*bits, bits | sign]).collect()
}

/// `count` pairs of special elements and random bits, the same in every run.
fn tried(dtype: DataType, count: usize) -> Vec<(u64, u64)> {
    let special = special(dtype);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut one = || match random() % 4 {
        0 => random() & (u64::MAX >> (64 - 8 * dtype.size())),
        _ => special[random() as usize % special.len()],
    };
    (0..count).map(|_| (one(), one())).collect()
}

/// An array of elements that are given by their bits.
fn array(dtype: DataType, elements: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let bytes = |bits: u64| bits.to_le_bytes().into_iter().take(dtype.size());
    elements.into_iter().flat_map(bytes).collect()
}

/// The bits of the elements of an array.
fn bits(dtype: DataType, array: &[u8]) -> Vec<u64> {
    let one = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    array.chunks_exact(dtype.size()).map(one).collect()
}
