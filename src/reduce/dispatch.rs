//! The operations of a reduction by data type: each call is dispatched to the code for its type.
//!
//! Leaves to `integers` and `floats` the operations, and to `stores` results that are written apart
//! from both operands. Invariant: the instruction set and the type are chosen once per array.

use std::marker::PhantomData;

use super::elements::Elements;
use super::floats::{Floats, Own, Packed};
use super::integers::Integers;
use super::isa::{Arrays, Isa};
use super::small::{Bf16, E4m3, E5m2, F16};
use crate::dtype::DataType;
use crate::op::Fold;

/// `into[i] = into[i] op from[i]`. Both hold the same number of whole elements.
pub fn fold(fold: Fold, into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "folded arrays are equally long");
    elements(fold.dtype()).fold(Isa::best(), fold.redop(), Arrays::InPlace { into, from });
}

/// As `fold`, with the instructions that every CPU has. Only where `Reducer::can_fold_inline`.
#[inline]
pub fn fold_inline(fold: Fold, into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "folded arrays are equally long");
    elements(fold.dtype()).fold_in_default(
        Isa::Baseline,
        fold.redop(),
        Arrays::InPlace { into, from },
    );
}

/// Prepares this rank's own elements for a fold: Avg multiplies floats by 1/size, and logical
/// operators convert them to 0 and 1.
pub fn prepare(fold: Fold, data: &mut [u8], size: usize) {
    elements(fold.dtype()).prepare(Isa::best(), fold.redop(), data, size);
}

/// As `prepare`, with the instructions that every CPU has.
#[inline]
pub fn prepare_inline(fold: Fold, data: &mut [u8], size: usize) {
    elements(fold.dtype()).prepare(Isa::Baseline, fold.redop(), data, size);
}

/// Whether `prepare` changes anything.
pub fn prepares(fold: Fold, size: usize) -> bool {
    elements(fold.dtype()).prepares(fold.redop(), size)
}

/// Finishes the folded elements: Avg divides integers by size, towards zero.
pub fn finish(fold: Fold, data: &mut [u8], size: usize) {
    elements(fold.dtype()).finish(Isa::best(), fold.redop(), data, size);
}

/// Whether `finish` changes anything.
pub fn finishes(fold: Fold) -> bool {
    elements(fold.dtype()).finishes(fold.redop())
}

/// Multiplies each element by `scalar`, which is one element of the same type.
pub fn premultiply(dtype: DataType, scalar: &[u8], data: &mut [u8]) {
    assert_eq!(scalar.len(), dtype.size(), "the scalar is one element");
    elements(dtype).premultiply(Isa::best(), scalar, data);
}

/// Fills `data` with the identity of the operator. Avg has none.
pub fn identity(fold: Fold, data: &mut [u8]) {
    elements(fold.dtype()).identity(Isa::best(), fold.redop(), data);
}

/// The operations on arrays of `dtype`.
pub(super) fn elements(dtype: DataType) -> &'static dyn Elements {
    match dtype {
        DataType::Int8 => &Integers::<i8>(PhantomData),
        DataType::Uint8 => &Integers::<u8>(PhantomData),
        DataType::Int16 => &Integers::<i16>(PhantomData),
        DataType::Uint16 => &Integers::<u16>(PhantomData),
        DataType::Int32 => &Integers::<i32>(PhantomData),
        DataType::Uint32 => &Integers::<u32>(PhantomData),
        DataType::Int64 => &Integers::<i64>(PhantomData),
        DataType::Uint64 => &Integers::<u64>(PhantomData),
        DataType::Float32 => &Floats::<Own<f32>>(PhantomData),
        DataType::Float64 => &Floats::<Own<f64>>(PhantomData),
        DataType::Float16 => &Floats::<Packed<F16>>(PhantomData),
        DataType::Bfloat16 => &Floats::<Packed<Bf16>>(PhantomData),
        DataType::Float8e4m3 => &Floats::<Packed<E4m3>>(PhantomData),
        DataType::Float8e5m2 => &Floats::<Packed<E5m2>>(PhantomData),
        DataType::MaxDataType => unreachable!("Fold::new refuses it"),
    }
}
