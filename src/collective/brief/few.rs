//! The fast path of calls whose bytes travel inline, by value. In memory they would be written in
//! smaller pieces than they are read, which stalls store forwarding.
//!
//! Leaves longer calls to `slot`, and the release of the epoch to `super`, whose invariants hold
//! here too. Everything but rare cases is inlined into the exported functions (see
//! `Communicator::make_briefly`).

use std::ops::Range;

use bytemuck::{bytes_of, bytes_of_mut};

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::rounds::{Columns, others};
use crate::collective::scan::shares::{FLAT_SCAN, folding};
use crate::op::{Collective, Op, OpMemory, Reducer};
use crate::rank::{Place, Rank};
use crate::reduce::Side;
use crate::transport::{Brief, FEW, Few};

/// Executes the call, as `super::make` says.
#[inline(always)]
pub fn make(op: &mut Op<'_>, place: Place, brief: &Brief<'_>) -> Option<()> {
    let (bytes, call) = (brief.bytes(), op.call());
    let (reducer, OpMemory { sent, received, buffers, .. }) = op.parts_mut();
    match (call.collective(), reducer, call.root()) {
        (Collective::AllReduce, Some(reducer), None) => {
            let own = ready(reducer, buffers.input(), place.size);
            brief.lay(&own);
            let result = fold_all(reducer, place, own, bytes, brief)?;
            give(buffers.output_mut(), &result);
        }
        (Collective::Reduce, Some(reducer), Some(root)) => {
            let own = ready(reducer, buffers.input(), place.size);
            if place.rank == root {
                let result = fold_all(reducer, place, own, bytes, brief)?;
                give(buffers.output_mut(), &result);
            } else {
                brief.lay_and_pass_next(&own);
            }
        }
        (Collective::Scan, Some(reducer), None) => scan(reducer, buffers, place, brief)?,
        (Collective::Broadcast, None, Some(root)) => {
            if place.rank == root {
                let data = few(buffers.input());
                brief.lay_and_pass_next(&data);
                if buffers.are_apart() {
                    give(buffers.output_mut(), &data);
                }
            } else {
                give(buffers.output_mut(), &brief.look(root)?);
            }
        }
        (Collective::AllGather, None, None) => {
            let own = match buffers {
                Buffers::Apart { input, output } => {
                    output[received.get(place.rank.0)].copy_from_slice(input);
                    few(input)
                }
                Buffers::Shared { both } => few(&both[received.get(place.rank.0)]),
            };
            brief.lay(&own);
            for peer in others(place) {
                give(&mut buffers.output_mut()[received.get(peer.0)], &brief.look(peer)?);
            }
        }
        (Collective::AllToAll, None, None) => {
            let columns = Columns::new(place.size, sent.longest());
            let mut own = [0; FEW / 8];
            for peer in others(place) {
                let block = &buffers.input()[sent.get(peer.0)];
                let column = columns.column(place.rank, peer, block.len());
                bytes_of_mut(&mut own)[column].copy_from_slice(block);
            }
            brief.lay(&own);
            if let Buffers::Apart { input, output } = buffers {
                let own = sent.get(place.rank.0);
                output[own.clone()].copy_from_slice(&input[own]);
            }
            for peer in others(place) {
                let (block, theirs) = (sent.get(peer.0), brief.look(peer)?);
                let column = columns.column(peer, place.rank, block.len());
                buffers.output_mut()[block].copy_from_slice(&bytes_of(&theirs)[column]);
            }
        }
        (Collective::ReduceScatter, Some(reducer), None) => {
            reduce_scatter(reducer, sent, buffers, place, brief)?;
        }
        (Collective::Barrier, None, None) => {
            brief.lay(&[0; FEW / 8]);
            for peer in others(place) {
                brief.look(peer)?;
            }
        }
        _ => unreachable!("no other call is brief"),
    }
    Some(())
}

/// Flat, or as a chain.
#[inline(always)]
fn scan(
    reducer: &Reducer,
    buffers: &mut Buffers<'_>,
    place: Place,
    brief: &Brief<'_>,
) -> Option<()> {
    let own = ready(reducer, buffers.input(), place.size);
    let (is_first, is_last) = (place.rank == Rank(0), place.rank.0 + 1 == place.size);
    let is_flat = place.size <= FLAT_SCAN;
    if is_first {
        brief.lay_and_pass_next(&own);
        if let Buffers::Apart { input, output } = buffers {
            give(output, &few(input));
        }
        reducer.prepare_few(buffers.output_mut(), folding(place));
        return Some(());
    }
    if is_flat && !is_last {
        brief.lay(&own);
    }
    let bytes = brief.bytes();
    let result = if is_flat {
        fold(reducer, place, 0..place.rank.0 + 1, own, bytes, brief)?
    } else {
        let mut before = Some(brief.look(place.before(1))?);
        fold_next(reducer, &mut before, own, bytes);
        before?
    };
    if !is_flat && !is_last {
        brief.lay_and_pass_next(&result);
    }
    give(buffers.output_mut(), &result);
    Some(())
}

