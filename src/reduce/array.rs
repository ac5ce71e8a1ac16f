//! Loops over arrays, written once for all instruction sets.
//!
//! What is done to an element is in `element`. Invariant: an array may begin at any address.
//!
//! All is inlined, so that a loop is compiled, and vectorised, for the instructions that its caller
//! is compiled for.

use bytemuck::{Pod, bytes_of, pod_read_unaligned};

use super::element::{Code, Real, Small};
#[cfg(target_arch = "x86_64")]
use super::x86::Avx2;

/// Bytes of a word, which holds two or four small floats.
pub(super) const WORD: usize = 4;

/// The instructions that a loop is compiled for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Isa {
    /// What every CPU of the architecture has.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

impl Isa {
    /// The best this CPU has.
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Baseline
    }

    /// For loops that do little to an element.
    #[inline(always)]
    pub(super) fn run(self, work: impl FnOnce()) {
        match self {
            Self::Baseline => work(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run(work),
        }
    }

    /// For loops that do so much to an element that memory must be asked ahead of them.
    #[inline(always)]
    pub(super) fn run_ahead(self, into: &mut [u8], from: &[u8], work: impl Fn(&mut [u8], &[u8])) {
        match self {
            Self::Baseline => work(into, from),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run_ahead(into, from, work),
        }
    }
}

#[inline(always)]
pub(super) fn pairs<T: Pod>(into: &mut [u8], from: &[u8], op: impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    for (a, b) in into.chunks_exact_mut(size).zip(from.chunks_exact(size)) {
        let result = op(pod_read_unaligned(a), pod_read_unaligned(b));
        a.copy_from_slice(bytes_of(&result));
    }
}

#[inline(always)]
pub(super) fn each<T: Pod>(data: &mut [u8], op: impl Fn(T) -> T) {
    for a in data.chunks_exact_mut(size_of::<T>()) {
        let result = op(pod_read_unaligned(a));
        a.copy_from_slice(bytes_of(&result));
    }
}

/// `pairs` by `Real::add`, the fold that most of all must be fast.
pub(super) trait Sums: Real {
    fn sums(isa: Isa, into: &mut [u8], from: &[u8]);
}

impl Sums for f32 {
    fn sums(isa: Isa, into: &mut [u8], from: &[u8]) {
        match isa {
            Isa::Baseline => pairs(into, from, <Self as Real>::add),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2.f32_sums(into, from),
        }
    }
}

impl Sums for f64 {
    fn sums(isa: Isa, into: &mut [u8], from: &[u8]) {
        match isa {
            Isa::Baseline => pairs(into, from, <Self as Real>::add),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2.f64_sums(into, from),
        }
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

/// Elements are taken out of a word and put back by shifts, which is cheaper than spreading the
/// elements of one vector over several. Written out, because no loop around a loop is vectorised.
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
