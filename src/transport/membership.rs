//! What ranks of a communicator know of each other: which ranks have not entered a call, which
//! belong to a part of it, how far the memory of a host is open.
//!
//! Leaves the contract itself, `Membership`, to `mesh`, because a split creates a mesh.

use crate::rank::Rank;

/// The ranks that have not entered a call.
pub struct Missing {
    pub absent: Vec<Absent>,
    /// Ranks of which this rank does not know whether they have.
    pub unknown: Vec<Rank>,
}

/// A rank that has not entered a call, and the last call that it has entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent {
    pub rank: Rank,
    pub last: Option<u64>,
}

/// A part of a communicator's ranks that becomes a communicator of its own.
#[derive(Clone, Debug)]
pub struct Split {
    /// The number of the call that split it.
    pub seq: u64,
    /// Distinguishes the parts of the split.
    pub color: u32,
    /// The ranks of this rank's part, in their new order.
    pub members: Vec<Rank>,
}

/// The memory of the other ranks of a host that is open to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// None.
    Apart = 0,
    /// Their shared segments and arenas.
    Shared = 1,
    /// All their memory, by process_vm_readv(2).
    Whole = 2,
}

impl Opened {
    /// Decodes what a rank has reported.
    pub fn decode(code: u8) -> Self {
        match code {
            2 => Self::Whole,
            1 => Self::Shared,
            _ => Self::Apart,
        }
    }
}
