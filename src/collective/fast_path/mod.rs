//! The fast path of calls of up to 4 KiB between ranks of one host: which calls take it, and their
//! execution in one epoch.
//!
//! If the peers arrive within the spin limit, a call of up to 32 bytes takes 80 to 180 ns, largely
//! the transfer of cache lines; a future alone would take longer. Such calls are executed by value:
//! in memory they would be written in smaller pieces than they are read, which stalls store
//! forwarding and made a call of 8 bytes a fifth slower. All but rare cases are inlined into the
//! exported function, which knows its collective. Leaves longer calls to `slot`, and to `comm` the
//! sequence number and the general path. Invariants:
//! - a rank publishes, reads and reduces the same bytes in the same order on both paths, so ranks
//!   on either can take part in one call;
//! - a call that does not complete here can continue on the general path, because no byte is
//!   overwritten that is not published.

mod slot;

use std::ops::Range;

use bytemuck::{bytes_of, bytes_of_mut};

use super::epochs::others;
use super::paired::{MOST_PAIRED, Paired};
use super::scan::shares::{FLAT_SCAN, folding};
use super::share::Columns;
use super::varying::{IncomingBlock, MOST_RANKS};
use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::op::{Collective, Counts, Op, OpMemory, Reducer};
use crate::rank::{Rank, RankOf};
use crate::reduce::Side;
use crate::transport::{FastEpoch, FastEpochs, INLINE_BYTES, Inline};

/// The most bytes that a rank publishes. A longer call may have another algorithm than flat.
const MOST: usize = 4 << 10;
/// The most bytes of all ranks together, unless they travel inline: the caller holds locks.
const MOST_OF_ALL: usize = 16 << 10;

/// How many bytes each rank publishes. `None` if the call is not eligible for the fast path.
#[inline(always)]
pub fn bytes(op: &Op<'_>, size: usize) -> Option<usize> {
    let call = op.call();
    match op.reducer() {
        // A function of the program may take any time.
        Some(Reducer::User { .. }) => return None,
        // In another floating-point environment the general path reduces.
        Some(reducer) if !reducer.can_fold_inline() => return None,
        _ => {}
    }
    let bytes = match (call.collective(), call.counts()) {
        (Collective::AllToAll | Collective::Gather | Collective::Scatter, Counts::Pairwise) => {
            return bytes_with_counts(op, size);
        }
        (Collective::Barrier, _) => return Some(0),
        (Collective::AllReduce | Collective::Reduce | Collective::Scan, _) => call.bytes(),
        (Collective::Broadcast, _) => call.bytes(),
        (Collective::AllGather, Counts::Each(_)) => call.bytes(),
        (Collective::AllToAll | Collective::ReduceScatter, Counts::Each(_)) => {
            let block = op.memory.sent.longest();
            Columns::new(size, block).used(Rank(0), |_| block)
        }
        _ => return None,
    };
    let is_short =
        (1..=MOST).contains(&bytes) && (bytes <= INLINE_BYTES || bytes * size <= MOST_OF_ALL);
    is_short.then_some(bytes)
}

/// How many bytes a rank publishes of a call of which only some ranks know the counts; the most, if
/// it publishes in several epochs. Each rank decides by its own buffers whether it takes the fast
/// path: on both paths it publishes the same.
#[inline(never)]
fn bytes_with_counts(op: &Op<'_>, size: usize) -> Option<usize> {
    let copied = match &op.memory.buffers {
        Buffers::Apart { input, output } => input.len().saturating_add(output.len()),
        Buffers::Shared { both } => both.len().saturating_mul(2),
    };
    if copied > MOST_OF_ALL || size > MOST_RANKS {
        return None;
    }
    match (op.call().collective(), &op.memory.buffers) {
        (Collective::Gather, Buffers::Apart { input, .. }) => Some(input.len()),
        (Collective::Gather, Buffers::Shared { .. }) => Some(0),
        _ if size <= MOST_PAIRED => Some(op.memory.sent.longest()),
        _ => Some(IncomingBlock::published(size)),
    }
}

