//! Arrays of integers.
//!
//! Leaves to `element` the operators. Invariant: a loop is chosen once per array, never per
//! element.

use std::marker::PhantomData;

use bytemuck::pod_read_unaligned;

use super::array::each;
use super::element::Integer;
use super::elements::Elements;
use super::isa::{Arrays, Isa};
use crate::op::RedOp;

pub(super) struct Integers<T>(pub(super) PhantomData<T>);

impl<T: Integer> Elements for Integers<T> {
    fn fold(&self, isa: Isa, redop: RedOp, arrays: Arrays<'_>) {
        match redop {
            RedOp::Sum | RedOp::Avg => isa.run_pairs(arrays, T::add),
            RedOp::Prod => isa.run_pairs(arrays, T::multiply),
            RedOp::Max => isa.run_pairs(arrays, T::max),
            RedOp::Min => isa.run_pairs(arrays, T::min),
            RedOp::BitAnd => isa.run_pairs(arrays, |a: T, b| a & b),
            RedOp::BitOr => isa.run_pairs(arrays, |a: T, b| a | b),
            RedOp::BitXor => isa.run_pairs(arrays, |a: T, b| a ^ b),
            RedOp::LogicalAnd => logical(isa, arrays, |a: T, b| a.truth() & b.truth()),
            RedOp::LogicalOr => logical(isa, arrays, |a: T, b| a.truth() | b.truth()),
            RedOp::LogicalXor => logical(isa, arrays, |a: T, b| a.truth() ^ b.truth()),
            RedOp::MaxRedOp => unreachable!("Fold::new refuses it"),
        }
    }

    fn prepares(&self, redop: RedOp, _size: usize) -> bool {
        matches!(redop, RedOp::LogicalAnd | RedOp::LogicalOr | RedOp::LogicalXor)
    }

    fn prepare(&self, isa: Isa, redop: RedOp, data: &mut [u8], size: usize) {
        if self.prepares(redop, size) {
            isa.run(|| each(data, |x: T| T::from_truth(x.truth())));
        }
    }

    fn finishes(&self, redop: RedOp) -> bool {
        redop == RedOp::Avg
    }

    fn finish(&self, isa: Isa, redop: RedOp, data: &mut [u8], size: usize) {
        if self.finishes(redop) {
            isa.run(|| each(data, |x: T| x.divide(size)));
        }
    }

    fn premultiply(&self, isa: Isa, scalar: &[u8], data: &mut [u8]) {
        let scalar: T = pod_read_unaligned(scalar);
        isa.run(|| each(data, |x: T| x.multiply(scalar)));
    }

    fn identity(&self, isa: Isa, redop: RedOp, data: &mut [u8]) {
        let identity = match redop {
            RedOp::Sum | RedOp::BitOr | RedOp::BitXor => T::ZERO,
            RedOp::LogicalOr | RedOp::LogicalXor => T::ZERO,
            RedOp::Prod | RedOp::LogicalAnd => T::ONE,
            RedOp::Max => T::LEAST,
            RedOp::Min => T::GREATEST,
            RedOp::BitAnd => T::ALL_ONES,
            RedOp::Avg | RedOp::MaxRedOp => unreachable!("it has none, and capi refuses it"),
        };
        isa.run(|| each(data, |_| identity));
    }
}

fn logical<T: Integer>(isa: Isa, arrays: Arrays<'_>, op: impl Fn(T, T) -> bool) {
    isa.run_pairs(arrays, |a, b| T::from_truth(op(a, b)));
}
