//! The operations of one rank in a reduction: on its own elements before, while and after they are
//! folded.
//!
//! Leaves known operators to `dispatch`. Invariant: operands keep the order of ranks, which
//! functions of the program may depend on.

use smallvec::SmallVec;

use super::dispatch::{
    finish, finishes, fold, fold_inline, identity, premultiply, prepare, prepare_inline, prepares,
};
use super::environment::is_default;
use super::stores::{Stores, copy, fold_into};
use crate::dtype::ElementType;
use crate::op::{Reducer, Scalar, UserFunction};

/// Which operand the arriving elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

impl Side {
    /// The operand that rank `other` is for rank `me`: operands keep the order of ranks.
    pub fn of(other: usize, me: usize) -> Self {
        if other < me { Self::Left } else { Self::Right }
    }
}

/// Bytes folded at once where elements must be copied first: as many whole elements. The size of
/// every built-in type divides it.
const AT_ONCE: usize = 4096;

/// Zeroed memory, aligned for every element; on the heap only if an element is longer than
/// `AT_ONCE`.
type Aligned = SmallVec<[u128; AT_ONCE / size_of::<u128>()]>;

fn aligned(bytes: usize) -> Aligned {
    Aligned::from_elem(0, bytes.div_ceil(size_of::<u128>()))
}

/// The alignment that a function of the program expects. The size of a type of C is a multiple of
/// its alignment, and no ordinary type's is greater than 16.
fn alignment(dtype: ElementType) -> usize {
    match dtype {
        ElementType::Known(_) => 8,
        ElementType::Opaque(size) => (1 << size.get().trailing_zeros()).clamp(8, 16),
    }
}

impl Reducer {
    /// Prepares this rank's own elements for a fold with those of `size` ranks.
    pub fn prepare(&self, data: &mut [u8], size: usize) {
        match self {
            Self::Known(fold) => prepare(*fold, data, size),
            Self::PreMulSum { sum, scalar } => {
                let (Scalar::Here(scalar) | Scalar::Pinned { now: scalar, .. }) = scalar else {
                    unreachable!("a scalar is fetched before the operation")
                };
                let dtype = sum.dtype();
                premultiply(dtype, &scalar[..dtype.size()], data);
            }
            Self::User { .. } => {}
        }
    }

    /// As `prepare`, for few bytes: detecting the instruction set would cost more than it saves.
    #[inline]
    pub fn prepare_inline(&self, data: &mut [u8], size: usize) {
        match self {
            Self::Known(fold) => prepare_inline(*fold, data, size),
            _ => self.prepare(data, size),
        }
    }

    /// Whether `prepare` changes anything. If not, elements can be folded in place.
    #[inline]
    pub fn prepares(&self, size: usize) -> bool {
        match self {
            Self::Known(fold) => prepares(*fold, size),
            Self::PreMulSum { .. } => true,
            Self::User { .. } => false,
        }
    }

    /// The reducer for elements that are prepared already and will be finished later.
    pub fn after_prepare(&self) -> Self {
        match self {
            Self::Known(fold) => Self::Known(fold.after_prepare()),
            Self::PreMulSum { sum, .. } => Self::Known(*sum),
            Self::User { .. } => self.clone(),
        }
    }

    /// Finishes the folded elements.
    pub fn finish(&self, data: &mut [u8], size: usize) {
        if let Self::Known(fold) = self {
            finish(*fold, data, size);
        }
    }

    /// Whether `finish` changes anything.
    pub fn finishes(&self) -> bool {
        matches!(self, Self::Known(fold) if finishes(*fold))
    }

    /// Fills `data` with the identity of the operator. For a function of the program, which has
    /// none, `data` stays unchanged.
    pub fn identity(&self, data: &mut [u8]) {
        match self {
            Self::Known(fold) => identity(*fold, data),
            Self::PreMulSum { sum, .. } => identity(*sum, data),
            Self::User { .. } => {}
        }
    }

    /// `into = into op from`, or `from op into` if `from` is the left operand. Both hold the same
    /// number of whole elements.
    pub fn fold(&self, into: &mut [u8], from: &[u8], side: Side) {
        match self {
            Self::Known(known) => fold(*known, into, from),
            Self::PreMulSum { sum, .. } => fold(*sum, into, from),
            Self::User { dtype, function, .. } => {
                user_fold(*dtype, function.as_ref(), into, from, side);
            }
        }
    }

