//! Results that are written apart from both operands, through the cache or past it.
//!
//! Leaves to `isa` the instructions. Invariant: a result has the bits of a copy of the left operand
//! into which the right one is folded.

use super::dispatch::elements;
use super::environment::in_default;
use super::isa::{APART, Arrays, Isa};
use crate::op::Fold;

/// How results are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Through the cache, for a reader that reads them soon.
    Cached,
    /// Past the cache, where that is faster: whole lines are written without being read first.
    Streamed,
}

/// Bytes copied and then folded: few enough to stay in the first-level cache, and enough to make
/// the cost of a call negligible. Every element's size divides it.
pub(super) const BLOCK: usize = 1024;

/// Copies an array of the same length.
pub fn copy(into: &mut [u8], from: &[u8], stores: Stores) {
    assert_eq!(into.len(), from.len(), "copied arrays are equally long");
    copy_with(Isa::best(), into, from, stores);
}

pub(super) fn copy_with(isa: Isa, into: &mut [u8], from: &[u8], stores: Stores) {
    match (stores, isa) {
        #[cfg(target_arch = "x86_64")]
        (Stores::Streamed, Isa::Avx2(avx2)) => avx2.stream(into, from, from, |_, _| {}),
        _ => into.copy_from_slice(from),
    }
}

/// `into[i] = left[i] op right[i]`. All hold the same number of whole elements.
pub fn fold_into(fold: Fold, into: &mut [u8], left: &[u8], right: &[u8], stores: Stores) {
    let equal = into.len() == left.len() && into.len() == right.len();
    assert!(equal, "folded arrays are equally long");
    fold_into_with(Isa::best(), fold, into, left, right, stores);
}

pub(super) fn fold_into_with(
    isa: Isa,
    fold: Fold,
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    stores: Stores,
) {
    let (elements, redop, size) = (elements(fold.dtype()), fold.redop(), fold.dtype().size());
    if stores == Stores::Streamed && isa.streams(into, size) {
        return elements.fold(isa, redop, Arrays::Streamed { into, left, right });
    }
    if size >= APART {
        return elements.fold(isa, redop, Arrays::Apart { into, left, right });
    }
    let operands = left.chunks(BLOCK).zip(right.chunks(BLOCK));
    // Once for all blocks: reading the environment takes a part of the time of a block.
    in_default(|| {
        for (into, (left, right)) in into.chunks_mut(BLOCK).zip(operands) {
            into.copy_from_slice(left);
            elements.fold_in_default(isa, redop, Arrays::InPlace { into, from: right });
        }
    });
}
