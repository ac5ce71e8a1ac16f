//! | card       | gather, flat                                                              |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank but the root publishes its block                          |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, blocks of equal length                                 |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! The root copies the blocks of all others. n = 4, root 0:
//!
//! ```text
//! 1 2 3 -> 0
//! ```

use crate::blocks::Blocks;
use crate::collective::epochs::{Flat, FlatCopy, count, next, part, stores};
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

pub struct FlatGather<'a> {
    pub me: RankOf,
    pub root: Rank,
    pub blocks: &'a Blocks,
    /// This rank's block.
    pub own: &'a [u8],
    /// At the root: the blocks of all other ranks are written there.
    pub output: &'a mut [u8],
}

impl<'a> Flat<'a> for FlatGather<'a> {
    fn parts(&self) -> usize {
        count(self.blocks.longest(), SLOT)
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank != self.root
    }

    fn bytes(&self, rank: Rank, number: usize) -> usize {
        part(&self.blocks.get(rank.0), SLOT, number).len()
    }

    fn in_place(&self) -> Option<&'a [u8]> {
        Some(self.own)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        copy(slot, &self.own[part(&(0..self.own.len()), SLOT, number)], stores);
    }

    fn source(&self, index: usize) -> Option<Rank> {
        next(self.me, index).filter(|_| self.me.rank == self.root)
    }
}

impl<'a> FlatCopy<'a> for FlatGather<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        let into = part(&self.blocks.get(from.0), SLOT, number);
        copy(&mut self.output[into], bytes, stores(self.blocks.extent()));
    }
}
