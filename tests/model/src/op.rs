//! As much of `src/op.rs` as the files under model need.

/// A call is its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call(pub [u64; 2]);
