//! | card       | gather of blocks that differ in length, flat                              |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 2, in epochs: counts, then data; 1 if the data fits behind the counts     |
//! | bytes sent | none; each rank but the root publishes its block                          |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, at most 1024                                           |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host, blocks that differ in length                                 |
//!
//! The root publishes how much it expects from each other rank, and each of those how much it
//! sends, with the block behind that if it is short. The longest block determines the number of
//! parts. n = 4, root 0, where the block of rank 2 is short and that of rank 3 is the longest:
//!
//! ```text
//!     counts     part 0    part 1
//! 0:  1 2 3
//! 1:  1          1
//! 2:  2 and 2
//! 3:  3          3         3
//! ```

use std::ops::Range;

use crate::blocks::Blocks;
use crate::collective::epochs::{Flat, FlatCopy, copy_flat, count, next, others, part, stores};
use crate::collective::exchange::Exchange;
use crate::collective::varying::{
    COUNTS_STEP, INLINE, MOST_RANKS, check, contradiction, get, put, words,
};
use crate::error::Result;
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

/// What a rank but the root publishes first: its count, and behind it a short block.
const FIRST: usize = words(1) + INLINE;

/// What the root publishes first must fit a slot: the bytes of the longest block, then those that
/// it expects of each rank.
const _: () = assert!(words(1 + MOST_RANKS) <= SLOT);

/// At the root, `output` becomes all `blocks`; its own is in it already. At other ranks, `own` is
/// published.
pub async fn flat_v(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    own: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let (me, of_root) = (exchange.me(), words(1 + exchange.me().size));
    let mut counts = exchange.epochs(COUNTS_STEP, 1);
    let longest = if me.rank == root {
        let expected = |peer: Rank| blocks.get(peer.0);
        let longest = others(me).map(|peer| expected(peer).len()).max().unwrap_or(0);
        let write = |slot: &mut [u8], _| {
            put(slot, 0, longest);
            others(me).for_each(|peer| put(slot, 1 + peer.0, expected(peer).len()));
        };
        counts.publish(0, of_root, write).await?;
        for peer in (0..).map_while(|index| next(me, index)) {
            let view = counts.view(0, peer, FIRST).await?;
            let block = expected(peer);
            check(exchange, [peer, root], get(&view, 0), block.len())?;
            if block.len() <= INLINE {
                let data = &view[words(1)..][..block.len()];
                copy(&mut output[block], data, Stores::Cached);
            }
        }
        longest
    } else {
        let write = |slot: &mut [u8], _| {
            put(slot, 0, own.len());
            if own.len() <= INLINE {
                slot[words(1)..][..own.len()].copy_from_slice(own);
            }
        };
        counts.publish(0, FIRST, write).await?;
        let view = counts.view(0, root, of_root).await?;
        let longest = get(&view, 0);
        check(exchange, [me.rank, root], own.len(), get(&view, 1 + me.rank.0))?;
        if longest < own.len() {
            return Err(contradiction(root));
        }
        longest
    };
    counts.release(0);
    copy_flat(exchange, FlatGatherV { me, root, blocks, longest, own, output }).await
}

struct FlatGatherV<'a> {
    me: RankOf,
    root: Rank,
    /// Used by the root only.
    blocks: &'a Blocks,
    /// The bytes of the longest block but the root's.
    longest: usize,
    own: &'a [u8],
    output: &'a mut [u8],
}

impl FlatGatherV<'_> {
    /// The block of a rank: in the output at the root, else in memory of its own.
    fn block(&self, rank: Rank) -> Range<usize> {
        if self.me.rank == self.root { self.blocks.get(rank.0) } else { 0..self.own.len() }
    }
}

/// The number of parts of a block. One that was published with its count has none.
fn parts(bytes: usize) -> usize {
    if bytes <= INLINE { 0 } else { count(bytes, SLOT) }
}

impl<'a> Flat<'a> for FlatGatherV<'a> {
    fn parts(&self) -> usize {
        parts(self.longest)
    }

    fn own_parts(&self) -> usize {
        if self.me.rank == self.root { self.parts() } else { parts(self.own.len()) }
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank != self.root
    }

    fn moves(&self, from: Rank, number: usize) -> bool {
        number < parts(self.block(from).len())
    }

    fn bytes(&self, rank: Rank, number: usize) -> usize {
        part(&self.block(rank), SLOT, number).len()
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

impl<'a> FlatCopy<'a> for FlatGatherV<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        let into = part(&self.blocks.get(from.0), SLOT, number);
        copy(&mut self.output[into], bytes, stores(self.blocks.extent()));
    }
}
