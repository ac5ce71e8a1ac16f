//! AVX2 and F16C: the loops of `array` compiled for them, and intrinsics where these gain much.
//!
//! These are the conversion of f16, stores past the cache, and sums of floats of 16 bits and more,
//! which are searched for NaN several vectors at a time: a check of each vector costs a tenth of
//! the speed. Leaves the choice of the instruction set to `isa`. Invariant: these functions are
//! reached only through an `Avx2`, which exists only if the CPU has both.
#![expect(unsafe_code, reason = "functions for AVX2 and F16C may be called where the CPU has both")]

use std::arch::x86_64::{
    __m128i, __m256, __m256d, __m256i, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0,
    _mm_prefetch, _mm_sfence, _mm256_add_epi32, _mm256_add_pd, _mm256_add_ps, _mm256_and_si256,
    _mm256_blend_epi16, _mm256_cmp_pd, _mm256_cmp_ps, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_movemask_epi8, _mm256_movemask_ps, _mm256_or_ps, _mm256_or_si256, _mm256_set1_epi32,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_stream_si256,
};
use std::array::from_fn;

use bytemuck::{Pod, bytes_of, bytes_of_mut, cast, pod_read_unaligned};

use super::array::{pairs, pairs_apart, word_pairs};
use super::element::Real;
use super::small::{Bf16, F16};

/// Vectors whose sums are searched for NaN together.
const TOGETHER: usize = 8;

/// Bytes of eight f16, which one instruction converts.
const EIGHT_F16: usize = 16;

const LINE: usize = 64;
/// How far ahead lines are prefetched: far enough to arrive in time, near enough not to be evicted
/// before. Lines that are written take longer to arrive.
const AHEAD_FROM: usize = 16 * LINE;
const AHEAD_INTO: usize = 20 * LINE;
/// Bytes that are processed between two prefetches.
const STEP: usize = 2 * LINE;

/// Proof that this CPU has AVX2 and F16C.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// std detects the features once and caches the result.
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

    pub(super) fn f32_sums_apart(self, into: &mut [u8], left: &[u8], right: &[u8]) {
        // SAFETY: self proves that the CPU has what `f32_sums_apart` is compiled for.
        unsafe { f32_sums_apart(into, left, right) }
    }

    pub(super) fn f32_sums(self, into: &mut [u8], from: &[u8]) {
        // SAFETY: self proves that the CPU has what `f32_sums` is compiled for.
        unsafe { f32_sums(into, from) }
    }

    pub(super) fn f64_sums_apart(self, into: &mut [u8], left: &[u8], right: &[u8]) {
        // SAFETY: self proves that the CPU has what `f64_sums_apart` is compiled for.
        unsafe { f64_sums_apart(into, left, right) }
    }

    pub(super) fn f64_sums(self, into: &mut [u8], from: &[u8]) {
        // SAFETY: self proves that the CPU has what `f64_sums` is compiled for.
        unsafe { f64_sums(into, from) }
    }

    /// Stores `left`, on which `work` has operated with `right`, to `into` past the cache, step by
    /// step.
    pub(super) fn stream(
        self,
        into: &mut [u8],
        left: &[u8],
        right: &[u8],
        work: impl Fn(&mut [u8], &[u8]),
    ) {
        // SAFETY: self proves that the CPU has what `stream` is compiled for.
        unsafe { stream(into, left, right, work) }
    }

    /// Processes the whole steps. Returns their bytes.
    pub(super) fn bf16_sums(self, into: &mut [u8], from: &[u8]) -> usize {
        let whole = whole(into, STEP);
        // SAFETY: self proves that the CPU has what `bf16_sums` is compiled for.
        unsafe { bf16_sums(&mut into[..whole], &from[..whole]) };
        whole
    }

    /// Processes the whole steps. Returns their bytes.
    pub(super) fn f16_sums(self, into: &mut [u8], from: &[u8]) -> usize {
        let whole = whole(into, STEP);
        // SAFETY: self proves that the CPU has what `f16_sums` is compiled for.
        unsafe { f16_sums(&mut into[..whole], &from[..whole]) };
        whole
    }

    /// Processes the whole blocks of eight. Returns their bytes.
    pub(super) fn f16_pairs(
        self,
        into: &mut [u8],
        from: &[u8],
        op: impl Fn(f32, f32) -> f32,
    ) -> usize {
        let whole = whole(into, EIGHT_F16);
        // SAFETY: self proves that the CPU has what `f16_pairs` is compiled for.
        unsafe { f16_pairs(&mut into[..whole], &from[..whole], op) };
        whole
    }

    /// Processes the whole blocks of eight. Returns their bytes.
    pub(super) fn f16_each(self, data: &mut [u8], op: impl Fn(f32) -> f32) -> usize {
        let whole = whole(data, EIGHT_F16);
        // SAFETY: self proves that the CPU has what `f16_each` is compiled for.
        unsafe { f16_each(&mut data[..whole], op) };
        whole
    }
}

fn whole(array: &[u8], block: usize) -> usize {
    array.len() / block * block
}

