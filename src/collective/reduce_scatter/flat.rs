//! | card       | reduce-scatter, flat                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank publishes all blocks but its own, in columns              |
//! | scratch    | a part of a block                                                         |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host                                                               |
//!
//! Every rank reduces its own block with the columns that the others have published for it. n = 4,
//! columns of each slot:
//!
//! ```text
//! rank 0:     1 2 3
//! rank 1:  0    2 3
//! rank 2:  0 1    3
//! rank 3:  0 1 2
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatReduction, Shares, count, other, others, part, stores};
use crate::collective::share::{Columns, load, own_and_block};
use crate::op::Reducer;
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;

pub struct FlatReduceScatter<'a> {
    me: RankOf,
    reducer: &'a Reducer,
    blocks: &'a Blocks,
    buffers: Buffers<'a>,
    columns: Columns,
    scratch: Vec<u8>,
}

impl<'a> FlatReduceScatter<'a> {
    pub fn new(me: RankOf, reducer: &'a Reducer, blocks: &'a Blocks, buffers: Buffers<'a>) -> Self {
        let columns = Columns::of_elements(me.size, reducer.dtype(), blocks.longest());
        Self { me, reducer, blocks, buffers, columns, scratch: Vec::new() }
    }
}

impl<'a> Flat<'a> for FlatReduceScatter<'a> {
    fn parts(&self) -> usize {
        count(self.blocks.longest(), self.columns.width)
    }

    fn publishes(&self, _rank: Rank) -> bool {
        true
    }

    fn bytes(&self, rank: Rank, number: usize) -> usize {
        let width = self.columns.width;
        self.columns.used(rank, |of| part(&self.blocks.get(of.0), width, number).len())
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        for rank in others(self.me) {
            let share = part(&self.blocks.get(rank.0), self.columns.width, number);
            if !share.is_empty() {
                let column = self.columns.column(self.me.rank, rank, share.len());
                let share = &self.buffers.input()[share];
                load(self.reducer, share, self.me.size, &mut slot[column], stores);
            }
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        other(self.me, index)
    }
}

impl<'a> FlatReduction<'a> for FlatReduceScatter<'a> {
    fn reduce(&mut self, number: usize, shares: &[&[u8]], _own: Option<&[u8]>) {
        let Self { me, reducer, blocks, buffers, columns, scratch } = self;
        let block = blocks.get(me.rank.0);
        let here = part(&block, columns.width, number);
        if here.is_empty() {
            return;
        }
        let length = here.len();
        let mut shares: Shares<'_> = others(*me)
            .zip(shares)
            .map(|(rank, share)| &share[columns.column(rank, me.rank, length)])
            .collect();
        let (own, into) = own_and_block(reducer, buffers, blocks, here, *me, scratch);
        shares.insert(me.rank.0, own);
        reducer.fold_all(into, &shares, stores(block.len()));
        reducer.finish(into, me.size);
    }
}
