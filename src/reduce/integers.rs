//! Arrays of integers.
//!
//! Invariant: a loop is chosen once per array, never per element.

use std::marker::PhantomData;

use bytemuck::{Pod, pod_read_unaligned};

use super::Elements;
use super::array::{Isa, each, pairs};
use super::element::Integer;
use crate::op::RedOp;

pub(super) struct Integers<T>(pub(super) PhantomData<T>);

impl<T: Integer> Elements for Integers<T> {
    fn fold(&self, isa: Isa, redop: RedOp, into: &mut [u8], from: &[u8]) {
        match redop {
            RedOp::Sum | RedOp::Avg => combine(isa, into, from, T::add),
            RedOp::Prod => combine(isa, into, from, T::multiply),
            RedOp::Max => combine(isa, into, from, T::max),
            RedOp::Min => combine(isa, into, from, T::min),
            RedOp::BitAnd => combine(isa, into, from, |a: T, b| a & b),
            RedOp::BitOr => combine(isa, into, from, |a: T, b| a | b),
            RedOp::BitXor => combine(isa, into, from, |a: T, b| a ^ b),
            RedOp::LogicalAnd => logical(isa, into, from, |a: T, b| a.truth() & b.truth()),
            RedOp::LogicalOr => logical(isa, into, from, |a: T, b| a.truth() | b.truth()),
            RedOp::LogicalXor => logical(isa, into, from, |a: T, b| a.truth() ^ b.truth()),
            RedOp::MaxRedOp => unreachable!("Fold::new refuses it"),
        }
    }

    fn prepare(&self, isa: Isa, redop: RedOp, data: &mut [u8], _size: usize) {
        match redop {
            RedOp::LogicalAnd | RedOp::LogicalOr | RedOp::LogicalXor => {
                isa.run(|| each(data, |x: T| T::from_truth(x.truth())));
            }
            _ => {}
        }
    }

    fn finish(&self, isa: Isa, redop: RedOp, data: &mut [u8], size: usize) {
        if redop == RedOp::Avg {
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

fn combine<T: Pod>(isa: Isa, into: &mut [u8], from: &[u8], op: impl Fn(T, T) -> T) {
    isa.run(|| pairs(into, from, op));
}

fn logical<T: Integer>(isa: Isa, into: &mut [u8], from: &[u8], op: impl Fn(T, T) -> bool) {
    isa.run(|| pairs(into, from, |a, b| T::from_truth(op(a, b))));
}
