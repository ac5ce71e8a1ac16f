//! The operations on arrays of one element type, for every type.
//!
//! Leaves to `integers` and `floats` their implementation, and to `dispatch` the choice. Invariant:
//! both arrays of a call hold the same number of whole elements.

use super::isa::{Arrays, Isa};
use crate::op::RedOp;

/// The operations on arrays of one element type.
pub(super) trait Elements {
    fn fold(&self, isa: Isa, redop: RedOp, arrays: Arrays<'_>);
    /// As `fold`, for a caller that is already in the default floating-point environment.
    fn fold_in_default(&self, isa: Isa, redop: RedOp, arrays: Arrays<'_>) {
        self.fold(isa, redop, arrays);
    }
    fn prepares(&self, redop: RedOp, size: usize) -> bool;
    fn prepare(&self, isa: Isa, redop: RedOp, data: &mut [u8], size: usize);
    fn finishes(&self, redop: RedOp) -> bool;
    fn finish(&self, isa: Isa, redop: RedOp, data: &mut [u8], size: usize);
    fn premultiply(&self, isa: Isa, scalar: &[u8], data: &mut [u8]);
    fn identity(&self, isa: Isa, redop: RedOp, data: &mut [u8]);
}