/// The epochs that the call begins.
#[inline(always)]
pub fn epochs(op: &Op<'_>, me: RankOf) -> FastEpochs {
    if op.call().counts() == Counts::Pairwise { paired_epochs(op, me) } else { FastEpochs::ONE }
}

#[inline(never)]
fn paired_epochs(op: &Op<'_>, me: RankOf) -> FastEpochs {
    let OpMemory { sent, received, .. } = &op.memory;
    let Some(paired) = Paired::of(&op.call(), sent, received, me.size) else {
        return FastEpochs::ONE;
    };
    let publishes = paired.outgoing(me, 0, 0).is_some();
    let published = if publishes { paired.width(me.size) as u64 } else { 0 };
    FastEpochs { all: paired.epochs(me.size) as u64, published }
}

/// Executes the call. `None` if a peer does not arrive within the spin limit; then nothing is
/// overwritten that the general path still reads.
#[inline(always)]
pub fn execute(op: &mut Op<'_>, me: RankOf, epoch: &FastEpoch<'_>) -> Option<()> {
    if op.call().counts() == Counts::Pairwise {
        slot::execute_with_counts(op, me, epoch)?;
    } else if epoch.bytes() <= INLINE_BYTES {
        execute_inline(op, me, epoch)?;
    } else {
        slot::execute(op, me, epoch)?;
    }
    epoch.release();
    Some(())
}

#[inline(always)]
fn execute_inline(op: &mut Op<'_>, me: RankOf, epoch: &FastEpoch<'_>) -> Option<()> {
    let (bytes, call) = (epoch.bytes(), op.call());
    let (reducer, OpMemory { sent, received, buffers, .. }) = op.parts_mut();
    match (call.collective(), reducer, call.root()) {
        (Collective::AllReduce, Some(reducer), None) => {
            let own = ready(reducer, buffers.input(), me.size);
            epoch.publish(&own);
            let result = fold_all(reducer, me, own, bytes, epoch)?;
            give(buffers.output_mut(), &result);
        }
        (Collective::Reduce, Some(reducer), Some(root)) => {
            let own = ready(reducer, buffers.input(), me.size);
            if me.rank == root {
                let result = fold_all(reducer, me, own, bytes, epoch)?;
                give(buffers.output_mut(), &result);
            } else {
                epoch.publish_and_release_next(&own);
            }
        }
        (Collective::Scan, Some(reducer), None) => scan(reducer, buffers, me, epoch)?,
        (Collective::Broadcast, None, Some(root)) => {
            if me.rank == root {
                let data = to_inline(buffers.input());
                epoch.publish_and_release_next(&data);
                if buffers.are_apart() {
                    give(buffers.output_mut(), &data);
                }
            } else {
                give(buffers.output_mut(), &epoch.view(root)?);
            }
        }
        (Collective::AllGather, None, None) => {
            let own = match buffers {
                Buffers::Apart { input, output } => {
                    output[received.get(me.rank.0)].copy_from_slice(input);
                    to_inline(input)
                }
                Buffers::Shared { both } => to_inline(&both[received.get(me.rank.0)]),
            };
            epoch.publish(&own);
            for peer in others(me) {
                give(&mut buffers.output_mut()[received.get(peer.0)], &epoch.view(peer)?);
            }
        }
        (Collective::AllToAll, None, None) => {
            let columns = Columns::new(me.size, sent.longest());
            let mut own = [0; INLINE_BYTES / 8];
            for peer in others(me) {
                let block = &buffers.input()[sent.get(peer.0)];
                let column = columns.column(me.rank, peer, block.len());
                bytes_of_mut(&mut own)[column].copy_from_slice(block);
            }
            epoch.publish(&own);
            if let Buffers::Apart { input, output } = buffers {
                let own = sent.get(me.rank.0);
                output[own.clone()].copy_from_slice(&input[own]);
            }
            for peer in others(me) {
                let (block, theirs) = (sent.get(peer.0), epoch.view(peer)?);
                let column = columns.column(peer, me.rank, block.len());
                buffers.output_mut()[block].copy_from_slice(&bytes_of(&theirs)[column]);
            }
        }
        (Collective::ReduceScatter, Some(reducer), None) => {
            reduce_scatter(reducer, sent, buffers, me, epoch)?;
        }
        (Collective::Barrier, None, None) => {
            epoch.publish(&[0; INLINE_BYTES / 8]);
            for peer in others(me) {
                epoch.view(peer)?;
            }
        }
        _ => unreachable!("no other call is eligible"),
    }
    Some(())
}