#[inline(always)]
fn reduce_scatter(
    reducer: &Reducer,
    blocks: &Blocks,
    buffers: &mut Buffers<'_>,
    place: Place,
    brief: &Brief<'_>,
) -> Option<()> {
    let columns = Columns::new(place.size, blocks.longest());
    let mut laid = [0; FEW / 8];
    for peer in others(place) {
        let share = &buffers.input()[blocks.get(peer.0)];
        let column = &mut bytes_of_mut(&mut laid)[columns.column(place.rank, peer, share.len())];
        column.copy_from_slice(share);
        reducer.prepare(column, place.size);
    }
    brief.lay(&laid);
    let own = blocks.get(place.rank.0);
    let share = ready(reducer, &buffers.input()[own.clone()], place.size);
    let mut result = None;
    for rank in (0..place.size).map(Rank) {
        let theirs = if rank == place.rank {
            share
        } else {
            let column = columns.column(rank, place.rank, own.len());
            few(&bytes_of(&brief.look(rank)?)[column])
        };
        fold_next(reducer, &mut result, theirs, own.len());
    }
    let mut result = result?;
    reducer.finish(&mut bytes_of_mut(&mut result)[..own.len()], place.size);
    match buffers {
        Buffers::Apart { output, .. } => give(output, &result),
        Buffers::Shared { both } => give(&mut both[own], &result),
    }
    Some(())
}

/// The shares of all ranks, folded and finished.
#[inline(always)]
fn fold_all(
    reducer: &Reducer,
    place: Place,
    own: Few,
    bytes: usize,
    brief: &Brief<'_>,
) -> Option<Few> {
    let mut result = fold(reducer, place, 0..place.size, own, bytes, brief)?;
    if reducer.finishes() {
        reducer.finish(&mut bytes_of_mut(&mut result)[..bytes], place.size);
    }
    Some(result)
}

/// The shares of some ranks, of which this is one, folded in their order.
#[inline(always)]
fn fold(
    reducer: &Reducer,
    place: Place,
    ranks: Range<usize>,
    own: Few,
    bytes: usize,
    brief: &Brief<'_>,
) -> Option<Few> {
    let mut result = None;
    for rank in ranks.map(Rank) {
        let share = if rank == place.rank { own } else { brief.look(rank)? };
        fold_next(reducer, &mut result, share, bytes);
    }
    result
}

#[inline(always)]
fn fold_next(reducer: &Reducer, result: &mut Option<Few>, share: Few, bytes: usize) {
    match result {
        None => *result = Some(share),
        Some(folded) => {
            let (folded, share) = (bytes_of_mut(folded), bytes_of(&share));
            reducer.fold_few(&mut folded[..bytes], &share[..bytes], Side::Right);
        }
    }
}

/// A share, ready to be folded.
#[inline(always)]
fn ready(reducer: &Reducer, share: &[u8], size: usize) -> Few {
    let own = few(share);
    if reducer.prepares(size) { prepared(reducer, own, share.len(), size) } else { own }
}

/// Rare: not a part of the callers.
#[inline(never)]
fn prepared(reducer: &Reducer, mut own: Few, bytes: usize, size: usize) -> Few {
    reducer.prepare(&mut bytes_of_mut(&mut own)[..bytes], size);
    own
}

#[inline(always)]
fn few(bytes: &[u8]) -> Few {
    match *bytes {
        // What is most common needs no memory.
        [a, b, c, d] => [u32::from_ne_bytes([a, b, c, d]).to_le().into(), 0, 0, 0],
        [a, b, c, d, e, f, g, h] => [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), 0, 0, 0],
        _ => copied(bytes),
    }
}

/// Rare: not a part of the callers.
#[inline(never)]
fn copied(bytes: &[u8]) -> Few {
    let mut few = [0; FEW / 8];
    bytes_of_mut(&mut few)[..bytes.len()].copy_from_slice(bytes);
    few
}

#[inline(always)]
fn give(into: &mut [u8], result: &Few) {
    match into.len() {
        // A length that is known is one store.
        8 => into.copy_from_slice(&bytes_of(result)[..8]),
        length => into.copy_from_slice(&bytes_of(result)[..length]),
    }
}
