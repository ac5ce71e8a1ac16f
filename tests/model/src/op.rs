//! Replaces `src/op.rs`, as far as the modelled files need it.

/// A call, which here is just its encoded words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call(pub [u64; 2]);
