//! | card       | all-to-all of blocks that differ in length, flat                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 2, in epochs: counts, then data; 1 if the data fits behind the counts     |
//! | bytes sent | none; each rank publishes all blocks but its own, in columns              |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, at most 1024                                           |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host, blocks that differ in length                                 |
//!
//! Every rank publishes how much it sends to and expects from each other rank. The rank that sends
//! most determines the number of parts, and each part has an even share of every block: so a
//! call in place overwrites no byte that is not published. n = 4, counts and columns of each slot,
//! where rank 1 sends most and sends nothing to rank 3:
//!
//! ```text
//!          counts     part 0         part 1
//! rank 0:  1 2 3      1 2 3          1 2 3
//! rank 1:  0 2 3      000 2222       000 2222
//! rank 2:  0 1 3      0 11 3         0 11 3
//! rank 3:  0 1 2      0 1 2          0 1 2
//! ```

use smallvec::SmallVec;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::epochs::{Flat, FlatCopy, next, stores};
use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::varying::{
    Checked, FlatWithCounts, IncomingBlock, OutgoingBlocks, VaryingColumns, copy_flat_v,
};
use crate::error::Result;
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;

pub async fn flat_v(
    exchange: &Exchange<'_>,
    sent: &Blocks,
    received: &Blocks,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let me = exchange.me();
    if let Buffers::Apart { input, output } = &mut buffers {
        let own = received.get(me.rank.0);
        passes::copy(&input[sent.get(me.rank.0)], &mut output[own]).await;
    }
    copy_flat_v(exchange, FlatAllToAllV::new(me, sent, received, buffers)).await
}

/// Leaves out the block of a rank for itself.
pub struct FlatAllToAllV<'a> {
    me: RankOf,
    received: &'a Blocks,
    buffers: Buffers<'a>,
    outgoing: OutgoingBlocks<'a>,
    /// By rank.
    incoming: SmallVec<[IncomingBlock; 8]>,
    /// The bytes of the rank that sends most.
    most: usize,
    stores: Stores,
}

impl<'a> FlatAllToAllV<'a> {
    pub fn new(me: RankOf, sent: &'a Blocks, received: &'a Blocks, buffers: Buffers<'a>) -> Self {
        let outgoing = OutgoingBlocks::new(me, sent);
        let incoming = SmallVec::from_elem(IncomingBlock::default(), me.size);
        let (most, stores) = (outgoing.total, stores(received.extent()));
        Self { me, received, buffers, outgoing, incoming, most, stores }
    }

    fn columns(&self) -> VaryingColumns {
        VaryingColumns::new(self.me.size, self.most)
    }

    fn is_inline(&self) -> bool {
        VaryingColumns::fit_inline(self.me.size, self.most)
    }
}

impl<'a> Flat<'a> for FlatAllToAllV<'a> {
    fn parts(&self) -> usize {
        if self.is_inline() { 0 } else { self.columns().parts }
    }

    fn own_parts(&self) -> usize {
        let columns = self.columns();
        let received = self.incoming.iter().map(|incoming| incoming.parts(columns));
        received.fold(self.outgoing.parts(columns), usize::max)
    }

    fn publishes(&self, _rank: Rank) -> bool {
        true
    }

    fn moves(&self, from: Rank, number: usize) -> bool {
        let parts = match from == self.me.rank {
            true => self.outgoing.parts(self.columns()),
            false => self.incoming[from.0].parts(self.columns()),
        };
        number < parts
    }

    fn bytes(&self, rank: Rank, _number: usize) -> usize {
        let total = match rank == self.me.rank {
            true => self.outgoing.total,
            false => self.incoming[rank.0].total,
        };
        self.columns().used(total)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        self.outgoing.fill(self.columns(), number, slot, self.buffers.input(), stores);
    }

    fn source(&self, index: usize) -> Option<Rank> {
        next(self.me, index)
    }
}

impl<'a> FlatCopy<'a> for FlatAllToAllV<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        let (columns, both) = (self.columns(), [from, self.me.rank]);
        let into = columns.part(&self.received.get(from.0), number);
        let (incoming, output) = (self.incoming[from.0], &mut self.buffers.output_mut()[into]);
        incoming.copy(columns, both, bytes, output, self.stores);
    }
}

impl<'a> FlatWithCounts<'a> for FlatAllToAllV<'a> {
    fn publishes_counts(&self) -> bool {
        true
    }

    fn published(&self) -> usize {
        IncomingBlock::published(self.me.size)
    }

    fn write_counts(&self, slot: &mut [u8]) {
        let expected = |peer: Rank| self.received.get(peer.0).len();
        self.outgoing.write_counts(slot, self.buffers.input(), expected);
    }

    fn read_counts(&mut self, from: Rank, published: &[u8]) -> Checked<()> {
        let (sent, expected) = (self.outgoing.sent(from), self.received.get(from.0).len());
        let both = [from, self.me.rank];
        self.incoming[from.0] = IncomingBlock::read(published, both, Some(sent), expected)?;
        self.most = self.most.max(self.incoming[from.0].total);
        Ok(())
    }

    fn copy_inline(&mut self, from: Rank, published: &[u8]) {
        if self.is_inline() {
            self.copy(0, from, IncomingBlock::inline(published, self.me.size));
        }
    }
}