/// Executes a scan: flat, or as a chain.
#[inline(always)]
fn scan(
    reducer: &Reducer,
    buffers: &mut Buffers<'_>,
    me: RankOf,
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    let own = ready(reducer, buffers.input(), me.size);
    let (is_first, is_last) = (me.rank == Rank(0), me.rank.0 + 1 == me.size);
    let is_flat = me.size <= FLAT_SCAN;
    if is_first {
        epoch.publish_and_release_next(&own);
        if let Buffers::Apart { input, output } = buffers {
            give(output, &to_inline(input));
        }
        reducer.prepare_inline(buffers.output_mut(), folding(me));
        return Some(());
    }
    if is_flat && !is_last {
        epoch.publish(&own);
    }
    let bytes = epoch.bytes();
    let result = if is_flat {
        fold(reducer, me, 0..me.rank.0 + 1, own, bytes, epoch)?
    } else {
        let mut before = Some(epoch.view(me.before(1))?);
        fold_next(reducer, &mut before, own, bytes);
        before?
    };
    if !is_flat && !is_last {
        epoch.publish_and_release_next(&result);
    }
    give(buffers.output_mut(), &result);
    Some(())
}

#[inline(always)]
fn reduce_scatter(
    reducer: &Reducer,
    blocks: &Blocks,
    buffers: &mut Buffers<'_>,
    me: RankOf,
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    let columns = Columns::new(me.size, blocks.longest());
    let mut published = [0; INLINE_BYTES / 8];
    for peer in others(me) {
        let share = &buffers.input()[blocks.get(peer.0)];
        let column = &mut bytes_of_mut(&mut published)[columns.column(me.rank, peer, share.len())];
        column.copy_from_slice(share);
        reducer.prepare(column, me.size);
    }
    epoch.publish(&published);
    let own = blocks.get(me.rank.0);
    let share = ready(reducer, &buffers.input()[own.clone()], me.size);
    let mut result = None;
    for rank in (0..me.size).map(Rank) {
        let theirs = if rank == me.rank {
            share
        } else {
            let column = columns.column(rank, me.rank, own.len());
            to_inline(&bytes_of(&epoch.view(rank)?)[column])
        };
        fold_next(reducer, &mut result, theirs, own.len());
    }
    let mut result = result?;
    reducer.finish(&mut bytes_of_mut(&mut result)[..own.len()], me.size);
    match buffers {
        Buffers::Apart { output, .. } => give(output, &result),
        Buffers::Shared { both } => give(&mut both[own], &result),
    }
    Some(())
}

/// Folds the shares of all ranks and finishes the result.
#[inline(always)]
fn fold_all(
    reducer: &Reducer,
    me: RankOf,
    own: Inline,
    bytes: usize,
    epoch: &FastEpoch<'_>,
) -> Option<Inline> {
    let mut result = fold(reducer, me, 0..me.size, own, bytes, epoch)?;
    if reducer.finishes() {
        reducer.finish(&mut bytes_of_mut(&mut result)[..bytes], me.size);
    }
    Some(result)
}

/// Folds the shares of some ranks, of which this is one, in their order.
#[inline(always)]
fn fold(
    reducer: &Reducer,
    me: RankOf,
    ranks: Range<usize>,
    own: Inline,
    bytes: usize,
    epoch: &FastEpoch<'_>,
) -> Option<Inline> {
    let mut result = None;
    for rank in ranks.map(Rank) {
        let share = if rank == me.rank { own } else { epoch.view(rank)? };
        fold_next(reducer, &mut result, share, bytes);
    }
    result
}

