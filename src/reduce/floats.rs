//! Arrays of floats.
//!
//! Leaves to `element` the operators, and to `environment` the floating-point environment.
//! Invariant: a loop is chosen once per array, never per element.
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, reason = "only the loops of x86-64 use them")
)]

use std::marker::PhantomData;

use bytemuck::pod_read_unaligned;

use super::array::{WORD, each, pairs, word_each, word_pairs};
use super::element::{FloatCode, Real, Small};
use super::elements::Elements;
use super::environment::in_default;
use super::isa::{Arrays, Isa, Sums};
use super::small::{Bf16, E4m3, E5m2, F16};
use crate::op::RedOp;

pub(super) struct Floats<L>(pub(super) PhantomData<L>);

impl<L: FloatFormat> Elements for Floats<L> {
    fn fold(&self, isa: Isa, redop: RedOp, arrays: Arrays<'_>) {
        in_default(|| fold::<L>(isa, redop, arrays));
    }

    fn fold_in_default(&self, isa: Isa, redop: RedOp, arrays: Arrays<'_>) {
        fold::<L>(isa, redop, arrays);
    }

    fn prepares(&self, redop: RedOp, size: usize) -> bool {
        // A single rank folds nothing, but its NaNs become canonical, as by folding.
        redop == RedOp::Avg || size == 1
    }

    fn prepare(&self, isa: Isa, redop: RedOp, data: &mut [u8], size: usize) {
        if self.prepares(redop, size) {
            in_default(|| divide::<L>(isa, data, size));
        }
    }

    fn finishes(&self, _redop: RedOp) -> bool {
        false
    }

    fn finish(&self, _isa: Isa, _redop: RedOp, _data: &mut [u8], _size: usize) {}

    fn premultiply(&self, isa: Isa, scalar: &[u8], data: &mut [u8]) {
        in_default(|| premultiply::<L>(isa, scalar, data));
    }

    fn identity(&self, isa: Isa, redop: RedOp, data: &mut [u8]) {
        in_default(|| identity::<L>(isa, redop, data));
    }
}

// None of the following functions is inlined: see `in_default`.

#[inline(never)]
fn fold<L: FloatFormat>(isa: Isa, redop: RedOp, arrays: Arrays<'_>) {
    match redop {
        RedOp::Sum | RedOp::Avg => L::sum(isa, arrays),
        RedOp::Prod => L::pairs(isa, arrays, L::Wide::multiply),
        RedOp::Max => L::max(isa, arrays),
        RedOp::Min => L::min(isa, arrays),
        _ => unreachable!("Fold::new refuses it"),
    }
}

#[inline(never)]
fn divide<L: FloatFormat>(isa: Isa, data: &mut [u8], size: usize) {
    let factor = L::Wide::one_over(size);
    L::each(isa, data, |x| x.multiply(factor));
}

#[inline(never)]
fn premultiply<L: FloatFormat>(isa: Isa, scalar: &[u8], data: &mut [u8]) {
    let scalar = L::read(scalar);
    L::each(isa, data, |x| x.multiply(scalar));
}

#[inline(never)]
fn identity<L: FloatFormat>(isa: Isa, redop: RedOp, data: &mut [u8]) {
    let identity = match redop {
        RedOp::Sum => L::Wide::ZERO,
        RedOp::Prod => L::Wide::ONE,
        // It becomes the largest number in a type without infinity.
        RedOp::Max => L::Wide::MINUS_INFINITY,
        RedOp::Min => L::Wide::INFINITY,
        _ => unreachable!("it has none, and capi refuses it"),
    };
    L::each(isa, data, |_| identity);
}

/// How floats are stored in an array, and in which precision they are computed.
pub(super) trait FloatFormat {
    type Wide: Real;