    /// Whether this thread may call `fold_inline`, which does not check the floating-point
    /// environment: a read between two folds stalls the pipeline for some 15 ns.
    #[inline(always)]
    pub fn can_fold_inline(&self) -> bool {
        self.dtype().is_integer() || is_default()
    }

    /// As `fold`, for few bytes: detecting the instruction set would cost more than it saves.
    #[inline]
    pub fn fold_inline(&self, into: &mut [u8], from: &[u8], side: Side) {
        match self {
            Self::Known(known) => fold_inline(*known, into, from),
            _ => self.fold(into, from, side),
        }
    }

    /// `into = left op right`. All hold the same number of whole elements.
    pub fn fold_into(&self, into: &mut [u8], left: &[u8], right: &[u8], stores: Stores) {
        match self {
            Self::Known(known) => fold_into(*known, into, left, right, stores),
            Self::PreMulSum { sum, .. } => fold_into(*sum, into, left, right, stores),
            Self::User { dtype, function, .. } => {
                into.copy_from_slice(right);
                user_fold(*dtype, function.as_ref(), into, left, Side::Left);
            }
        }
    }

    /// `into` becomes the fold of all operands in their order. Nothing is written if there are
    /// none.
    pub fn fold_all(&self, into: &mut [u8], operands: &[&[u8]], stores: Stores) {
        match operands {
            [] => {}
            [only] => copy(into, only, stores),
            [left, right] => self.fold_into(into, left, right, stores),
            [left, right, middle @ .., last] => {
                // A block stays in the first-level cache from one operand to the next.
                let width = self.dtype().whole(AT_ONCE);
                let mut folded = aligned(width.min(into.len()));
                let folded = bytemuck::cast_slice_mut(&mut folded);
                for (number, into) in into.chunks_mut(width).enumerate() {
                    let part = number * width..number * width + into.len();
                    let folded = &mut folded[..into.len()];
                    let first = &left[part.clone()];
                    self.fold_into(folded, first, &right[part.clone()], Stores::Cached);
                    for operand in middle {
                        self.fold(folded, &operand[part.clone()], Side::Right);
                    }
                    self.fold_into(into, folded, &last[part], stores);
                }
            }
        }
    }
}