#[inline(always)]
fn fold_next(reducer: &Reducer, result: &mut Option<Inline>, share: Inline, bytes: usize) {
    match result {
        None => *result = Some(share),
        Some(folded) => {
            let (folded, share) = (bytes_of_mut(folded), bytes_of(&share));
            reducer.fold_inline(&mut folded[..bytes], &share[..bytes], Side::Right);
        }
    }
}

/// A share, ready to be folded.
#[inline(always)]
fn ready(reducer: &Reducer, share: &[u8], size: usize) -> Inline {
    let own = to_inline(share);
    if reducer.prepares(size) { prepared(reducer, own, share.len(), size) } else { own }
}

/// Not inlined, because it is rare.
#[inline(never)]
fn prepared(reducer: &Reducer, mut own: Inline, bytes: usize, size: usize) -> Inline {
    reducer.prepare(&mut bytes_of_mut(&mut own)[..bytes], size);
    own
}

#[inline(always)]
fn to_inline(bytes: &[u8]) -> Inline {
    match *bytes {
        // The most common lengths need no memory.
        [a, b, c, d] => [u32::from_ne_bytes([a, b, c, d]).to_le().into(), 0, 0, 0],
        [a, b, c, d, e, f, g, h] => [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), 0, 0, 0],
        _ => copied(bytes),
    }
}

/// Not inlined, because it is rare.
#[inline(never)]
fn copied(bytes: &[u8]) -> Inline {
    let mut inline = [0; INLINE_BYTES / 8];
    bytes_of_mut(&mut inline)[..bytes.len()].copy_from_slice(bytes);
    inline
}

#[inline(always)]
fn give(into: &mut [u8], result: &Inline) {
    match into.len() {
        // With a constant length this is one store.
        8 => into.copy_from_slice(&bytes_of(result)[..8]),
        length => into.copy_from_slice(&bytes_of(result)[..length]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::select::{Selection, Topology};
    use super::super::table;
    use super::*;
    use crate::dtype::DataType;
    use crate::op::{Call, Fold, RedOp};

    #[test]
    fn the_general_path_executes_eligible_calls_by_the_flat_algorithm() {
        let (dtype, selection) = (DataType::Int8, Selection::default());
        let reduction = Fold::new(dtype, RedOp::Sum).unwrap().into();
        for (ranks, topology) in
            (2..70).flat_map(|ranks| [(ranks, Topology::OneHost), (ranks, Topology::OpenHost)])
        {
            let (count, counts, root) = (MOST, Counts::Each(MOST), Rank(0));
            let calls = [
                Call::all_reduce(count, reduction),
                Call::reduce(count, reduction, root),
                Call::broadcast(count, dtype.into(), root),
                Call::all_gather(counts, dtype.into()),
                Call::reduce_scatter(counts, reduction),
                Call::all_to_all(counts, dtype.into()),
                Call::barrier(),
            ];
            for call in calls {
                let name = table::choose(&selection, &call, ranks, topology);
                assert_eq!(name, "flat", "{call} of {ranks}");
            }
            let counts = Counts::Pairwise;
            let calls = [
                Call::all_to_all(counts, dtype.into()),
                Call::gather(counts, dtype.into(), root),
                Call::scatter(counts, dtype.into(), root),
            ];
            for call in calls {
                let name = table::choose(&selection, &call, ranks, topology);
                let is_gather = call.collective() == Collective::Gather;
                let is_paired = ranks <= MOST_PAIRED && !is_gather;
                let expected = if is_paired { "paired" } else { "flat_v" };
                assert_eq!(name, expected, "{call} of {ranks}");
            }
            let scan = table::choose(&selection, &Call::scan(count, reduction), ranks, topology);
            assert_eq!(scan, if ranks <= FLAT_SCAN { "flat" } else { "chain" }, "of {ranks}");
        }
    }
}
