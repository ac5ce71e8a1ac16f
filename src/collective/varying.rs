//! Blocks of which not all ranks know the lengths, in the shared memory of one host.
//!
//! In AllToAllV, GatherV and ScatterV a rank knows only its own counts, but all ranks must begin
//! the same number of epochs. So the first epoch of a call carries counts: each rank compares those
//! that concern it, and all derive the same number of epochs for the data. If there is little data,
//! it is published behind the counts, and no epoch follows. Leaves to the algorithms which rank
//! publishes what. Invariant: a word of another rank is untrusted; it is read once and checked
//! before a byte is written to the caller's memory, and the work of a rank is bounded by its own
//! counts.

use std::hint::black_box;
use std::ops::Range;

use smallvec::SmallVec;

use super::epochs::{FlatCopy, copy_flat_in_step, others, part};
use super::exchange::Exchange;
use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

/// The steps of the epoch with the counts, and of those with the data.
const COUNTS: usize = 0;
const DATA: usize = 1;

/// The most ranks whose counts and columns fit a slot.
pub const MOST_RANKS: usize = 1024;

/// Bytes of data that a rank publishes behind its counts, at most.
pub const INLINE: usize = 8 << 10;

const WORD: usize = 8;

/// The length of this many counts.
pub const fn words(count: usize) -> usize {
    count * WORD
}

pub fn put(bytes: &mut [u8], index: usize, count: usize) {
    bytes[words(index)..words(index + 1)].copy_from_slice(&(count as u64).to_ne_bytes());
}

/// A count that another rank has published. No caller passes more than `isize::MAX` bytes, so a
/// sum of two counts does not overflow.
pub fn get(bytes: &[u8], index: usize) -> usize {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[words(index)..words(index + 1)]);
    // A second read could find another value: the other rank can write this memory at any time.
    let count = black_box(u64::from_ne_bytes(word));
    usize::try_from(count).unwrap_or(usize::MAX).min(isize::MAX as usize)
}

/// What a rank does in the epoch of counts, before the epochs with the data.
pub trait FlatWithCounts<'a>: FlatCopy<'a> {
    /// Whether this rank publishes counts.
    fn publishes_counts(&self) -> bool;

    /// The bytes that a rank publishes with its counts.
    fn published(&self) -> usize;

    /// The ranks whose counts this rank reads, by index. `None`: there are no more.
    fn counts_from(&self, index: usize) -> Option<Rank> {
        self.source(index)
    }

    /// Writes the counts of this rank, and its data if that fits behind them.
    fn write_counts(&self, slot: &mut [u8]);

    /// Reads the counts of a rank. When those of all are read, `parts` is final.
    fn read_counts(&mut self, from: Rank, published: &[u8]) -> Checked<()>;

    /// Copies the data of a rank, if all of it is behind the counts.
    fn copy_inline(&mut self, from: Rank, published: &[u8]);
}

/// What is wrong with the counts that a rank has published.
pub enum Wrong {
    /// Two ranks pass different lengths for the block that the first sends to the second.
    Lengths { pair: [Rank; 2], sent: usize, expected: usize },
    /// They cannot all be true.
    Contradiction,
}

/// The outcome of reading what another rank has published.
pub type Checked<T> = std::result::Result<T, Wrong>;

/// Whether two ranks pass the same length for the block that the first sends to the second.
pub fn check(pair: [Rank; 2], sent: usize, expected: usize) -> Checked<()> {
    if sent == expected { Ok(()) } else { Err(Wrong::Lengths { pair, sent, expected }) }
}

