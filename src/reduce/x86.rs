//! What AVX2 and F16C are for: the loops of `array` compiled for them, and f16 converted by them.
//!
//! Invariant: their functions are reached through an `Avx2` alone, and one exists only where the
//! CPU has both.
#![expect(unsafe_code, reason = "a CPU that says it has AVX2 and F16C may be told to use them")]

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_prefetch, _mm256_cvtph_ps, _mm256_cvtps_ph,
};

use bytemuck::{bytes_of, cast, pod_read_unaligned};

/// Bytes of the eight f16 that are converted at once.
pub(super) const EIGHT_F16: usize = 16;

const LINE: usize = 64;
/// How far ahead lines are asked for: far enough to arrive in time, near enough to be still there.
const AHEAD: usize = 16 * LINE;

/// Proof that this CPU has AVX2 and F16C.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// std asks the CPU once and remembers.
    pub(super) fn detect() -> Option<Self> {
        let both = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        both.then_some(Self(()))
    }

    pub(super) fn run(self, work: impl FnOnce()) {
        // SAFETY: self proves that the CPU has what `compiled` is compiled for.
        unsafe { compiled(work) }
    }

    pub(super) fn run_ahead(self, into: &mut [u8], from: &[u8], work: impl Fn(&mut [u8], &[u8])) {
        // SAFETY: self proves that the CPU has what `ahead` is compiled for.
        unsafe { ahead(into, from, work) }
    }

    /// Whole blocks of `EIGHT_F16`.
    pub(super) fn f16_pairs(self, into: &mut [u8], from: &[u8], op: impl Fn(f32, f32) -> f32) {
        // SAFETY: self proves that the CPU has what `f16_pairs` is compiled for.
        unsafe { f16_pairs(into, from, op) }
    }

    /// Whole blocks of `EIGHT_F16`.
    pub(super) fn f16_each(self, data: &mut [u8], op: impl Fn(f32) -> f32) {
        // SAFETY: self proves that the CPU has what `f16_each` is compiled for.
        unsafe { f16_each(data, op) }
    }
}

#[target_feature(enable = "avx2,f16c")]
fn compiled(work: impl FnOnce()) {
    work();
}

/// Line by line, each time asking for lines to come. A CPU looks ahead over some hundred
/// instructions; where a line takes dozens, it would wait for memory without being asked.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn ahead(into: &mut [u8], from: &[u8], work: impl Fn(&mut [u8], &[u8])) {
    let mut into = into.chunks_exact_mut(LINE);
    let mut from = from.chunks_exact(LINE);
    for (a, b) in (&mut into).zip(&mut from) {
        fetch(a.as_ptr().wrapping_add(AHEAD));
        fetch(b.as_ptr().wrapping_add(AHEAD));
        work(a, b);
    }
    work(into.into_remainder(), from.remainder());
}

#[inline(always)]
fn fetch(address: *const u8) {
    // SAFETY: a hint, to which no address is wrong.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[target_feature(enable = "avx2,f16c")]
fn f16_pairs(into: &mut [u8], from: &[u8], op: impl Fn(f32, f32) -> f32) {
    ahead(into, from, |into, from| {
        for (a, b) in into.chunks_exact_mut(EIGHT_F16).zip(from.chunks_exact(EIGHT_F16)) {
            let mut wide = widen(a);
            for (a, b) in wide.iter_mut().zip(widen(b)) {
                *a = op(*a, b);
            }
            narrow(wide, a);
        }
    });
}

#[target_feature(enable = "avx2,f16c")]
fn f16_each(data: &mut [u8], op: impl Fn(f32) -> f32) {
    for a in data.chunks_exact_mut(EIGHT_F16) {
        let mut wide = widen(a);
        for a in &mut wide {
            *a = op(*a);
        }
        narrow(wide, a);
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen(block: &[u8]) -> [f32; 8] {
    cast(_mm256_cvtph_ps(pod_read_unaligned(block)))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow(wide: [f32; 8], block: &mut [u8]) {
    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(cast(wide));
    block.copy_from_slice(bytes_of(&halves));
}
