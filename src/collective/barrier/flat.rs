//! | card       | barrier, flat                                                             |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in one epoch                                                           |
//! | bytes sent | none                                                                      |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank publishes that it has entered and waits for all others. n = 4, ranks that each rank
//! waits for:
//!
//! ```text
//! rank 0:     1 2 3
//! rank 1:  0    2 3
//! rank 2:  0 1    3
//! rank 3:  0 1 2
//! ```

use crate::collective::epochs::{Flat, FlatCopy, next};
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;

/// A copy of no bytes.
pub struct FlatBarrier {
    pub me: RankOf,
}

impl Flat<'_> for FlatBarrier {
    fn parts(&self) -> usize {
        1
    }

    fn publishes(&self, _rank: Rank) -> bool {
        true
    }

    fn bytes(&self, _rank: Rank, _number: usize) -> usize {
        0
    }

    fn fill(&self, _number: usize, _slot: &mut [u8], _stores: Stores) {}

    fn source(&self, index: usize) -> Option<Rank> {
        next(self.me, index)
    }
}

impl FlatCopy<'_> for FlatBarrier {
    fn copy(&mut self, _number: usize, _from: Rank, _bytes: &[u8]) {}
}