/// Executes a collective of which only some ranks know the counts.
pub async fn copy_flat_v<'a>(
    exchange: &Exchange<'_>,
    mut flat: impl FlatWithCounts<'a>,
) -> Result<()> {
    let bytes = flat.published();
    let mut epochs = exchange.epochs(COUNTS, 1);
    if flat.publishes_counts() {
        epochs.publish(0, bytes, |slot, _| flat.write_counts(slot)).await?;
    }
    for index in 0.. {
        let Some(from) = flat.counts_from(index) else { break };
        let view = epochs.view(0, from, bytes).await?;
        flat.read_counts(from, &view).map_err(|wrong| error_of(exchange, from, wrong))?;
    }
    for index in 0.. {
        let Some(from) = flat.counts_from(index) else { break };
        let view = epochs.view(0, from, bytes).await?;
        flat.copy_inline(from, &view);
    }
    epochs.release(0);
    match flat.parts() {
        0 => Ok(()),
        _ => copy_flat_in_step(exchange, DATA, flat).await,
    }
}

fn error_of(exchange: &Exchange<'_>, peer: Rank, wrong: Wrong) -> Error {
    match wrong {
        Wrong::Lengths { pair, sent, expected } => exchange.lengths_differ(pair, sent, expected),
        Wrong::Contradiction => {
            Error::Protocol { peer, what: "published counts that contradict each other".to_owned() }
        }
    }
}

/// Space between two columns: what their alignment takes.
const PADDING: usize = 8;

/// Slots with a column for each rank but their publisher. Each part has an even share of every
/// block, so blocks of any lengths end in the same part.
///
/// With n parts, the column of a block that begins at byte `b` of its rank's blocks, and is the
/// i-th of them, begins at byte `b / n + 8 i` of the slot. So a reader need not know the lengths of
/// the other blocks.
#[derive(Clone, Copy)]
pub struct VaryingColumns {
    ranks: usize,
    pub parts: usize,
}

impl VaryingColumns {
    /// Columns of a single part, behind the counts.
    pub fn inline(ranks: usize) -> Self {
        Self { ranks, parts: 1 }
    }

    /// Whether these bytes of a rank fit behind its counts.
    pub fn fit_inline(ranks: usize, total: usize) -> bool {
        Self::inline(ranks).used(total) <= INLINE
    }

    /// Columns that fit the slots of all ranks: those of a single part if that fits behind the
    /// counts. `most`: the bytes of the rank that has most.
    pub fn new(ranks: usize, most: usize) -> Self {
        let parts = most.div_ceil(SLOT - Self::inline(ranks).used(0));
        if Self::fit_inline(ranks, most) { Self::inline(ranks) } else { Self { ranks, parts } }
    }

    /// The bytes that a part has of this many, at most. A multiple of 8.
    fn share(self, bytes: usize) -> usize {
        bytes.div_ceil(self.parts).next_multiple_of(PADDING)
    }

    /// A part of a block. Parts behind its end are empty.
    pub fn part(self, block: &Range<usize>, number: usize) -> Range<usize> {
        part(block, self.share(block.len()), number)
    }

    /// The number of parts of a block that are not empty.
    pub fn parts_of(self, bytes: usize) -> usize {
        bytes.div_ceil(self.share(bytes).max(1))
    }

    /// Where a slot of rank `by` has `bytes` bytes of the block for rank `of`. `before`: the bytes
    /// of all blocks before it.
    pub fn column(self, [by, of]: [Rank; 2], before: usize, bytes: usize) -> Range<usize> {
        let index = if of < by { of.0 } else { of.0 - 1 };
        let start = self.share(before) + index * PADDING;
        start..start + bytes
    }

    /// The bytes of a slot that a rank uses whose blocks have `total` bytes.
    pub fn used(self, total: usize) -> usize {
        self.share(total) + (self.ranks - 1) * PADDING
    }
}

/// The blocks of this rank for all others, in rank order.
pub struct OutgoingBlocks<'a> {
    me: RankOf,
    blocks: &'a Blocks,
    /// By rank: the bytes of all blocks before its own.
    before: SmallVec<[usize; 8]>,
    pub total: usize,
}

impl<'a> OutgoingBlocks<'a> {
    /// `blocks`: one for each rank; that for this rank itself is not published.
    pub fn new(me: RankOf, blocks: &'a Blocks) -> Self {
        let (mut before, mut total) = (SmallVec::new(), 0);
        for rank in (0..me.size).map(Rank) {
            before.push(total);
            total += if rank == me.rank { 0 } else { blocks.get(rank.0).len() };
        }
        Self { me, blocks, before, total }
    }

