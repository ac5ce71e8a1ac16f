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
use crate::collective::epochs::{Flat, FlatCopy, count, next, others, part, stores};
use crate::collective::exchange::Exchange;
use crate::collective::varying::{
    Checked, FlatWithCounts, INLINE, MOST_RANKS, Wrong, check, copy_flat_v, get, put, words,
};
use crate::error::Result;
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

/// What a rank publishes first. The root: the bytes of the longest block, then those that it
/// expects of each rank. Any other: its count, and behind it a short block.
pub const FIRST: usize = words(1) + INLINE;

const _: () = assert!(words(1 + MOST_RANKS) <= FIRST);

/// At the root, `output` becomes all `blocks`; its own is in it already. At other ranks, `own` is
/// published.
pub async fn flat_v(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    own: &[u8],
    output: &mut [u8],
) -> Result<()> {
    copy_flat_v(exchange, FlatGatherV::new(exchange.me(), root, blocks, own, output)).await
}

pub struct FlatGatherV<'a> {
    me: RankOf,
    root: Rank,
    /// Used by the root only.
    blocks: &'a Blocks,
    /// The bytes of the longest block but the root's.
    longest: usize,
    own: &'a [u8],
    output: &'a mut [u8],
}

impl<'a> FlatGatherV<'a> {
    pub fn new(
        me: RankOf,
        root: Rank,
        blocks: &'a Blocks,
        own: &'a [u8],
        output: &'a mut [u8],
    ) -> Self {
        let mut flat = Self { me, root, blocks, longest: 0, own, output };
        if me.rank == root {
            flat.longest = others(me).map(|peer| flat.block(peer).len()).max().unwrap_or(0);
        }
        flat
    }

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

    /// In the epoch of counts the root publishes too.
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

impl<'a> FlatWithCounts<'a> for FlatGatherV<'a> {
    fn publishes_counts(&self) -> bool {
        true
    }

    fn published(&self) -> usize {
        FIRST
    }

    fn counts_from(&self, index: usize) -> Option<Rank> {
        let root = (index == 0).then_some(self.root);
        if self.me.rank == self.root { next(self.me, index) } else { root }
    }

    fn write_counts(&self, slot: &mut [u8]) {
        if self.me.rank == self.root {
            put(slot, 0, self.longest);
            others(self.me).for_each(|peer| put(slot, 1 + peer.0, self.block(peer).len()));
            return;
        }
        put(slot, 0, self.own.len());
        if self.own.len() <= INLINE {
            slot[words(1)..][..self.own.len()].copy_from_slice(self.own);
        }
    }

    fn read_counts(&mut self, from: Rank, published: &[u8]) -> Checked<()> {
        let first = get(published, 0);
        if self.me.rank == self.root {
            return check([from, self.root], first, self.block(from).len());
        }
        let expected = get(published, 1 + self.me.rank.0);
        check([self.me.rank, self.root], self.own.len(), expected)?;
        self.longest = first;
        if first < expected { Err(Wrong::Contradiction) } else { Ok(()) }
    }

    fn copy_inline(&mut self, from: Rank, published: &[u8]) {
        let block = self.block(from);
        if self.me.rank == self.root && block.len() <= INLINE {
            let data = &published[words(1)..][..block.len()];
            copy(&mut self.output[block], data, Stores::Cached);
        }
    }
}
