//! Results that are written apart from both operands, through the cache or past it.
//!
//! Invariant: they have the bits of a copy of the left operand into which the right one is folded.

use super::array::{Arrays, Isa};
use super::elements;
use crate::op::Fold;

/// How results are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Through the cache, for who reads them soon.
    Cached,
    /// Past the cache, where that is faster: memory that is overwritten whole is not read before.
    Streamed,
}

/// Both are equally long.
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
    let arrays = Arrays::Apart { into, left, right, stores };
    elements(fold.dtype()).fold(Isa::best(), fold.redop(), arrays);
}
