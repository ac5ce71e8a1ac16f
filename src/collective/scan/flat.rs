//! | card       | scan and exclusive scan, flat                                             |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank but the last publishes its buffer                         |
//! | scratch    | a part of the buffer                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host, small buffers of few ranks                                   |
//!
//! Every rank reduces the shares of all ranks before it with its own. n = 4, shares each rank
//! reduces:
//!
//! ```text
//! rank 0:  0
//! rank 1:  0 1
//! rank 2:  0 1 2
//! rank 3:  0 1 2 3
//! ```

use std::ops::Range;

use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatReduction, count, part, stores, with_own};
use crate::collective::scan::shares::{Scanned, folding};
use crate::collective::share::{load, own_and_output};
use crate::op::Reducer;
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;
use crate::transport::SLOT;

pub struct FlatScan<'a> {
    me: RankOf,
    reducer: &'a Reducer,
    scanned: Scanned,
    buffers: Buffers<'a>,
    whole: Range<usize>,
    /// Bytes of a part: whole elements.
    width: usize,
    scratch: Vec<u8>,
}

impl<'a> FlatScan<'a> {
    pub fn new(me: RankOf, reducer: &'a Reducer, scanned: Scanned, buffers: Buffers<'a>) -> Self {
        let (whole, width) = (0..buffers.input().len(), reducer.dtype().whole(SLOT));
        Self { me, reducer, scanned, buffers, whole, width, scratch: Vec::new() }
    }
}

impl<'a> Flat<'a> for FlatScan<'a> {
    fn parts(&self) -> usize {
        count(self.whole.len(), self.width)
    }

    fn publishes(&self, rank: Rank) -> bool {
        rank.0 + 1 < self.me.size
    }

    fn bytes(&self, _rank: Rank, number: usize) -> usize {
        part(&self.whole, self.width, number).len()
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        let share = &self.buffers.input()[part(&self.whole, self.width, number)];
        let size = match self.scanned {
            Scanned::UpTo => self.me.size,
            // Rank 1's result is the share of rank 0.
            Scanned::Before => folding(self.me),
        };
        load(self.reducer, share, size, slot, stores);
    }

    /// The result of rank 0 is its own share.
    fn keep_own(&mut self, number: usize) {
        if self.me.rank != Rank(0) || self.scanned == Scanned::Before {
            return;
        }
        let part = part(&self.whole, self.width, number);
        match &mut self.buffers {
            Buffers::Apart { input, output } => {
                let into = &mut output[part.clone()];
                load(self.reducer, &input[part], folding(self.me), into, Stores::Cached);
            }
            Buffers::Shared { both } => self.reducer.prepare(&mut both[part], folding(self.me)),
        }
    }

    fn source(&self, index: usize) -> Option<Rank> {
        (index < self.me.rank.0).then_some(Rank(index))
    }
}

impl<'a> FlatReduction<'a> for FlatScan<'a> {
    fn reduce(&mut self, number: usize, shares: &[&[u8]], own: Option<&[u8]>) {
        let Self { me, reducer, scanned, buffers, whole, width, scratch } = self;
        let part = part(whole, *width, number);
        let (own, into) = match own {
            Some(own) => (own, &mut buffers.output_mut()[part]),
            None => own_and_output(reducer, buffers, part, folding(*me), scratch),
        };
        let stores = stores(whole.len());
        match scanned {
            Scanned::UpTo => reducer.fold_all(into, &with_own(shares, me.rank.0, own), stores),
            Scanned::Before => reducer.fold_all(into, shares, stores),
        }
    }
}
