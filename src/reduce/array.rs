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

/// Elements of this size and more are folded apart from their operands, or streamed. For smaller ones the CPU
/// has so much to do that it gains little.
pub(super) const APART: usize = 4;

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

    /// Whether elements of `size` are streamed to `into`: a line there holds whole ones.
    pub(super) fn streams(self, into: &[u8], size: usize) -> bool {
        match self {
            Self::Baseline => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => size >= APART && into.as_ptr().addr().is_multiple_of(size),
        }
    }

    /// `pairs`, in place or streamed.
    #[inline(always)]
    pub(super) fn run_pairs<T: Pod>(self, arrays: Arrays<'_>, op: impl Fn(T, T) -> T) {
        match (self, arrays) {
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2(avx2), Arrays::Streamed { into, left, right })
                if size_of::<T>() >= APART =>
            {
                avx2.stream(into, left, right, |into, from| pairs(into, from, &op));
            }
            (_, Arrays::Apart { into, left, right }) => {
                self.run(|| pairs_apart(into, left, right, op));
            }
            (_, arrays) => {
                let (into, from) = arrays.in_place();
                self.run(|| pairs(into, from, op));
            }
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

/// The arrays of a fold.
pub(super) enum Arrays<'a> {
    /// `into = into op from`.
    InPlace { into: &'a mut [u8], from: &'a [u8] },
    /// `into = left op right`.
    Apart { into: &'a mut [u8], left: &'a [u8], right: &'a [u8] },
    /// `into = left op right`, past the cache where `Isa::streams`.
    Streamed { into: &'a mut [u8], left: &'a [u8], right: &'a [u8] },
}

impl<'a> Arrays<'a> {
    pub(super) fn in_place(self) -> (&'a mut [u8], &'a [u8]) {
        match self {
            Self::InPlace { into, from } => (into, from),
            Self::Apart { into, left, right } | Self::Streamed { into, left, right } => {
                into.copy_from_slice(left);
                (into, right)
            }
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

/// `pairs` by `Real::add`, the fold that most of all must be fast.
pub(super) trait Sums: Real {
    fn sums(isa: Isa, arrays: Arrays<'_>);
}

impl Sums for f32 {
    fn sums(isa: Isa, arrays: Arrays<'_>) {
        match (isa, arrays) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2(avx2), Arrays::InPlace { into, from }) => avx2.f32_sums(into, from),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2(avx2), Arrays::Apart { into, left, right }) => {
                avx2.f32_sums_apart(into, left, right);
            }
            (_, arrays) => isa.run_pairs(arrays, <Self as Real>::add),
        }
    }
}

impl Sums for f64 {
    fn sums(isa: Isa, arrays: Arrays<'_>) {
        match (isa, arrays) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2(avx2), Arrays::InPlace { into, from }) => avx2.f64_sums(into, from),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2(avx2), Arrays::Apart { into, left, right }) => {
                avx2.f64_sums_apart(into, left, right);
            }
            (_, arrays) => isa.run_pairs(arrays, <Self as Real>::add),
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
