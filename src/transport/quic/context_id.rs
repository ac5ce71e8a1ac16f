//! The number that names a communicator on links which several communicators share.
//!
//! Leaves to `context` what a communicator is. Invariant: every member computes the same number
//! from what all of them know, so that no rank must be asked for it.

use ring::digest::{SHA256, digest};

/// Names a communicator to its members. No other communicator over the same links has the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextId(pub u64);

impl ContextId {
    /// The id of the part with `color` that call number `seq` splits off this communicator.
    pub fn of_split(self, seq: u64, color: u32) -> Self {
        let known = [self.0, seq, color as u64].map(u64::to_le_bytes);
        let hash = digest(&SHA256, known.as_flattened());
        let (first, _) = hash.as_ref().split_first_chunk().expect("8 of 32 bytes");
        Self(u64::from_le_bytes(*first))
    }
}
