//! | card       | reduce, flat                                                              |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank but the root publishes its buffer                         |
//! | scratch    | a part of the root's buffer, if it must be prepared or is in place        |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host                                                               |
//!
//! The root reduces what all others have published. n = 4, root 0:
//!
//! ```text
//! 1 2 3 -> 0
//! ```

use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatReduction, count, other, part, stores, with_own};
use crate::collective::share::{load, own_and_output};
use crate::op::Reducer;
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;
use crate::transport::SLOT;

pub struct FlatReduce<'a> {
    me: RankOf,
    root: Rank,
    reducer: &'a Reducer,
    memory: ReduceMemory<'a>,
    bytes: usize,
    /// Bytes of a part: whole elements.
    width: usize,
    scratch: Vec<u8>,
}

enum ReduceMemory<'a> {
    Root(Buffers<'a>),
    /// Every other rank has an input only.
    Other(&'a [u8]),
}

impl<'a> FlatReduce<'a> {
    pub fn new(me: RankOf, root: Rank, reducer: &'a Reducer, buffers: Buffers<'a>) -> Self {
        let (bytes, width) = (buffers.input().len(), reducer.dtype().whole(SLOT));
        let memory = match buffers {
            buffers if me.rank == root => ReduceMemory::Root(buffers),
            Buffers::Apart { input, .. } => ReduceMemory::Other(input),
            Buffers::Shared { both } => ReduceMemory::Other(both),
        };
        Self { me, root, reducer, memory, bytes, width, scratch: Vec::new() }
    }
}

impl<'a> Flat<'a> for FlatReduce<'a> {
    fn parts(&self) -> usize {
        count(self.bytes, self.width)
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank != self.root
    }

    fn bytes(&self, _rank: Rank, number: usize) -> usize {
        part(&(0..self.bytes), self.width, number).len()
    }

    fn width(&self) -> usize {
        self.width
    }

    fn in_place(&self) -> Option<&'a [u8]> {
        match self.memory {
            ReduceMemory::Other(input) if !self.reducer.prepares(self.me.size) => Some(input),
            _ => None,
        }
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        if let ReduceMemory::Other(input) = self.memory {
            let share = &input[part(&(0..self.bytes), self.width, number)];
            load(self.reducer, share, self.me.size, slot, stores);
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        other(self.me, index).filter(|_| self.me.rank == self.root)
    }
}

impl<'a> FlatReduction<'a> for FlatReduce<'a> {
    fn reduce(&mut self, number: usize, shares: &[&[u8]], _own: Option<&[u8]>) {
        let Self { me, root, reducer, memory, bytes, width, scratch } = self;
        let ReduceMemory::Root(buffers) = memory else { return };
        let part = part(&(0..*bytes), *width, number);
        let (own, into) = own_and_output(reducer, buffers, part, me.size, scratch);
        reducer.fold_all(into, &with_own(shares, root.0, own), stores(*bytes));
        reducer.finish(into, me.size);
    }
}