#[target_feature(enable = "avx2,f16c")]
fn compiled(work: impl FnOnce()) {
    work();
}

/// Calls `work` step by step and prefetches later lines. A CPU looks ahead over some hundred
/// instructions; where a line takes dozens of them, it would see the next miss too late.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn ahead(into: &mut [u8], from: &[u8], work: impl Fn(&mut [u8], &[u8])) {
    let mut into = into.chunks_exact_mut(STEP);
    let mut from = from.chunks_exact(STEP);
    for (a, b) in (&mut into).zip(&mut from) {
        for line in (0..STEP).step_by(LINE) {
            fetch(a.as_ptr().wrapping_add(AHEAD_INTO + line));
            fetch(b.as_ptr().wrapping_add(AHEAD_FROM + line));
        }
        work(a, b);
    }
    work(into.into_remainder(), from.remainder());
}

/// The result of a step is collected in the first-level cache. The bytes before the first line of
/// `into` and behind the last step are stored through the cache.
#[target_feature(enable = "avx2,f16c")]
fn stream(into: &mut [u8], left: &[u8], right: &[u8], work: impl Fn(&mut [u8], &[u8])) {
    const VECTORS: usize = STEP / size_of::<__m256i>();
    let before = into.as_ptr().align_offset(LINE).min(into.len());
    let behind = before + whole(&into[before..], STEP);
    let (start, end) = (0..before, behind..into.len());
    for edge in [start, end] {
        into[edge.clone()].copy_from_slice(&left[edge.clone()]);
        work(&mut into[edge.clone()], &right[edge]);
    }
    let steps = before..behind;
    let operands =
        left[steps.clone()].chunks_exact(STEP).zip(right[steps.clone()].chunks_exact(STEP));
    for (into, (left, right)) in into[steps].chunks_exact_mut(STEP).zip(operands) {
        let mut result: [__m256i; VECTORS] = pod_read_unaligned(left);
        work(bytes_of_mut(&mut result), right);
        for (into, vector) in into.chunks_exact_mut(size_of::<__m256i>()).zip(result) {
            let into = into.as_mut_ptr().cast();
            // SAFETY: `into` is as long as a vector and aligned to one.
            unsafe { _mm256_stream_si256(into, vector) };
        }
    }
    // Streamed stores may become visible after later ones, such as the one that publishes them.
    #[allow(unused_unsafe, reason = "it became safe to call after Rust 1.88")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        _mm_sfence();
    }
}

#[inline(always)]
fn fetch(address: *const u8) {
    // SAFETY: a prefetch of any address is valid.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[target_feature(enable = "avx2,f16c")]
fn f32_sums(into: &mut [u8], from: &[u8]) {
    let add = |a: __m256, b: __m256| _mm256_add_ps(a, b);
    sums::<f32, _>(into, from, add, |a, b| cast(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, b)));
}

#[target_feature(enable = "avx2,f16c")]
fn f64_sums(into: &mut [u8], from: &[u8]) {
    let add = |a: __m256d, b: __m256d| _mm256_add_pd(a, b);
    sums::<f64, _>(into, from, add, |a, b| cast(_mm256_cmp_pd::<_CMP_UNORD_Q>(a, b)));
}

#[target_feature(enable = "avx2,f16c")]
fn f32_sums_apart(into: &mut [u8], left: &[u8], right: &[u8]) {
    let add = |a: __m256, b: __m256| _mm256_add_ps(a, b);
    let nan = |a, b| cast(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, b));
    sums_apart::<f32, _>(into, left, right, add, nan);
}

#[target_feature(enable = "avx2,f16c")]
fn f64_sums_apart(into: &mut [u8], left: &[u8], right: &[u8]) {
    let add = |a: __m256d, b: __m256d| _mm256_add_pd(a, b);
    let nan = |a, b| cast(_mm256_cmp_pd::<_CMP_UNORD_Q>(a, b));
    sums_apart::<f64, _>(into, left, right, add, nan);
}

/// Sums several vectors and searches them for NaN together, which is cheaper than making the NaNs
/// of each canonical. If there is one, `pairs` computes their sums. `nan_of_either` returns bits
/// where an element of either operand is NaN.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn sums<W: Real, V: Pod>(
    into: &mut [u8],
    from: &[u8],
    add: impl Fn(V, V) -> V,
    nan_of_either: impl Fn(V, V) -> __m256i,
) where
    [V; TOGETHER]: Pod,
{
    // Makes the lengths equal for the compiler, so that they are compared once.
    let from = &from[..into.len()];
    let mut into = into.chunks_exact_mut(size_of::<[V; TOGETHER]>());
    let mut from = from.chunks_exact(size_of::<[V; TOGETHER]>());
    for (a, b) in (&mut into).zip(&mut from) {
        match numbers(a, b, &add, &nan_of_either) {
            Some(sums) => a.copy_from_slice(bytes_of(&sums)),
            None => pairs(a, b, W::add),
        }
    }
    pairs(into.into_remainder(), from.remainder(), W::add);
}

