//! | card       | scatter of blocks that differ in length, flat                             |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 2, in epochs: counts, then data; 1 if the data fits behind the counts     |
//! | bytes sent | none; the root publishes all blocks but its own, in columns               |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, at most 1024                                           |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host, blocks that differ in length                                 |
//!
//! The root publishes how much it sends to each other rank. By the sum all ranks know the number of
//! parts, each of which has an even share of every block. n = 4, root 0, counts and columns:
//!
//! ```text
//!     counts     part 0         part 1
//! 0:  1 2 3      1 2222 3       1 2222 3
//! ```

use crate::blocks::Blocks;
use crate::collective::epochs::{Flat, FlatCopy, stores};
use crate::collective::exchange::Exchange;
use crate::collective::varying::{
    Checked, FlatWithCounts, IncomingBlock, OutgoingBlocks, VaryingColumns, copy_flat_v,
};
use crate::error::Result;
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;

/// The root publishes its `blocks` of `input`. At other ranks, `own` becomes this rank's block.
pub async fn flat_v(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    input: &[u8],
    own: &mut [u8],
) -> Result<()> {
    copy_flat_v(exchange, FlatScatterV::new(exchange.me(), root, blocks, input, own)).await
}

pub struct FlatScatterV<'a> {
    me: RankOf,
    root: Rank,
    /// The bytes of all blocks but the root's own.
    total: usize,
    role: ScatterRole<'a>,
}

enum ScatterRole<'a> {
    Root { outgoing: OutgoingBlocks<'a>, input: &'a [u8] },
    Other { incoming: IncomingBlock, own: &'a mut [u8] },
}

impl<'a> FlatScatterV<'a> {
    pub fn new(
        me: RankOf,
        root: Rank,
        blocks: &'a Blocks,
        input: &'a [u8],
        own: &'a mut [u8],
    ) -> Self {
        if me.rank != root {
            let role = ScatterRole::Other { incoming: IncomingBlock::default(), own };
            return Self { me, root, total: 0, role };
        }
        let outgoing = OutgoingBlocks::new(me, blocks);
        let total = outgoing.total;
        Self { me, root, total, role: ScatterRole::Root { outgoing, input } }
    }

    fn columns(&self) -> VaryingColumns {
        VaryingColumns::new(self.me.size, self.total)
    }

    fn is_inline(&self) -> bool {
        VaryingColumns::fit_inline(self.me.size, self.total)
    }
}

impl<'a> Flat<'a> for FlatScatterV<'a> {
    fn parts(&self) -> usize {
        if self.is_inline() { 0 } else { self.columns().parts }
    }

    fn own_parts(&self) -> usize {
        match &self.role {
            ScatterRole::Root { outgoing, .. } => outgoing.parts(self.columns()),
            ScatterRole::Other { incoming, .. } => incoming.parts(self.columns()),
        }
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank == self.root
    }

    fn bytes(&self, _rank: Rank, _number: usize) -> usize {
        self.columns().used(self.total)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        if let ScatterRole::Root { outgoing, input } = &self.role {
            outgoing.fill(self.columns(), number, slot, input, stores);
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        (index == 0 && self.me.rank != self.root).then_some(self.root)
    }
}

impl<'a> FlatCopy<'a> for FlatScatterV<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        let (columns, both) = (self.columns(), [from, self.me.rank]);
        if let ScatterRole::Other { incoming, own } = &mut self.role {
            let (into, stores) = (columns.part(&(0..own.len()), number), stores(own.len()));
            incoming.copy(columns, both, bytes, &mut own[into], stores);
        }
    }
}

impl<'a> FlatWithCounts<'a> for FlatScatterV<'a> {
    fn publishes_counts(&self) -> bool {
        self.me.rank == self.root
    }

    fn published(&self) -> usize {
        IncomingBlock::published(self.me.size)
    }

    fn write_counts(&self, slot: &mut [u8]) {
        if let ScatterRole::Root { outgoing, input } = &self.role {
            outgoing.write_counts(slot, input, |_| 0);
        }
    }

    fn read_counts(&mut self, from: Rank, published: &[u8]) -> Checked<()> {
        if let ScatterRole::Other { incoming, own } = &mut self.role {
            *incoming = IncomingBlock::read(published, [from, self.me.rank], None, own.len())?;
            self.total = incoming.total;
        }
        Ok(())
    }

    fn copy_inline(&mut self, from: Rank, published: &[u8]) {
        if self.is_inline() {
            self.copy(0, from, IncomingBlock::inline(published, self.me.size));
        }
    }
}
