//! | card       | all-to-all, flat                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank publishes all blocks but its own, in columns              |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, blocks of equal length                                 |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank copies the columns that the others have published for it. n = 4, columns of each
//! slot:
//!
//! ```text
//! rank 0:     1 2 3
//! rank 1:  0    2 3
//! rank 2:  0 1    3
//! rank 3:  0 1 2
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatCopy, count, next, part, stores};
use crate::collective::share::Columns;
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};

pub struct FlatAllToAll<'a> {
    me: RankOf,
    blocks: &'a Blocks,
    buffers: Buffers<'a>,
    columns: Columns,
    stores: Stores,
}

impl<'a> FlatAllToAll<'a> {
    pub fn new(me: RankOf, blocks: &'a Blocks, buffers: Buffers<'a>) -> Self {
        let columns = Columns::new(me.size, blocks.longest());
        Self { me, blocks, buffers, columns, stores: stores(blocks.extent()) }
    }
}

impl<'a> Flat<'a> for FlatAllToAll<'a> {
    fn parts(&self) -> usize {
        count(self.blocks.longest(), self.columns.width)
    }

    fn publishes(&self, _rank: Rank) -> bool {
        true
    }

    fn bytes(&self, rank: Rank, number: usize) -> usize {
        let bytes = part(&self.blocks.get(0), self.columns.width, number).len();
        self.columns.used(rank, |_| bytes)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        for peer in (0..).map_while(|index| self.source(index)) {
            let block = part(&self.blocks.get(peer.0), self.columns.width, number);
            let column = self.columns.column(self.me.rank, peer, block.len());
            copy(&mut slot[column], &self.buffers.input()[block], stores);
        }
    }

    fn keep_own(&mut self, number: usize) {
        if let Buffers::Apart { input, output } = &mut self.buffers {
            let own = part(&self.blocks.get(self.me.rank.0), self.columns.width, number);
            copy(&mut output[own.clone()], &input[own], self.stores);
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        next(self.me, index)
    }
}

impl<'a> FlatCopy<'a> for FlatAllToAll<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        let into = part(&self.blocks.get(from.0), self.columns.width, number);
        let column = self.columns.column(from, self.me.rank, into.len());
        copy(&mut self.buffers.output_mut()[into], &bytes[column], self.stores);
    }
}
