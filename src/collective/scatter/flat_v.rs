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
use crate::collective::epochs::{Flat, FlatCopy, copy_flat, stores};
use crate::collective::exchange::Exchange;
use crate::collective::varying::{COUNTS_STEP, IncomingBlock, OutgoingBlocks, VaryingColumns};
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
    let (me, published) = (exchange.me(), IncomingBlock::published(exchange.me().size));
    let mut counts = exchange.epochs(COUNTS_STEP, 1);
    let (total, role) = if me.rank == root {
        let outgoing = OutgoingBlocks::new(me, blocks);
        counts.publish(0, published, |slot, _| outgoing.write_counts(slot, input, |_| 0)).await?;
        (outgoing.total, Role::Root { outgoing, input })
    } else {
        let view = counts.view(0, root, published).await?;
        let incoming = IncomingBlock::read(exchange, &view, root, None, own.len())?;
        if VaryingColumns::fit_inline(me.size, incoming.total) {
            let (data, columns) =
                (IncomingBlock::inline(&view, me.size), VaryingColumns::inline(me.size));
            incoming.copy(columns, [root, me.rank], data, own, Stores::Cached);
        }
        (incoming.total, Role::Other { incoming, own })
    };
    counts.release(0);
    if VaryingColumns::fit_inline(me.size, total) {
        return Ok(());
    }
    let columns = VaryingColumns::new(me.size, total);
    copy_flat(exchange, FlatScatterV { me, root, columns, total, role }).await
}

struct FlatScatterV<'a> {
    me: RankOf,
    root: Rank,
    columns: VaryingColumns,
    /// The bytes of all blocks but the root's own.
    total: usize,
    role: Role<'a>,
}

enum Role<'a> {
    Root { outgoing: OutgoingBlocks<'a>, input: &'a [u8] },
    Other { incoming: IncomingBlock, own: &'a mut [u8] },
}

impl<'a> Flat<'a> for FlatScatterV<'a> {
    fn parts(&self) -> usize {
        self.columns.parts
    }

    fn own_parts(&self) -> usize {
        match &self.role {
            Role::Root { outgoing, .. } => outgoing.parts(self.columns),
            Role::Other { incoming, .. } => incoming.parts(self.columns),
        }
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank == self.root
    }

    fn bytes(&self, _rank: Rank, _number: usize) -> usize {
        self.columns.used(self.total)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        if let Role::Root { outgoing, input } = &self.role {
            outgoing.fill(self.columns, number, slot, input, stores);
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        (index == 0 && self.me.rank != self.root).then_some(self.root)
    }
}

impl<'a> FlatCopy<'a> for FlatScatterV<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        if let Role::Other { incoming, own } = &mut self.role {
            let (into, stores) = (self.columns.part(&(0..own.len()), number), stores(own.len()));
            incoming.copy(self.columns, [from, self.me.rank], bytes, &mut own[into], stores);
        }
    }
}
