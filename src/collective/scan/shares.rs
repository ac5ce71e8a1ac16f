//! Which ranks' shares a scan reduces, and how a rank prepares its own.

use crate::rank::{Rank, RankOf};

/// Most ranks of a flat scan.
pub const FLAT_SCAN: usize = 4;

/// The ranks whose shares a scan reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// All ranks up to this one.
    UpTo,
    /// All ranks before this one: an exclusive scan, in which rank 0 reduces nothing.
    Before,
}

/// The number of ranks for which a rank prepares its share. Rank 0 reduces nothing and prepares as
/// if it were alone.
pub fn folding(me: RankOf) -> usize {
    if me.rank == Rank(0) { 1 } else { me.size }
}
