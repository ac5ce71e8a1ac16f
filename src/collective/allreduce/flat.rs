//! | card       | all-reduce, flat                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank publishes its buffer and views those of all others        |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host, small buffers or few ranks                                   |
//!
//! Every rank publishes its share and reduces the shares of all. n = 4, shares each rank reduces:
//!
//! ```text
//! rank 0:  0 1 2 3
//! rank 1:  0 1 2 3
//! rank 2:  0 1 2 3
//! rank 3:  0 1 2 3
//! ```

use std::ops::Range;

use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatReduction, count, other, part, stores, with_own};
use crate::collective::share::{load, own_and_output};
use crate::op::Reducer;
use crate::rank::{Rank, RankOf};
use crate::reduce::{Side, Stores};
use crate::transport::SLOT;

pub struct FlatAllReduce<'a> {
    me: RankOf,
    reducer: &'a Reducer,
    buffers: Buffers<'a>,
    whole: Range<usize>,
    /// Bytes of a part: whole elements.
    width: usize,
    stores: Stores,
    scratch: Vec<u8>,
}

impl<'a> FlatAllReduce<'a> {
    pub fn new(me: RankOf, reducer: &'a Reducer, buffers: Buffers<'a>) -> Self {
        let whole = 0..buffers.input().len();
        let (width, stores) = (reducer.dtype().whole(SLOT), stores(whole.len()));
        Self { me, reducer, buffers, whole, width, stores, scratch: Vec::new() }
    }
}

impl<'a> Flat<'a> for FlatAllReduce<'a> {
    fn parts(&self) -> usize {
        count(self.whole.len(), self.width)
    }

    fn publishes(&self, _rank: Rank) -> bool {
        true
    }

    fn bytes(&self, _rank: Rank, number: usize) -> usize {
        part(&self.whole, self.width, number).len()
    }

    fn width(&self) -> usize {
        self.width
    }

    fn in_place(&self) -> Option<&'a [u8]> {
        self.buffers.input_apart().filter(|_| !self.reducer.prepares(self.me.size))
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        let share = &self.buffers.input()[part(&self.whole, self.width, number)];
        load(self.reducer, share, self.me.size, slot, stores);
    }

    fn source(&self, index: usize) -> Option<Rank> {
        other(self.me, index)
    }
}

impl<'a> FlatReduction<'a> for FlatAllReduce<'a> {
    fn reduce(&mut self, number: usize, shares: &[&[u8]], own: Option<&[u8]>) {
        let Self { me, reducer, buffers, stores, scratch, .. } = self;
        let (part, size) = (part(&self.whole, self.width, number), me.size);
        let into = match (own, buffers, shares) {
            // Two operands are folded faster in place than into a third buffer.
            (None, Buffers::Shared { both }, [theirs]) if !reducer.prepares(size) => {
                let side = Side::of(1 - me.rank.0, me.rank.0);
                reducer.fold(&mut both[part.clone()], theirs, side);
                &mut both[part]
            }
            (own, buffers, _) => {
                let (own, into) = match own {
                    Some(own) => (own, &mut buffers.output_mut()[part]),
                    None => own_and_output(reducer, buffers, part, size, scratch),
                };
                reducer.fold_all(into, &with_own(shares, me.rank.0, own), *stores);
                into
            }
        };
        reducer.finish(into, size);
    }
}