    /// Writes the counts that `IncomingBlock::read` reads, and the data if it fits behind them.
    /// `expected`: the bytes that this rank expects of another one.
    pub fn write_counts(&self, slot: &mut [u8], input: &[u8], expected: impl Fn(Rank) -> usize) {
        let (counts, data) = slot.split_at_mut(IncomingBlock::counts(self.me.size));
        put(counts, 0, self.total);
        for rank in others(self.me) {
            let of_rank = [self.before[rank.0], self.sent(rank), expected(rank)];
            for (index, count) in of_rank.into_iter().enumerate() {
                put(counts, IncomingBlock::first(rank) + index, count);
            }
        }
        if VaryingColumns::fit_inline(self.me.size, self.total) {
            self.fill(VaryingColumns::inline(self.me.size), 0, data, input, Stores::Cached);
        }
    }

    /// The bytes for a rank.
    pub fn sent(&self, to: Rank) -> usize {
        self.blocks.get(to.0).len()
    }

    /// The number of parts that have bytes.
    pub fn parts(&self, columns: VaryingColumns) -> usize {
        others(self.me).map(|peer| columns.parts_of(self.sent(peer))).max().unwrap_or(0)
    }

    /// Writes a part of every block to its column.
    pub fn fill(
        &self,
        columns: VaryingColumns,
        number: usize,
        slot: &mut [u8],
        input: &[u8],
        stores: Stores,
    ) {
        for peer in others(self.me) {
            let block = columns.part(&self.blocks.get(peer.0), number);
            if !block.is_empty() {
                let before = self.before[peer.0];
                let column = columns.column([self.me.rank, peer], before, block.len());
                copy(&mut slot[column], &input[block], stores);
            }
        }
    }
}

/// The block of another rank for this one, by the counts that the other rank has published.
#[derive(Clone, Copy, Default)]
pub struct IncomingBlock {
    /// The bytes of all blocks of that rank.
    pub total: usize,
    /// The bytes of its blocks before the one for this rank.
    before: usize,
    /// The bytes of the one for this rank.
    bytes: usize,
}

impl IncomingBlock {
    /// The bytes of all counts of a rank: its total, then three for each rank.
    fn counts(ranks: usize) -> usize {
        words(1 + 3 * ranks)
    }

    /// The index of the first count for a rank.
    fn first(rank: Rank) -> usize {
        1 + 3 * rank.0
    }

    /// The bytes that a rank publishes in the epoch of counts.
    pub fn published(ranks: usize) -> usize {
        Self::counts(ranks) + INLINE
    }

    /// Reads the counts of rank `from`. They are wrong if they differ from those of this rank: it
    /// sends that rank `sent` bytes, if both know that, and expects `expected`.
    pub fn read(
        published: &[u8],
        [from, me]: [Rank; 2],
        sent: Option<usize>,
        expected: usize,
    ) -> Checked<Self> {
        let count = |index| get(published, Self::first(me) + index);
        let (total, before, bytes) = (get(published, 0), count(0), count(1));
        check([from, me], bytes, expected)?;
        if let Some(sent) = sent {
            check([me, from], sent, count(2))?;
        }
        if before + bytes > total {
            return Err(Wrong::Contradiction);
        }
        Ok(Self { total, before, bytes })
    }

    /// The data behind the counts.
    pub fn inline(published: &[u8], ranks: usize) -> &[u8] {
        &published[Self::counts(ranks)..]
    }

    /// The number of parts that have bytes for this rank.
    pub fn parts(&self, columns: VaryingColumns) -> usize {
        columns.parts_of(self.bytes)
    }