    fn pairs(
        isa: Isa,
        arrays: Arrays<'_>,
        op: impl Fn(Self::Wide, Self::Wide) -> Self::Wide + Copy,
    );
    fn sum(isa: Isa, arrays: Arrays<'_>) {
        Self::pairs(isa, arrays, Self::Wide::add);
    }
    fn max(isa: Isa, arrays: Arrays<'_>);
    fn min(isa: Isa, arrays: Arrays<'_>);
    fn each(isa: Isa, data: &mut [u8], op: impl Fn(Self::Wide) -> Self::Wide + Copy);
    fn read(element: &[u8]) -> Self::Wide;
}

/// f32 and f64, computed in their own precision.
pub(super) struct Own<W>(PhantomData<W>);

impl<W: Sums> FloatFormat for Own<W> {
    type Wide = W;

    fn pairs(isa: Isa, arrays: Arrays<'_>, op: impl Fn(W, W) -> W + Copy) {
        isa.run_pairs(arrays, op);
    }

    fn sum(isa: Isa, arrays: Arrays<'_>) {
        W::sums(isa, arrays);
    }

    fn max(isa: Isa, arrays: Arrays<'_>) {
        isa.run_pairs(arrays, W::max);
    }

    fn min(isa: Isa, arrays: Arrays<'_>) {
        isa.run_pairs(arrays, W::min);
    }

    fn each(isa: Isa, data: &mut [u8], op: impl Fn(W) -> W + Copy) {
        isa.run(|| each(data, op));
    }

    fn read(element: &[u8]) -> W {
        pod_read_unaligned(element)
    }
}

/// Vectorised loops over small floats, where the CPU has instructions for them. Each returns the
/// number of bytes that it has processed.
pub(super) trait VectorLoops: Small {
    fn pairs(
        _isa: Isa,
        _into: &mut [u8],
        _from: &[u8],
        _op: impl Fn(f32, f32) -> f32 + Copy,
    ) -> usize {
        0
    }
    fn sums(_isa: Isa, _into: &mut [u8], _from: &[u8]) -> usize {
        0
    }
    fn each(_isa: Isa, _data: &mut [u8], _op: impl Fn(f32) -> f32 + Copy) -> usize {
        0
    }
}

impl VectorLoops for E4m3 {}
impl VectorLoops for E5m2 {}

impl VectorLoops for Bf16 {
    fn sums(isa: Isa, into: &mut [u8], from: &[u8]) -> usize {
        match isa {
            Isa::Baseline => 0,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2.bf16_sums(into, from),
        }
    }
}

impl VectorLoops for F16 {
    fn pairs(isa: Isa, into: &mut [u8], from: &[u8], op: impl Fn(f32, f32) -> f32 + Copy) -> usize {
        match isa {
            Isa::Baseline => 0,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2.f16_pairs(into, from, op),
        }
    }

    fn sums(isa: Isa, into: &mut [u8], from: &[u8]) -> usize {
        match isa {
            Isa::Baseline => 0,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2.f16_sums(into, from),
        }
    }

    fn each(isa: Isa, data: &mut [u8], op: impl Fn(f32) -> f32 + Copy) -> usize {
        match isa {
            Isa::Baseline => 0,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2.f16_each(data, op),
        }
    }
}

/// Small floats, several to a word.
pub(super) struct Packed<S>(PhantomData<S>);

impl<S: VectorLoops> FloatFormat for Packed<S> {
    type Wide = f32;

    fn pairs(isa: Isa, arrays: Arrays<'_>, op: impl Fn(f32, f32) -> f32 + Copy) {
        let (into, from) = arrays.in_place();
        let done = S::pairs(isa, into, from, op);
        packed_pairs::<S>(isa, &mut into[done..], &from[done..], op);
    }

    fn sum(isa: Isa, arrays: Arrays<'_>) {
        let (into, from) = arrays.in_place();
        let done = S::sums(isa, into, from);
        let (into, from) = (&mut into[done..], &from[done..]);
        Self::pairs(isa, Arrays::InPlace { into, from }, Real::add);
    }

    fn max(isa: Isa, arrays: Arrays<'_>) {
        let (into, from) = arrays.in_place();
        isa.run_ahead(into, from, |into, from| pairs(into, from, S::max));
    }

    fn min(isa: Isa, arrays: Arrays<'_>) {
        let (into, from) = arrays.in_place();
        isa.run_ahead(into, from, |into, from| pairs(into, from, S::min));
    }

    fn each(isa: Isa, data: &mut [u8], op: impl Fn(f32) -> f32 + Copy) {
        let done = S::each(isa, data, op);
        let data = &mut data[done..];
        let (data, rest) = data.split_at_mut(data.len() / WORD * WORD);
        isa.run(|| word_each::<S>(data, op));
        if !rest.is_empty() {
            let mut last = padded(rest);
            word_each::<S>(&mut last, op);
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    fn read(element: &[u8]) -> f32 {
        S::widen(u32::from_le_bytes(padded(element)))
    }
}

fn packed_pairs<S: Small>(
    isa: Isa,
    into: &mut [u8],
    from: &[u8],
    op: impl Fn(f32, f32) -> f32 + Copy,
) {
    let (into, into_rest) = into.split_at_mut(into.len() / WORD * WORD);
    let (from, from_rest) = from.split_at(into.len());
    match S::Code::BITS {
        // The arithmetic of 8-bit floats takes longer than memory does.
        8 => isa.run(|| word_pairs::<S>(into, from, op)),
        _ => isa.run_ahead(into, from, |into, from| word_pairs::<S>(into, from, op)),
    }
    if !into_rest.is_empty() {
        let mut last = padded(into_rest);
        word_pairs::<S>(&mut last, &padded(from_rest), op);
        into_rest.copy_from_slice(&last[..into_rest.len()]);
    }
}

/// Less than a word, padded with zeros to a word.
fn padded(rest: &[u8]) -> [u8; WORD] {
    let mut word = [0; WORD];
    word[..rest.len()].copy_from_slice(rest);
    word
}
