//! Loops over arrays, written once for all instruction sets.
//!
//! Leaves to `element` what is done to an element, and to `isa` the instructions for which a loop
//! is compiled: every function here is inlined, so the loop is vectorised for the instructions of
//! its caller. Invariant: an array may begin at any address.

use bytemuck::{Pod, bytes_of, pod_read_unaligned};

use super::element::{FloatCode, Small};

/// Bytes of a word, which holds two or four small floats.
pub(super) const WORD: usize = 4;

#[inline(always)]
pub(super) fn pairs<T: Pod>(into: &mut [u8], from: &[u8], op: impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    for (a, b) in into.chunks_exact_mut(size).zip(from.chunks_exact(size)) {
        let result = op(pod_read_unaligned(a), pod_read_unaligned(b));
        a.copy_from_slice(bytes_of(&result));
    }
}

#[inline(always)]
pub(super) fn pairs_apart<T: Pod>(
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    op: impl Fn(T, T) -> T,
) {
    let size = size_of::<T>();
    let operands = left.chunks_exact(size).zip(right.chunks_exact(size));
    for (into, (a, b)) in into.chunks_exact_mut(size).zip(operands) {
        let result = op(pod_read_unaligned(a), pod_read_unaligned(b));
        into.copy_from_slice(bytes_of(&result));
    }
}

#[inline(always)]
pub(super) fn each<T: Pod>(data: &mut [u8], op: impl Fn(T) -> T) {
    for a in data.chunks_exact_mut(size_of::<T>()) {
        let result = op(pod_read_unaligned(a));
        a.copy_from_slice(bytes_of(&result));
    }
}

/// Whole words of small floats.
#[inline(always)]
pub(super) fn word_pairs<S: Small>(
    into: &mut [u8],
    from: &[u8],
    op: impl Fn(f32, f32) -> f32 + Copy,
) {
    for (a, b) in into.chunks_exact_mut(WORD).zip(from.chunks_exact(WORD)) {
        let result = word::<S>(pod_read_unaligned(a), pod_read_unaligned(b), op);
        a.copy_from_slice(bytes_of(&result));
    }
}

/// Whole words of small floats.
#[inline(always)]
pub(super) fn word_each<S: Small>(data: &mut [u8], op: impl Fn(f32) -> f32 + Copy) {
    for a in data.chunks_exact_mut(WORD) {
        let both = pod_read_unaligned(a);
        let result = word::<S>(both, both, |x, _| op(x));
        a.copy_from_slice(bytes_of(&result));
    }
}

/// Extracts elements from a word and inserts them by shifts, which is cheaper than spreading the
/// elements of one vector over several. Unrolled, because the compiler does not vectorise nested
/// loops.
#[inline(always)]
fn word<S: Small>(a: u32, b: u32, op: impl Fn(f32, f32) -> f32 + Copy) -> u32 {
    let (low, high) = (half_word::<S>(a, b, op), half_word::<S>(a >> 16, b >> 16, op));
    low | high << 16
}

#[inline(always)]
fn half_word<S: Small>(a: u32, b: u32, op: impl Fn(f32, f32) -> f32 + Copy) -> u32 {
    match S::Code::BITS {
        8 => lowest::<S>(a, b, op) | lowest::<S>(a >> 8, b >> 8, op) << 8,
        _ => lowest::<S>(a, b, op),
    }
}

#[inline(always)]
fn lowest<S: Small>(a: u32, b: u32, op: impl Fn(f32, f32) -> f32) -> u32 {
    S::narrow(op(S::widen(a), S::widen(b)))
}
