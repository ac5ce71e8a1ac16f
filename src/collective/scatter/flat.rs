//! | card       | scatter, flat                                                             |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; the root publishes all blocks but its own, in columns               |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, blocks of equal length                                 |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank copies the column that the root has published for it. n = 4, root 0:
//!
//! ```text
//! 0 -> 1 2 3
//! ```

use crate::blocks::Blocks;
use crate::collective::epochs::{Flat, FlatCopy, count, next, part, stores};
use crate::collective::share::Columns;
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};

pub struct FlatScatter<'a> {
    me: RankOf,
    root: Rank,
    blocks: &'a Blocks,
    columns: Columns,
    /// At the root: the blocks of all ranks.
    input: &'a [u8],
    /// At every other rank: its own block is written there.
    own: &'a mut [u8],
}

impl<'a> FlatScatter<'a> {
    pub fn new(
        me: RankOf,
        root: Rank,
        blocks: &'a Blocks,
        input: &'a [u8],
        own: &'a mut [u8],
    ) -> Self {
        let columns = Columns::new(me.size, blocks.longest());
        Self { me, root, blocks, columns, input, own }
    }
}

impl<'a> Flat<'a> for FlatScatter<'a> {
    fn parts(&self) -> usize {
        count(self.blocks.longest(), self.columns.width)
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank == self.root
    }

    fn bytes(&self, rank: Rank, number: usize) -> usize {
        let bytes = part(&(0..self.blocks.longest()), self.columns.width, number).len();
        self.columns.used(rank, |_| bytes)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        for peer in (0..).map_while(|index| next(self.me, index)) {
            let block = part(&self.blocks.get(peer.0), self.columns.width, number);
            let column = self.columns.column(self.root, peer, block.len());
            copy(&mut slot[column], &self.input[block], stores);
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        (index == 0 && self.me.rank != self.root).then_some(self.root)
    }
}

impl<'a> FlatCopy<'a> for FlatScatter<'a> {
    fn copy(&mut self, number: usize, _from: Rank, bytes: &[u8]) {
        let into = part(&(0..self.blocks.longest()), self.columns.width, number);
        let column = self.columns.column(self.root, self.me.rank, into.len());
        copy(&mut self.own[into], &bytes[column], stores(self.blocks.longest()));
    }
}
