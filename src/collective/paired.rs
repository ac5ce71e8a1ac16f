//! Blocks whose lengths only their two ranks know, in the shared memory of one host.
//!
//! In AllToAllV, GatherV and ScatterV a block has an epoch of its own, or one for each part. The
//! header that its sender publishes has the length of the block, so the receiver compares it before
//! it writes a byte, and a rank that only sends short blocks waits for no other. The epochs are in
//! rows, one row for each part; a row has a column for each block that a rank may send. No rank
//! knows how many rows the others need, so the call takes many more epochs than it uses, and a rank
//! that needs no more of them releases all at once. Leaves to the algorithms their collective.
//! Invariant: in place, a row is published before a byte of it is overwritten.

use std::ops::Range;

use tokio::try_join;

use super::epochs::{EpochStep, ahead, part, schedule, stores};
use super::exchange::Exchange;
use super::passes;
use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::{Call, Collective, Counts};
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::{FastEpoch, SLOT};

/// The most ranks among which each sends several blocks: a row must fit the slots that a rank
/// publishes ahead.
pub const MOST_PAIRED: usize = 4;

/// Rows of a call, at most. A multiple of all numbers of slots and of descriptors: so calls that
/// use one row use each slot in turn, as if no epoch were left out.
const MOST_ROWS: usize = 192 << 10;

/// The longest block that travels through slots, or where it is if that is in its sender's arena. A
/// longer one has more parts than a call has rows, and travels over the links. (Blocks are not read
/// by process_vm_readv(2): measured with 4 and 8 ranks on 2 cores, it takes up to five times as
/// long.)
fn longest(width: usize) -> usize {
    MOST_ROWS / width.max(1) * SLOT
}

/// The step of the blocks that travel over the links.
const LINKS: usize = 1;

