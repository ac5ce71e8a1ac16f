//! | card       | broadcast, flat                                                           |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; the root publishes its buffer                                       |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! All others copy what the root has published. n = 4, root 0:
//!
//! ```text
//! 0 -> 1 2 3
//! ```

use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatCopy, count, part, stores};
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

pub struct FlatBroadcast<'a> {
    root: Rank,
    bytes: usize,
    /// At the root.
    data: Option<&'a [u8]>,
    /// `None` at the root of a call in place.
    output: Option<&'a mut [u8]>,
}

impl<'a> FlatBroadcast<'a> {
    pub fn new(me: RankOf, root: Rank, bytes: usize, buffers: Buffers<'a>) -> Self {
        let is_root = me.rank == root;
        let (data, output): (Option<&[u8]>, _) = match buffers {
            Buffers::Apart { input, output } => (is_root.then_some(input), Some(output)),
            Buffers::Shared { both } if is_root => (Some(both), None),
            Buffers::Shared { both } => (None, Some(both)),
        };
        Self { root, bytes, data, output }
    }
}

impl<'a> Flat<'a> for FlatBroadcast<'a> {
    fn parts(&self) -> usize {
        count(self.bytes, SLOT)
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank == self.root
    }

    fn bytes(&self, _rank: Rank, number: usize) -> usize {
        part(&(0..self.bytes), SLOT, number).len()
    }

    fn in_place(&self) -> Option<&'a [u8]> {
        self.data
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        if let Some(data) = self.data {
            copy(slot, &data[part(&(0..self.bytes), SLOT, number)], stores);
        }
    }

    fn keep_own(&mut self, number: usize) {
        if let (Some(data), Some(output)) = (self.data, &mut self.output) {
            let part = part(&(0..self.bytes), SLOT, number);
            copy(&mut output[part.clone()], &data[part], stores(self.bytes));
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        (index == 0 && self.data.is_none()).then_some(self.root)
    }
}

impl<'a> FlatCopy<'a> for FlatBroadcast<'a> {
    fn copy(&mut self, number: usize, _from: Rank, bytes: &[u8]) {
        if let Some(output) = &mut self.output {
            copy(&mut output[part(&(0..self.bytes), SLOT, number)], bytes, stores(self.bytes));
        }
    }
}
