//! The fast path of calls whose bytes travel in slots: each arm is the flat algorithm of its
//! collective, in one epoch.
//!
//! Leaves calls that travel inline to `few`, and the release of the epoch to `super`. Invariant: as
//! in `super`, no byte is overwritten that is still needed and not published.

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::rounds::{
    Columns, Shares, fold_all, load, load_twice, others, own_and_block, own_and_output,
};
use crate::collective::scan::shares::{FLAT_SCAN, folding};
use crate::op::{Collective, Op, OpMemory, Reducer};
use crate::rank::{Place, Rank};
use crate::reduce::Stores;
use crate::transport::Brief;

/// Executes the call, as `super::make` says. Not inlined: its work takes longer than a call to it.
#[inline(never)]
pub fn make(op: &mut Op<'_>, place: Place, brief: &Brief<'_>) -> Option<()> {
    let call = op.call();
    let (reducer, OpMemory { sent, received, buffers, .. }) = op.parts_mut();
    match (call.collective(), reducer, call.root()) {
        (Collective::AllReduce, Some(reducer), None) => {
            lay_share(reducer, buffers.input(), place.size, brief);
            let mut shares = see(others(place), brief)?;
            shares.insert(place.rank.0, brief.own());
            fold_all(reducer, &shares, buffers.output_mut(), Stores::Cached);
            reducer.finish(buffers.output_mut(), place.size);
        }
        (Collective::Reduce, Some(reducer), Some(root)) => {
            if place.rank == root {
                let (mut scratch, whole) = (Vec::new(), 0..brief.bytes());
                let mut shares = see(others(place), brief)?;
                let (own, into) = own_and_output(reducer, buffers, whole, place.size, &mut scratch);
                shares.insert(root.0, own);
                fold_all(reducer, &shares, into, Stores::Cached);
                reducer.finish(into, place.size);
            } else {
                lay_share(reducer, buffers.input(), place.size, brief);
            }
        }
        (Collective::Scan, Some(reducer), None) => scan(reducer, buffers, place, brief)?,
        (Collective::Broadcast, None, Some(root)) => {
            if place.rank == root {
                brief.lay_with(|slot| slot.copy_from_slice(buffers.input()));
                if let Buffers::Apart { input, output } = buffers {
                    output.copy_from_slice(input);
                }
            } else {
                buffers.output_mut().copy_from_slice(brief.see(root)?);
            }
        }
        (Collective::AllGather, None, None) => {
            let own = received.get(place.rank.0);
            match buffers {
                Buffers::Apart { input, output } => {
                    brief.lay_with(|slot| slot.copy_from_slice(input));
                    output[own].copy_from_slice(input);
                }
                Buffers::Shared { both } => {
                    brief.lay_with(|slot| slot.copy_from_slice(&both[own]));
                }
            }
            for peer in others(place) {
                buffers.output_mut()[received.get(peer.0)].copy_from_slice(brief.see(peer)?);
            }
        }
        (Collective::AllToAll, None, None) => all_to_all(sent, buffers, place, brief)?,
        (Collective::ReduceScatter, Some(reducer), None) => {
            reduce_scatter(reducer, sent, buffers, place, brief)?;
        }
        _ => unreachable!("no other call is brief and has so many bytes"),
    }
    Some(())
}

/// Flat, or as a chain.
fn scan(
    reducer: &Reducer,
    buffers: &mut Buffers<'_>,
    place: Place,
    brief: &Brief<'_>,
) -> Option<()> {
    let (is_last, is_flat) = (place.rank.0 + 1 == place.size, place.size <= FLAT_SCAN);
    let (whole, size) = (0..brief.bytes(), folding(place));
    if place.rank == Rank(0) {
        match buffers {
            Buffers::Apart { input, output } => brief.lay_with(|slot| {
                let laid = (slot, place.size, Stores::Cached);
                load_twice(reducer, input, laid, (output, size, Stores::Cached));
            }),
            Buffers::Shared { both } => {
                lay_share(reducer, both, place.size, brief);
                reducer.prepare(both, size);
            }
        }
        return Some(());
    }
    if is_flat && !is_last {
        lay_share(reducer, buffers.input(), size, brief);
    }
    let before = if is_flat { 0 } else { place.rank.0 - 1 };
    let mut scratch = Vec::new();
    let mut shares = see((before..place.rank.0).map(Rank), brief)?;
    let (own, into) = own_and_output(reducer, buffers, whole, size, &mut scratch);
    shares.push(own);
    fold_all(reducer, &shares, into, Stores::Cached);
    if !is_flat && !is_last {
        brief.lay_with(|slot| slot.copy_from_slice(into));
    }
    Some(())
}

fn all_to_all(
    blocks: &Blocks,
    buffers: &mut Buffers<'_>,
    place: Place,
    brief: &Brief<'_>,
) -> Option<()> {
    let columns = Columns::new(place.size, blocks.longest());
    brief.lay_with(|slot| {
        for peer in others(place) {
            let block = &buffers.input()[blocks.get(peer.0)];
            slot[columns.column(place.rank, peer, block.len())].copy_from_slice(block);
        }
    });
    if let Buffers::Apart { input, output } = buffers {
        let own = blocks.get(place.rank.0);
        output[own.clone()].copy_from_slice(&input[own]);
    }
    for peer in others(place) {
        let (block, theirs) = (blocks.get(peer.0), brief.see(peer)?);
        let column = columns.column(peer, place.rank, block.len());
        buffers.output_mut()[block].copy_from_slice(&theirs[column]);
    }
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
    brief.lay_with(|slot| {
        for peer in others(place) {
            let share = &buffers.input()[blocks.get(peer.0)];
            let column = columns.column(place.rank, peer, share.len());
            load(reducer, share, place.size, &mut slot[column], Stores::Cached);
        }
    });
    let own = blocks.get(place.rank.0);
    let mut scratch = Vec::new();
    let slots = see(others(place), brief)?;
    let mut shares: Shares<'_> = others(place)
        .zip(slots)
        .map(|(rank, slot)| &slot[columns.column(rank, place.rank, own.len())])
        .collect();
    let (share, into) = own_and_block(reducer, buffers, blocks, own, place, &mut scratch);
    shares.insert(place.rank.0, share);
    fold_all(reducer, &shares, into, Stores::Cached);
    reducer.finish(into, place.size);
    Some(())
}

/// Lays out this rank's share, ready to be folded.
fn lay_share(reducer: &Reducer, share: &[u8], size: usize, brief: &Brief<'_>) {
    brief.lay_with(|slot| load(reducer, share, size, slot, Stores::Cached));
}

/// What these ranks have laid out, if all come in a moment.
fn see<'a>(ranks: impl Iterator<Item = Rank>, brief: &'a Brief<'_>) -> Option<Shares<'a>> {
    ranks.map(|rank| brief.see(rank)).collect()
}