/// Calls a function of the program, which writes its result over the right operand and expects
/// aligned elements.
fn user_fold(
    dtype: ElementType,
    function: &UserFunction,
    into: &mut [u8],
    from: &[u8],
    side: Side,
) {
    assert_eq!(into.len(), from.len(), "folded arrays are equally long");
    let is_aligned = |bytes: &[u8]| bytes.as_ptr().addr().is_multiple_of(alignment(dtype));
    if side == Side::Left && is_aligned(into) && is_aligned(from) {
        return function(from, into);
    }
    let width = dtype.whole(AT_ONCE);
    let (mut left, mut right) = (aligned(width.min(into.len())), aligned(width.min(into.len())));
    for (into, from) in into.chunks_mut(width).zip(from.chunks(width)) {
        let left = &mut bytemuck::cast_slice_mut(&mut left)[..into.len()];
        let right = &mut bytemuck::cast_slice_mut(&mut right)[..into.len()];
        let (first, second) = match side {
            Side::Left => (from, &*into),
            Side::Right => (&*into, from),
        };
        left.copy_from_slice(first);
        right.copy_from_slice(second);
        function(left, right);
        into.copy_from_slice(right);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dtype::{DataType, ElementSize};
    use crate::op::{Fold, RedOp};

    /// right = 2 left + right: neither commutative nor associative.
    fn lopsided(left: &[u8], right: &mut [u8]) {
        let (left, right): (&[u32], &mut [u32]) =
            (bytemuck::cast_slice(left), bytemuck::cast_slice_mut(right));
        left.iter()
            .zip(right)
            .for_each(|(left, right)| *right = right.wrapping_add(left.wrapping_mul(2)));
    }

    fn user() -> Reducer {
        let dtype = DataType::Uint32;
        Reducer::User { dtype: dtype.into(), commutative: false, function: Arc::new(lopsided) }
    }

    #[test]
    fn a_function_of_the_program_gets_its_operands_in_order_and_aligned() {
        let reducer = user();
        let values = |base: u32, count| (0..count).flat_map(move |i| (base + i).to_ne_bytes());
        for count in [0, 1, 1023, 1024, 1025, 3000] {
            for shift in [0, 1, 4] {
                for (side, one, other) in [(Side::Left, 100, 7), (Side::Right, 7, 100)] {
                    let mut memory = vec![0; shift];
                    memory.extend(values(7, count));
                    let from: Vec<u8> = values(100, count).collect();
                    reducer.fold(&mut memory[shift..], &from, side);
                    let expected: Vec<u8> = (0..count)
                        .flat_map(|i| (2 * (one + i) + other + i).to_ne_bytes())
                        .collect();
                    assert!(memory[shift..] == expected, "{count} at {shift}, {side:?}");
                }
            }
        }
    }

    #[test]
    fn a_function_of_the_program_gets_whole_elements_of_any_size_aligned() {
        for bytes in [1, 12, 16, 280, 4094, 4096, 10_000] {
            let dtype = ElementType::Opaque(ElementSize::new(bytes).unwrap());
            // The first byte of each element counts; the others keep what they are.
            let function = move |left: &[u8], right: &mut [u8]| {
                let shape = (left.len() % bytes, right.len() % bytes, left.len() == right.len());
                assert_eq!(shape, (0, 0, true), "whole elements");
                let aligned = |bytes: &[u8]| bytes.as_ptr().addr().is_multiple_of(alignment(dtype));
                assert!(aligned(left) && aligned(right));
                for (left, right) in left.chunks(bytes).zip(right.chunks_mut(bytes)) {
                    right[0] += left[0];
                }
            };
            let reducer = Reducer::User { dtype, commutative: false, function: Arc::new(function) };
            for (count, side) in [(0, Side::Left), (1, Side::Right), (30, Side::Left)] {
                let operand = |first| {
                    let mut operand = vec![7; 1 + count * bytes];
                    operand[1..].chunks_mut(bytes).for_each(|element| element[0] = first);
                    operand
                };
                let (one, two, three) = (operand(1), operand(2), operand(3));
                let mut into = operand(4);
                reducer.fold(&mut into[1..], &one[1..], side);
                assert!(into == operand(5), "{count} of {bytes}");
                let shares = [&one[1..], &two[1..], &three[1..], &two[1..]];
                reducer.fold_all(&mut into[1..], &shares, Stores::Cached);
                assert!(into == operand(8), "{count} of {bytes}");
            }
        }
    }

    #[test]
    fn a_result_apart_has_the_bits_of_a_copy_and_a_fold_in_place() {
        let sum = Fold::new(DataType::Uint32, RedOp::Sum).unwrap();
        let reducers =
            [Reducer::Known(sum), Reducer::PreMulSum { sum, scalar: Scalar::Here([3; 8]) }, user()];
        let from: Vec<u8> = (0..12_007).map(|index| (index % 251) as u8).collect();
        for (index, reducer) in reducers.into_iter().enumerate() {
            for (shift, stores) in [(0, Stores::Cached), (3, Stores::Streamed)] {
                let (left, right) = (&from[shift..][..6000], &from[6000 + shift..][..6000]);
                let mut expected = left.to_vec();
                reducer.fold(&mut expected, right, Side::Right);
                let mut into = vec![0; shift + 6000];
                reducer.fold_into(&mut into[shift..], left, right, stores);
                assert!(into[shift..] == expected, "reducer {index} at {shift}");
            }
        }
    }

    #[test]
    fn a_reducer_says_whether_it_prepares_and_finishes() {
        let known = |dtype, redop| Reducer::Known(Fold::new(dtype, redop).unwrap());
        let float_avg = known(DataType::Float32, RedOp::Avg);
        assert_eq!([float_avg.prepares(2), float_avg.finishes()], [true, false]);
        let integer_avg = known(DataType::Int32, RedOp::Avg);
        assert_eq!([integer_avg.prepares(2), integer_avg.finishes()], [false, true]);
        let float_sum = known(DataType::Float32, RedOp::Sum);
        assert_eq!([float_sum.prepares(1), float_sum.prepares(2)], [true, false]);
        let sum = Fold::new(DataType::Int32, RedOp::Sum).unwrap();
        let premultiplied = Reducer::PreMulSum { sum, scalar: Scalar::Here([3; 8]) };
        assert_eq!([premultiplied.prepares(2), premultiplied.finishes()], [true, false]);
        assert_eq!([user().prepares(2), user().finishes()], [false, false]);
    }
}