/// What a rank sends and receives in one call.
#[derive(Clone, Copy)]
pub enum Paired<'a> {
    /// A block to and from each other rank, in the rank's input and output.
    AllToAll { sent: &'a Blocks, received: &'a Blocks },
    /// The whole input of each other rank, to the blocks of the root's output.
    Gather { root: Rank, received: &'a Blocks },
    /// The blocks of the root's input, each to the whole output of its rank.
    Scatter { root: Rank, sent: &'a Blocks },
}

impl<'a> Paired<'a> {
    /// What this rank sends and receives in a call. `None`: another algorithm executes it.
    pub fn of(call: &Call, sent: &'a Blocks, received: &'a Blocks, size: usize) -> Option<Self> {
        match (call.collective(), call.root()) {
            _ if call.counts() != Counts::Pairwise => None,
            (Collective::Gather, Some(root)) => Some(Self::Gather { root, received }),
            _ if size > MOST_PAIRED => None,
            (Collective::AllToAll, None) => Some(Self::AllToAll { sent, received }),
            (Collective::Scatter, Some(root)) => Some(Self::Scatter { root, sent }),
            _ => None,
        }
    }

    /// The number of blocks that a rank sends, at most.
    pub fn width(&self, size: usize) -> usize {
        match self {
            Self::AllToAll { .. } | Self::Scatter { .. } => size - 1,
            Self::Gather { .. } => 1,
        }
    }

    /// The number of epochs of a call.
    pub fn epochs(&self, size: usize) -> usize {
        MOST_ROWS + self.width(size)
    }

    /// The block that this rank sends in a column.
    pub fn outgoing(&self, me: RankOf, input: usize, column: usize) -> Option<Range<usize>> {
        match self {
            Self::AllToAll { sent, .. } => Some(sent.get(me.after(column + 1).0)),
            Self::Gather { root, .. } => (me.rank != *root).then_some(0..input),
            Self::Scatter { root, sent } => {
                (me.rank == *root).then(|| sent.get(me.after(column + 1).0))
            }
        }
    }

    /// The blocks that this rank receives in a column, by index. `None`: there are no more.
    pub fn incoming(
        &self,
        me: RankOf,
        output: usize,
        column: usize,
        index: usize,
    ) -> Option<(Rank, Range<usize>)> {
        match self {
            Self::AllToAll { received, .. } => {
                let from = me.before(column + 1);
                (index == 0).then(|| (from, received.get(from.0)))
            }
            Self::Gather { root, received } => {
                let from = me.after(index + 1);
                let is_there = me.rank == *root && index + 1 < me.size;
                is_there.then(|| (from, received.get(from.0)))
            }
            Self::Scatter { root, .. } => {
                let is_mine = me.rank != *root && me.before(column + 1) == *root;
                (is_mine && index == 0).then_some((*root, 0..output))
            }
        }
    }

    /// The rank that receives what this one sends in a column.
    fn receiver(&self, me: RankOf, column: usize) -> Rank {
        match self {
            Self::AllToAll { .. } | Self::Scatter { .. } => me.after(column + 1),
            Self::Gather { root, .. } => *root,
        }
    }

    /// Whether a rank both sends and receives.
    fn goes_both_ways(&self) -> bool {
        matches!(self, Self::AllToAll { .. })
    }
}

/// Executes the call, but for the block of a rank for itself.
pub async fn exchange_paired(
    exchange: &Exchange<'_>,
    paired: Paired<'_>,
    buffers: Buffers<'_>,
) -> Result<()> {
    exchange_up_to(exchange, paired, buffers, longest(paired.width(exchange.me().size))).await
}

/// `longest`: a longer block travels over the links. Both its ranks know its length.
async fn exchange_up_to(
    exchange: &Exchange<'_>,
    paired: Paired<'_>,
    buffers: Buffers<'_>,
    longest: usize,
) -> Result<()> {
    let is_long = |block: &Range<usize>| block.len() > longest;
    // A block takes one row for its length, also if it is empty.
    let rows_of = |bytes: usize| if bytes > longest { 1 } else { bytes.div_ceil(SLOT).max(1) };
    let me = exchange.me();
    let (width, epochs) = (paired.width(me.size), paired.epochs(me.size));
    let (input, output) = match buffers {
        Buffers::Apart { input, output } => (Some(input), output),
        Buffers::Shared { both } => (None, both),
    };
    let sent = input.map_or(output.len(), <[u8]>::len);
    let outgoing = |column| paired.outgoing(me, sent, column);
    let received = output.len();
    let incoming =
        |column| (0..).map_while(move |index| paired.incoming(me, received, column, index));
    let lengths = || {
        let sent = (0..width).filter_map(outgoing).map(|block| block.len());
        sent.chain((0..width).flat_map(incoming).map(|(_, block)| block.len()))
    };
    let rows = lengths().map(rows_of).max().unwrap_or(0);
    // In place, a block that is sent over the links would be overwritten before.
    let copied = match input {
        None if lengths().any(|bytes| bytes > longest) => Some(passes::copied(output).await?),
        _ => None,
    };
    let whole = input.or(copied.as_deref());
    let mut under_way = exchange.epochs(0, epochs);
    let lead = if paired.goes_both_ways() { ahead(me.size) } else { 0 };
    for step in schedule(rows * width, lead) {
        match step {
            EpochStep::Publish(number) => {
                let (row, column) = (number / width, number % width);
                let Some(block) = outgoing(column) else { continue };
                if row >= rows_of(block.len()) {
                    continue;
                }
                let (bytes, is_long) = (block.len(), is_long(&block));
                let block = if is_long { 0..0 } else { part(&block, SLOT, row) };
                match input {
                    Some(input) if width == 1 && !is_long => {
                        let data = &input[block];
                        under_way.publish_part_in_place(number, bytes, data).await?;
                    }
                    _ => {
                        let data = &input.unwrap_or(output)[block];
                        let fill = |slot: &mut [u8], stores| copy(slot, data, stores);
                        under_way.publish_part(number, bytes, data.len(), fill).await?;
                    }
                }
            }
            EpochStep::View(number) => {
                let (row, column) = (number / width, number % width);
                for (from, block) in incoming(column) {
                    let bytes = block.len();
                    if row >= rows_of(bytes) {
                        continue;
                    }
                    let into = if is_long(&block) { 0..0 } else { part(&block, SLOT, row) };
                    let view = under_way.view_part(number, from, bytes, into.len()).await?;
                    copy(&mut output[into], &view, stores(received));
                }
                under_way.release(number);
            }
        }
    }
    under_way.release(epochs - 1);
    for column in 0..width {
        let send = async {
            match (outgoing(column).filter(is_long), whole) {
                (Some(block), Some(input)) => {
                    let to = paired.receiver(me, column);
                    exchange.send(to, LINKS, &input[block]).await
                }
                _ => Ok(()),
            }
        };
        let receive = async {
            for (from, block) in incoming(column).filter(|(_, block)| is_long(block)) {
                exchange.recv(from, LINKS, &mut output[block]).await?;
            }
            Ok(())
        };
        try_join!(send, receive)?;
    }
    under_way.wait_released().await
}

/// As `exchange_paired` on the fast path, of blocks that each fit a slot.
pub fn exchange_at_once(
    paired: Paired<'_>,
    mut buffers: Buffers<'_>,
    me: RankOf,
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    let width = paired.width(me.size);
    let (sent, received) = (buffers.input().len(), buffers.output_mut().len());
    for column in 0..width {
        if let Some(block) = paired.outgoing(me, sent, column) {
            let data = &buffers.input()[block];
            epoch.publish_part(column, data.len(), |slot| slot.copy_from_slice(data));
        }
    }
    let mut has_rung = false;
    for column in 0..width {
        for index in 0.. {
            let Some((from, block)) = paired.incoming(me, received, column, index) else { break };
            if !has_rung {
                // A rank that receives nothing next releases the epochs, which wakes the others.
                epoch.ring();
                has_rung = true;
            }
            let view = epoch.view_part(column, from, block.len())?;
            copy(&mut buffers.output_mut()[block], view, Stores::Cached);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::dtype::DataType;
    use crate::parker::block_on;
    use crate::transport::mem::MemWorld;
    use crate::transport::{CallHistory, EPOCHS, Lane, slots};

    /// Exchanges blocks of these lengths, by sender and receiver, on threads.
    fn exchange(lengths: &[&[usize]], longest: usize) {
        let world = MemWorld::new(lengths.len()).unwrap();
        let at = |lengths: Vec<usize>| {
            let ends = lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end - length..*end)
            });
            Blocks::at(ends.collect())
        };
        let byte = |from: usize, to: usize, index: usize| (from * 31 + to * 7 + index % 251) as u8;
        std::thread::scope(|scope| {
            for (rank, mesh) in world.meshes().into_iter().enumerate() {
                scope.spawn(move || {
                    let sent = at(lengths[rank].to_vec());
                    let received = at(lengths.iter().map(|of_sender| of_sender[rank]).collect());
                    let mut input = vec![0; sent.extent()];
                    for (to, block) in sent.iter().enumerate() {
                        for (index, into) in input[block].iter_mut().enumerate() {
                            *into = byte(rank, to, index);
                        }
                    }
                    let mut output = vec![0; received.extent()];
                    let call = Call::all_to_all(Counts::Pairwise, DataType::Int8.into());
                    let exchange = Exchange::new(&mesh, Lane(0), 0, call, CallHistory::default());
                    let paired = Paired::AllToAll { sent: &sent, received: &received };
                    let buffers = Buffers::Apart { input: &input, output: &mut output };
                    let deadline = Instant::now() + Duration::from_secs(60);
                    let ended =
                        block_on(exchange_up_to(&exchange, paired, buffers, longest), deadline);
                    ended.expect("a minute is enough").unwrap();
                    for (from, block) in received.iter().enumerate().filter(|(at, _)| *at != rank) {
                        let expected = (0..block.len()).map(|index| byte(from, rank, index));
                        assert!(output[block].iter().copied().eq(expected), "{from} to {rank}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_block_of_more_parts_than_a_call_has_rows_travels_over_the_links() {
        let (longest, long) = (2 * SLOT, 2 * SLOT + 1);
        exchange(&[&[0, long, 5], &[long, 0, longest], &[0, 3 * SLOT, 0]], longest);
        exchange(&[&[0, 7], &[long, 0]], longest);
    }

    #[test]
    fn calls_of_one_row_use_every_slot_and_descriptor_in_turn() {
        for ranks in 2..=MOST_PAIRED {
            let blocks = Blocks::equal(1, ranks);
            let paired = Paired::AllToAll { sent: &blocks, received: &blocks };
            for indices in [slots(ranks), EPOCHS, 64] {
                assert_eq!(paired.epochs(ranks) % indices, paired.width(ranks) % indices);
            }
            // A row is published before it is viewed.
            assert!(paired.width(ranks) <= ahead(ranks) + 1);
        }
    }
}
