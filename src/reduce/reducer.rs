//! What a rank does with its elements in a reduction: before, while and after they are folded.

use super::{finish, fold, identity, premultiply, prepare};
use crate::op::{Reducer, UserFunction};

/// Which operand the elements are that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

impl Side {
    /// The side of `other` as `me` sees it: operands keep the order of their numbers.
    pub fn of(other: usize, me: usize) -> Self {
        if other < me { Self::Left } else { Self::Right }
    }
}

/// Bytes folded at once where elements must be moved first. Every element's size divides it.
const AT_ONCE: usize = 4096;

/// The strictest alignment of an element.
const ALIGNMENT: usize = 8;

impl Reducer {
    /// What this rank's own elements need before they are folded with those of `size` ranks.
    pub fn prepare(&self, data: &mut [u8], size: usize) {
        match self {
            Self::Known(fold) => prepare(*fold, data, size),
            Self::PreMulSum { sum, scalar } => {
                let dtype = sum.dtype();
                premultiply(dtype, &scalar[..dtype.size()], data);
            }
            Self::User { .. } => {}
        }
    }

    /// What the folded elements need at the end.
    pub fn finish(&self, data: &mut [u8], size: usize) {
        if let Self::Known(fold) = self {
            finish(*fold, data, size);
        }
    }

    /// What changes no operand; a function of the program has none and leaves the data alone.
    pub fn identity(&self, data: &mut [u8]) {
        match self {
            Self::Known(fold) => identity(*fold, data),
            Self::PreMulSum { sum, .. } => identity(*sum, data),
            Self::User { .. } => {}
        }
    }

    /// `into = into op from`, or `from op into` if they come from the left. Both hold the same
    /// number of whole elements.
    pub fn fold(&self, into: &mut [u8], from: &[u8], side: Side) {
        match self {
            Self::Known(known) => fold(*known, into, from),
            Self::PreMulSum { sum, .. } => fold(*sum, into, from),
            Self::User { function, .. } => user_fold(function.as_ref(), into, from, side),
        }
    }
}

/// Functions of programs write their result over the right operand and expect aligned elements.
fn user_fold(function: &UserFunction, into: &mut [u8], from: &[u8], side: Side) {
    assert_eq!(into.len(), from.len(), "folded arrays are equally long");
    let aligned = |bytes: &[u8]| bytes.as_ptr().addr().is_multiple_of(ALIGNMENT);
    if side == Side::Left && aligned(into) && aligned(from) {
        return function(from, into);
    }
    // Arrays of u64, seen as bytes, are aligned.
    let (mut left, mut right) = ([0_u64; AT_ONCE / 8], [0_u64; AT_ONCE / 8]);
    for (into, from) in into.chunks_mut(AT_ONCE).zip(from.chunks(AT_ONCE)) {
        let left = &mut bytemuck::bytes_of_mut(&mut left)[..into.len()];
        let right = &mut bytemuck::bytes_of_mut(&mut right)[..into.len()];
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
    use crate::dtype::DataType;

    /// right = 2 left + right: neither commutative nor associative.
    fn lopsided(left: &[u8], right: &mut [u8]) {
        let (left, right): (&[u32], &mut [u32]) =
            (bytemuck::cast_slice(left), bytemuck::cast_slice_mut(right));
        left.iter().zip(right).for_each(|(left, right)| *right = right.wrapping_add(2 * left));
    }

    #[test]
    fn a_function_of_the_program_gets_its_operands_in_order_and_aligned() {
        let reducer = Reducer::User {
            dtype: DataType::Uint32,
            commutative: false,
            function: Arc::new(lopsided),
        };
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
}
