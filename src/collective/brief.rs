//! Calls of few bytes between ranks of one host: the only round of their flat algorithms, without a future.
//!
//! A rank whose peers are about to come has ended such a call before a future would have been made ready.
//! Invariants: what is laid out, looked at and folded, and in which order, is what the flat algorithm does,
//! so that ranks that make a call in this way and in that one meet; a call that is not ended here can be gone
//! on with there, because nothing is written over that is not laid out.

use std::ops::Range;

use bytemuck::{bytes_of, bytes_of_mut};

use super::folding;
use super::rounds::Columns;
use super::select::FLAT_SCAN;
use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::op::{Counts, Op, Reducer};
use crate::rank::{Place, Rank};
use crate::reduce::Side;
use crate::transport::shm::{Brief, FEW, Few};

/// How many bytes each rank lays out in a call that can be made here. `None` if it cannot.
#[inline]
pub fn bytes(op: &Op<'_>, size: usize) -> Option<usize> {
    let bytes = match op {
        Op::Barrier => return Some(0),
        // Nobody knows how long a function of the program takes.
        Op::AllReduce { reducer: Reducer::User { .. }, .. }
        | Op::Reduce { reducer: Reducer::User { .. }, .. }
        | Op::Scan { reducer: Reducer::User { .. }, .. }
        | Op::ReduceScatter { reducer: Reducer::User { .. }, .. } => return None,
        Op::AllReduce { count, reducer, .. }
        | Op::Reduce { count, reducer, .. }
        | Op::Scan { count, reducer, .. } => count * reducer.dtype().size(),
        Op::Broadcast { count, dtype, .. } => count * dtype.size(),
        Op::AllGather { counts: Counts::Each(count), dtype, .. } => count * dtype.size(),
        Op::AllToAll { counts: Counts::Each(_), sent: blocks, .. }
        | Op::ReduceScatter { counts: Counts::Each(_), blocks, .. } => {
            let block = blocks.longest();
            Columns::new(size, block).used(Rank(0), |_| block)
        }
        _ => return None,
    };
    (1..=FEW).contains(&bytes).then_some(bytes)
}

/// Makes the call. `None` if somebody has not come yet; then nothing that is read later is written over.
#[inline]
pub fn make(op: &mut Op<'_>, place: Place, brief: &Brief<'_>) -> Option<()> {
    let bytes = brief.bytes();
    match op {
        Op::AllReduce { reducer, buffers, .. } => {
            let own = ready(reducer, buffers.input(), place.size);
            brief.lay(&own);
            let result = fold_all(reducer, place, own, bytes, brief)?;
            give(buffers.output_mut(), &result);
        }
        Op::Reduce { reducer, root, buffers, .. } => {
            let own = ready(reducer, buffers.input(), place.size);
            if place.rank == *root {
                let result = fold_all(reducer, place, own, bytes, brief)?;
                give(buffers.output_mut(), &result);
            } else {
                brief.lay_and_pass_next(&own);
            }
        }
        Op::Scan { reducer, buffers, .. } => scan(reducer, buffers, place, brief)?,
        Op::Broadcast { root, buffers, .. } => {
            if place.rank == *root {
                let data = few(buffers.input());
                brief.lay_and_pass_next(&data);
                if buffers.are_apart() {
                    give(buffers.output_mut(), &data);
                }
            } else {
                give(buffers.output_mut(), &brief.look(*root)?);
            }
        }
        Op::AllGather { blocks, buffers, .. } => {
            let own = match buffers {
                Buffers::Apart { input, output } => {
                    output[blocks.get(place.rank.0)].copy_from_slice(input);
                    few(input)
                }
                Buffers::Shared { both } => few(&both[blocks.get(place.rank.0)]),
            };
            brief.lay(&own);
            for peer in others(place) {
                give(&mut buffers.output_mut()[blocks.get(peer.0)], &brief.look(peer)?);
            }
        }
        Op::AllToAll { sent, buffers, .. } => {
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
        Op::ReduceScatter { reducer, blocks, buffers, .. } => {
            reduce_scatter(reducer, blocks, buffers, place, brief)?;
        }
        Op::Barrier => {
            brief.lay(&[0; FEW / 8]);
            for peer in others(place) {
                brief.look(peer)?;
            }
        }
        _ => unreachable!("no other call is brief"),
    }
    brief.pass();
    Some(())
}

/// Flat, or as a chain.
#[inline]
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
#[inline]
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
#[inline]
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

#[inline]
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
#[inline]
fn ready(reducer: &Reducer, share: &[u8], size: usize) -> Few {
    let mut own = few(share);
    if reducer.prepares(size) {
        reducer.prepare(&mut bytes_of_mut(&mut own)[..share.len()], size);
    }
    own
}

#[inline]
fn few(bytes: &[u8]) -> Few {
    let mut few = [0; FEW / 8];
    match *bytes {
        // What is most common needs no loop.
        [a, b, c, d] => few[0] = u32::from_ne_bytes([a, b, c, d]).to_le().into(),
        [a, b, c, d, e, f, g, h] => few[0] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes_of_mut(&mut few)[..bytes.len()].copy_from_slice(bytes),
    }
    few
}

#[inline]
fn give(into: &mut [u8], result: &Few) {
    match into.len() {
        8 => into.copy_from_slice(&bytes_of(result)[..8]),
        length => into.copy_from_slice(&bytes_of(result)[..length]),
    }
}

fn others(place: Place) -> impl Iterator<Item = Rank> {
    (1..place.size).map(move |distance| place.after(distance))
}
