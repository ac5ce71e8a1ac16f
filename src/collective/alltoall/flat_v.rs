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
use crate::collective::epochs::{Flat, FlatCopy, copy_flat, next, stores};
use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::varying::{COUNTS_STEP, IncomingBlock, OutgoingBlocks, VaryingColumns};
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
    let (outgoing, published) = (OutgoingBlocks::new(me, sent), IncomingBlock::published(me.size));
    let expected = |peer: Rank| received.get(peer.0).len();
    let mut counts = exchange.epochs(COUNTS_STEP, 1);
    let write = |slot: &mut [u8], _| outgoing.write_counts(slot, buffers.input(), expected);
    counts.publish(0, published, write).await?;
    if let Buffers::Apart { input, output } = &mut buffers {
        let own = received.get(me.rank.0);
        passes::copy(&input[sent.get(me.rank.0)], &mut output[own]).await;
    }

    let peers = || (0..).map_while(|index| next(me, index));
    let mut most = outgoing.total;
    let mut incoming: SmallVec<[IncomingBlock; 8]> =
        SmallVec::from_elem(IncomingBlock::default(), me.size);
    for peer in peers() {
        let (sent, expected) = (outgoing.sent(peer), expected(peer));
        let view = counts.view(0, peer, published).await?;
        incoming[peer.0] = IncomingBlock::read(exchange, &view, peer, Some(sent), expected)?;
        most = most.max(incoming[peer.0].total);
    }
    let (columns, stores) = (VaryingColumns::inline(me.size), stores(received.extent()));
    let mut flat = FlatAllToAllV { me, received, buffers, outgoing, incoming, columns, stores };
    if VaryingColumns::fit_inline(me.size, most) {
        for peer in peers() {
            let view = counts.view(0, peer, published).await?;
            flat.copy(0, peer, IncomingBlock::inline(&view, me.size));
        }
        counts.release(0);
        return Ok(());
    }
    counts.release(0);
    flat.columns = VaryingColumns::new(me.size, most);
    copy_flat(exchange, flat).await
}

struct FlatAllToAllV<'a> {
    me: RankOf,
    received: &'a Blocks,
    buffers: Buffers<'a>,
    outgoing: OutgoingBlocks<'a>,
    /// By rank.
    incoming: SmallVec<[IncomingBlock; 8]>,
    columns: VaryingColumns,
    stores: Stores,
}

impl<'a> Flat<'a> for FlatAllToAllV<'a> {
    fn parts(&self) -> usize {
        self.columns.parts
    }

    fn own_parts(&self) -> usize {
        let received = self.incoming.iter().map(|incoming| incoming.parts(self.columns));
        received.fold(self.outgoing.parts(self.columns), usize::max)
    }

    fn publishes(&self, _rank: Rank) -> bool {
        true
    }

    fn moves(&self, from: Rank, number: usize) -> bool {
        let parts = match from == self.me.rank {
            true => self.outgoing.parts(self.columns),
            false => self.incoming[from.0].parts(self.columns),
        };
        number < parts
    }

    fn bytes(&self, rank: Rank, _number: usize) -> usize {
        let total = match rank == self.me.rank {
            true => self.outgoing.total,
            false => self.incoming[rank.0].total,
        };
        self.columns.used(total)
    }

    fn fill(&self, number: usize, slot: &mut [u8], stores: Stores) {
        self.outgoing.fill(self.columns, number, slot, self.buffers.input(), stores);
    }

    fn source(&self, index: usize) -> Option<Rank> {
        next(self.me, index)
    }
}

impl<'a> FlatCopy<'a> for FlatAllToAllV<'a> {
    fn copy(&mut self, number: usize, from: Rank, bytes: &[u8]) {
        let into = self.columns.part(&self.received.get(from.0), number);
        let (incoming, both) = (self.incoming[from.0], [from, self.me.rank]);
        let output = &mut self.buffers.output_mut()[into];
        incoming.copy(self.columns, both, bytes, output, self.stores);
    }
}