    /// Copies a part of the block, which a slot of its sender has, to its place in `output`.
    pub fn copy(
        &self,
        columns: VaryingColumns,
        [from, to]: [Rank; 2],
        slot: &[u8],
        output: &mut [u8],
        stores: Stores,
    ) {
        let column = columns.column([from, to], self.before, output.len());
        copy(output, &slot[column], stores);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lengths() -> impl Strategy<Value = usize> {
        prop_oneof![Just(0), 0..100_usize, 0..200_000_usize, 0..(1_usize << 50)]
    }

    proptest! {
        #[test]
        fn columns_are_apart_and_fit_the_slot_and_all_parts_together_are_the_blocks(
            lengths in prop::collection::vec(lengths(), 2..40),
            by: prop::sample::Index,
            more in lengths(),
        ) {
            let (size, by) = (lengths.len(), Rank(by.index(lengths.len())));
            let me = RankOf::new(by, size);
            let blocks = Blocks::at(lengths.iter().map(|length| 0..*length).collect());
            let own = OutgoingBlocks::new(me, &blocks);
            let columns = VaryingColumns::new(size, own.total.max(more).max(1));
            for number in [0, 1, columns.parts / 2, columns.parts - 1] {
                let mut end = 0;
                for of in others(me) {
                    let block = columns.part(&blocks.get(of.0), number);
                    let column = columns.column([by, of], own.before[of.0], block.len());
                    prop_assert!(column.start >= end && column.len() == block.len());
                    end = column.end;
                    let parts = columns.parts_of(own.sent(of));
                    prop_assert!(parts <= columns.parts);
                    prop_assert_eq!(block.is_empty(), number >= parts);
                }
                prop_assert!(end <= columns.used(own.total) && columns.used(own.total) <= SLOT);
            }
            for length in lengths {
                let last = columns.parts_of(length).max(1) - 1;
                prop_assert_eq!(columns.part(&(0..length), last).end, length);
            }
        }

        #[test]
        fn what_fits_inline_is_where_the_reader_looks(
            lengths in prop::collection::vec(0..300_usize, 2..9),
        ) {
            let size = lengths.len();
            let input: Vec<u8> = (0..400).map(|index| (index % 251) as u8).collect();
            let blocks = Blocks::at(lengths.iter().map(|length| 7..7 + *length).collect());
            for me in (0..size).map(|rank| RankOf::new(Rank(rank), size)) {
                let own = OutgoingBlocks::new(me, &blocks);
                let mut slot = vec![0; IncomingBlock::published(size)];
                own.write_counts(&mut slot, &input, |rank| 1000 + rank.0);
                prop_assert!(VaryingColumns::fit_inline(size, own.total));
                for to in others(me) {
                    let count = |index| get(&slot, IncomingBlock::first(to) + index);
                    prop_assert_eq!((count(1), count(2)), (lengths[to.0], 1000 + to.0));
                    let incoming =
                        IncomingBlock { total: get(&slot, 0), before: count(0), bytes: count(1) };
                    let mut output = vec![0; lengths[to.0]];
                    let (data, columns) =
                        (IncomingBlock::inline(&slot, size), VaryingColumns::inline(size));
                    incoming.copy(columns, [me.rank, to], data, &mut output, Stores::Cached);
                    prop_assert_eq!(&output[..], &input[blocks.get(to.0)]);
                }
            }
        }
    }

    #[test]
    fn counts_of_the_most_ranks_fit_a_slot() {
        assert!(IncomingBlock::published(MOST_RANKS) <= SLOT);
        assert!(VaryingColumns::fit_inline(MOST_RANKS, 0));
    }

    #[test]
    fn no_count_of_another_rank_overflows() {
        let mut bytes = [0; 2 * WORD];
        put(&mut bytes, 1, usize::MAX);
        assert_eq!((get(&bytes, 0), get(&bytes, 1)), (0, isize::MAX as usize));
        for ranks in [2, MOST_RANKS] {
            let columns = VaryingColumns::new(ranks, isize::MAX as usize);
            assert!(columns.used(isize::MAX as usize) <= SLOT);
            assert!(!VaryingColumns::fit_inline(ranks, isize::MAX as usize));
        }
    }
}
