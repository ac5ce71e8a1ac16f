//! The instruction set for which the loops over an array are compiled, chosen once per process.
//!
//! Leaves to `array` the loops, and to `x86` the few that are written with intrinsics. Invariant:
//! the bits of a result do not depend on the instruction set.
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, reason = "only the loops of x86-64 use them")
)]

use bytemuck::Pod;

use super::array::{pairs, pairs_apart};
use super::element::Real;
#[cfg(target_arch = "x86_64")]
use super::x86::Avx2;

/// Elements of at least this size are written apart from their operands, or streamed. For smaller
/// elements the arithmetic dominates, so that neither gains much.
pub(super) const APART: usize = 4;

/// The instruction set that a loop is compiled for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Isa {
    /// What every CPU of the architecture has.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

impl Isa {
    /// The best instruction set of this CPU.
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Baseline
    }

    /// Runs a loop that executes few instructions per element.
    #[inline(always)]
    pub(super) fn run(self, work: impl FnOnce()) {
        match self {
            Self::Baseline => work(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run(work),
        }
    }

    /// Whether elements of `size` bytes are streamed to `into`: only if its cache lines hold whole
    /// elements.
    pub(super) fn streams(self, into: &[u8], size: usize) -> bool {
        match self {
            Self::Baseline => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => size >= APART && into.as_ptr().addr().is_multiple_of(size),
        }
    }

    /// Runs `pairs` in place, apart from the operands, or streamed.
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

    /// Runs a loop that executes many instructions per element, so that memory must be prefetched.
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

/// Sums of floats, the most common fold.
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
