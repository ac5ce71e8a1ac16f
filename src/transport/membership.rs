//! What ranks of a communicator know of each other: who has not come to a call, who belongs to a
//! part of it, how far the memory of a host is open.
//!
//! The contract itself is `Membership` in `mesh`, because a split makes a mesh.

use crate::rank::Rank;

/// The ranks that have not entered a call.
pub struct Missing {
    pub absent: Vec<Absent>,
    pub unknown: Vec<Rank>,
}

/// A rank that has not come to a call, and the last call that it has come to.
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
    /// What tells its parts apart.
    pub color: u32,
    /// The ranks of this rank's part, in their new order.
    pub members: Vec<Rank>,
}

/// How far the memory of a host is open to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Not at all.
    Apart = 0,
    /// What the others share.
    Shared = 1,
    /// All memory of the others, read by the system.
    Whole = 2,
}

impl Opened {
    /// As a rank has told it.
    pub fn told(code: u8) -> Self {
        match code {
            2 => Self::Whole,
            1 => Self::Shared,
            _ => Self::Apart,
        }
    }
}