/// As `sums`, with a result apart from both operands.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn sums_apart<W: Real, V: Pod>(
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    add: impl Fn(V, V) -> V,
    nan_of_either: impl Fn(V, V) -> __m256i,
) where
    [V; TOGETHER]: Pod,
{
    let step = size_of::<[V; TOGETHER]>();
    let (left, right) = (&left[..into.len()], &right[..into.len()]);
    let mut into = into.chunks_exact_mut(step);
    let (mut left, mut right) = (left.chunks_exact(step), right.chunks_exact(step));
    for ((into, a), b) in (&mut into).zip(&mut left).zip(&mut right) {
        match numbers(a, b, &add, &nan_of_either) {
            Some(sums) => into.copy_from_slice(bytes_of(&sums)),
            None => pairs_apart(into, a, b, W::add),
        }
    }
    pairs_apart(into.into_remainder(), left.remainder(), right.remainder(), W::add);
}

/// The sums of some vectors. `None` if an element of them is NaN.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn numbers<V: Pod>(
    a: &[u8],
    b: &[u8],
    add: &impl Fn(V, V) -> V,
    nan_of_either: &impl Fn(V, V) -> __m256i,
) -> Option<[V; TOGETHER]>
where
    [V; TOGETHER]: Pod,
{
    let (x, y): ([V; TOGETHER], [V; TOGETHER]) = (pod_read_unaligned(a), pod_read_unaligned(b));
    let sums: [V; TOGETHER] = from_fn(|i| add(x[i], y[i]));
    let nan = sums
        .chunks_exact(2)
        .map(|two| nan_of_either(two[0], two[1]))
        .fold(_mm256_setzero_si256(), |a, b| _mm256_or_si256(a, b));
    (_mm256_movemask_epi8(nan) == 0).then_some(sums)
}

/// Sums whole steps, each searched for NaN as in `sums`. A vector of bf16 becomes two of f32: the
/// elements at even indices and those at odd ones.
#[target_feature(enable = "avx2,f16c")]
fn bf16_sums(into: &mut [u8], from: &[u8]) {
    const VECTORS: usize = STEP / size_of::<__m256i>();
    let upper = _mm256_set1_epi32(0xffff_0000_u32 as i32);
    let even = |both: __m256i| -> __m256 { cast(_mm256_slli_epi32::<16>(both)) };
    let odd = |both: __m256i| -> __m256 { cast(_mm256_and_si256(both, upper)) };
    ahead(into, from, |into, from| {
        for (a, b) in into.chunks_exact_mut(STEP).zip(from.chunks_exact(STEP)) {
            let x: [__m256i; VECTORS] = pod_read_unaligned(a);
            let y: [__m256i; VECTORS] = pod_read_unaligned(b);
            let evens: [__m256; VECTORS] = from_fn(|i| _mm256_add_ps(even(x[i]), even(y[i])));
            let odds: [__m256; VECTORS] = from_fn(|i| _mm256_add_ps(odd(x[i]), odd(y[i])));
            if !any_nan((0..VECTORS).map(|i| [evens[i], odds[i]])) {
                let sums: [__m256i; VECTORS] = from_fn(|i| {
                    let even = _mm256_srli_epi32::<16>(rounded(cast(evens[i])));
                    _mm256_blend_epi16::<0b1010_1010>(even, rounded(cast(odds[i])))
                });
                a.copy_from_slice(bytes_of(&sums));
            } else {
                word_pairs::<Bf16>(a, b, Real::add);
            }
        }
    });
}

/// `Bf16::narrow` without its shift: the upper halves are the result.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn rounded(wide: __m256i) -> __m256i {
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(wide), _mm256_set1_epi32(1));
    _mm256_add_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(0x7fff)), odd)
}

/// Sums whole steps, each searched for NaN as in `sums`.
#[target_feature(enable = "avx2,f16c")]
fn f16_sums(into: &mut [u8], from: &[u8]) {
    const BLOCKS: usize = STEP / EIGHT_F16;
    ahead(into, from, |into, from| {
        for (a, b) in into.chunks_exact_mut(STEP).zip(from.chunks_exact(STEP)) {
            let x: [__m128i; BLOCKS] = pod_read_unaligned(a);
            let y: [__m128i; BLOCKS] = pod_read_unaligned(b);
            let sums: [__m256; BLOCKS] =
                from_fn(|i| _mm256_add_ps(_mm256_cvtph_ps(x[i]), _mm256_cvtph_ps(y[i])));
            if !any_nan(sums.chunks_exact(2).map(|two| [two[0], two[1]])) {
                let narrow: [__m128i; BLOCKS] =
                    from_fn(|i| _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sums[i]));
                a.copy_from_slice(bytes_of(&narrow));
            } else {
                word_pairs::<F16>(a, b, Real::add);
            }
        }
    });
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn any_nan(pairs: impl Iterator<Item = [__m256; 2]>) -> bool {
    let nan = pairs
        .map(|[a, b]| _mm256_cmp_ps::<_CMP_UNORD_Q>(a, b))
        .fold(_mm256_setzero_ps(), |a, b| _mm256_or_ps(a, b));
    _mm256_movemask_ps(nan) != 0
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
