//! | card       | all-gather, flat                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank publishes its block                                       |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank views the blocks of all others. n = 4, blocks each rank copies:
//!
//! ```text
//! rank 0:     1 2 3
//! rank 1:  0    2 3
//! rank 2:  0 1    3
//! rank 3:  0 1 2
//! ```

use std::ops::Range;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatCopy, count, next, part, stores};
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

pub struct FlatAllGather<'a> {
    me: RankOf,
    blocks: &'a Blocks,
    own: &'a [u8],
    output: OtherBlocks<'a>,
    /// Whether this rank's own block must be copied to the output.
    is_apart: bool,
    stores: Stores,
}

impl<'a> FlatAllGather<'a> {
    pub fn new(me: RankOf, blocks: &'a Blocks, buffers: Buffers<'a>) -> Self {
        let (is_apart, stores) = (buffers.are_apart(), stores(blocks.extent()));
        let (own, output) = own_and_others(buffers, blocks.get(me.rank.0));
        Self { me, blocks, own, output, is_apart, stores }
    }

    fn own_part(&self, number: usize) -> &'a [u8] {
        &self.own[part(&(0..self.own.len()), SLOT, number)]
    }
}

impl<'a> Flat<'a> for FlatAllGather<'a> {
    fn parts(&self) -> usize {
        count(self.blocks.longest(), SLOT)
    }

    fn publishes(&self, _rank: Rank) -> bool {
        true
    }

    fn bytes(&self, rank: Rank, number: usize) -> usize {
        part(&self.blocks.get(rank.0), SLOT, number).len()
    }

    fn in_place(&self) -> Option<&'a [u8]> {
        Some(self.own)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        copy(slot, self.own_part(number), stores);
    }

    fn keep_own(&mut self, number: usize) {
        if self.is_apart {
            let (block, into) =
                (self.own_part(number), part(&self.blocks.get(self.me.rank.0), SLOT, number));
            copy(self.output.get(into), block, self.stores);
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        next(self.me, index)
    }
}

impl<'a> FlatCopy<'a> for FlatAllGather<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        let into = part(&self.blocks.get(from.0), SLOT, number);
        copy(self.output.get(into), bytes, self.stores);
    }
}

/// The part of the output that other ranks do not view: in place, all but this rank's own block.
struct OtherBlocks<'a> {
    before: &'a mut [u8],
    behind: &'a mut [u8],
    /// Where `behind` begins in the output.
    start: usize,
}

impl OtherBlocks<'_> {
    /// A part of one rank's block.
    fn get(&mut self, part: Range<usize>) -> &mut [u8] {
        match part.end <= self.before.len() {
            _ if part.is_empty() => &mut [],
            true => &mut self.before[part],
            false => &mut self.behind[part.start - self.start..part.end - self.start],
        }
    }
}

/// This rank's own block, and the output for the other blocks.
fn own_and_others(buffers: Buffers<'_>, own: Range<usize>) -> (&[u8], OtherBlocks<'_>) {
    match buffers {
        Buffers::Apart { input, output } => {
            let start = output.len();
            (input, OtherBlocks { before: output, behind: &mut [], start })
        }
        Buffers::Shared { both } => {
            let (before, rest) = both.split_at_mut(own.start);
            let (block, behind) = rest.split_at_mut(own.len());
            (block, OtherBlocks { before, behind, start: own.end })
        }
    }
}
