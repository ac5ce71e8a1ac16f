//! The fast path of calls whose bytes travel in slots: each arm is the flat algorithm of its
//! collective, in one epoch.
//!
//! Leaves calls that travel inline, and the release of the epoch, to `super`. Invariant: as in
//! `super`, no byte is overwritten that is still needed and not published.

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::rounds::{
    Columns, Shares, fold_all, load, load_twice, others, own_and_block, own_and_output,
};
use crate::collective::scan::shares::{FLAT_SCAN, folding};
use crate::op::{Collective, Op, OpMemory, Reducer};
use crate::rank::{Place, Rank};
use crate::reduce::Stores;
use crate::transport::FastEpoch;

/// Executes the call, as `super::execute` says. Not inlined: its work takes longer than a call to it.
#[inline(never)]
pub fn execute(op: &mut Op<'_>, place: Place, epoch: &FastEpoch<'_>) -> Option<()> {
    let call = op.call();
    let (reducer, OpMemory { sent, received, buffers, .. }) = op.parts_mut();
    match (call.collective(), reducer, call.root()) {
        (Collective::AllReduce, Some(reducer), None) => {
            publish_share(reducer, buffers.input(), place.size, epoch);
            let mut shares = view_slots(others(place), epoch)?;
            shares.insert(place.rank.0, epoch.own());
            fold_all(reducer, &shares, buffers.output_mut(), Stores::Cached);
            reducer.finish(buffers.output_mut(), place.size);
        }
        (Collective::Reduce, Some(reducer), Some(root)) => {
            if place.rank == root {
                let (mut scratch, whole) = (Vec::new(), 0..epoch.bytes());
                let mut shares = view_slots(others(place), epoch)?;
                let (own, into) = own_and_output(reducer, buffers, whole, place.size, &mut scratch);
                shares.insert(root.0, own);
                fold_all(reducer, &shares, into, Stores::Cached);
                reducer.finish(into, place.size);
            } else {
                publish_share(reducer, buffers.input(), place.size, epoch);
            }
        }
        (Collective::Scan, Some(reducer), None) => scan(reducer, buffers, place, epoch)?,
        (Collective::Broadcast, None, Some(root)) => {
            if place.rank == root {
                epoch.publish_slot(|slot| slot.copy_from_slice(buffers.input()));
                if let Buffers::Apart { input, output } = buffers {
                    output.copy_from_slice(input);
                }
            } else {
                buffers.output_mut().copy_from_slice(epoch.view_slot(root)?);
            }
        }
        (Collective::AllGather, None, None) => {
            let own = received.get(place.rank.0);
            match buffers {
                Buffers::Apart { input, output } => {
                    epoch.publish_slot(|slot| slot.copy_from_slice(input));
                    output[own].copy_from_slice(input);
                }
                Buffers::Shared { both } => {
                    epoch.publish_slot(|slot| slot.copy_from_slice(&both[own]));
                }
            }
            for peer in others(place) {
                buffers.output_mut()[received.get(peer.0)].copy_from_slice(epoch.view_slot(peer)?);
            }
        }
        (Collective::AllToAll, None, None) => all_to_all(sent, buffers, place, epoch)?,
        (Collective::ReduceScatter, Some(reducer), None) => {
            reduce_scatter(reducer, sent, buffers, place, epoch)?;
        }
        _ => unreachable!("no other call is eligible with more bytes than travel inline"),
    }
    Some(())
}

/// Flat, or as a chain.
fn scan(
    reducer: &Reducer,
    buffers: &mut Buffers<'_>,
    place: Place,
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    let (is_last, is_flat) = (place.rank.0 + 1 == place.size, place.size <= FLAT_SCAN);
    let (whole, size) = (0..epoch.bytes(), folding(place));
    if place.rank == Rank(0) {
        match buffers {
            Buffers::Apart { input, output } => epoch.publish_slot(|slot| {
                let published = (slot, place.size, Stores::Cached);
                load_twice(reducer, input, published, (output, size, Stores::Cached));
            }),
            Buffers::Shared { both } => {
                publish_share(reducer, both, place.size, epoch);
                reducer.prepare(both, size);
            }
        }
        return Some(());
    }
    if is_flat && !is_last {
        publish_share(reducer, buffers.input(), size, epoch);
    }
    let before = if is_flat { 0 } else { place.rank.0 - 1 };
    let mut scratch = Vec::new();
    let mut shares = view_slots((before..place.rank.0).map(Rank), epoch)?;
    let (own, into) = own_and_output(reducer, buffers, whole, size, &mut scratch);
    shares.push(own);
    fold_all(reducer, &shares, into, Stores::Cached);
    if !is_flat && !is_last {
        epoch.publish_slot(|slot| slot.copy_from_slice(into));
    }
    Some(())
}

fn all_to_all(
    blocks: &Blocks,
    buffers: &mut Buffers<'_>,
    place: Place,
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    let columns = Columns::new(place.size, blocks.longest());
    epoch.publish_slot(|slot| {
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
        let (block, theirs) = (blocks.get(peer.0), epoch.view_slot(peer)?);
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
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    let columns = Columns::new(place.size, blocks.longest());
    epoch.publish_slot(|slot| {
        for peer in others(place) {
            let share = &buffers.input()[blocks.get(peer.0)];
            let column = columns.column(place.rank, peer, share.len());
            load(reducer, share, place.size, &mut slot[column], Stores::Cached);
        }
    });
    let own = blocks.get(place.rank.0);
    let mut scratch = Vec::new();
    let slots = view_slots(others(place), epoch)?;
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

/// Publishes this rank's share, ready to be folded.
fn publish_share(reducer: &Reducer, share: &[u8], size: usize, epoch: &FastEpoch<'_>) {
    epoch.publish_slot(|slot| load(reducer, share, size, slot, Stores::Cached));
}

/// What these ranks have published, if all arrive within the spin limit.
fn view_slots<'a>(
    ranks: impl Iterator<Item = Rank>,
    epoch: &'a FastEpoch<'_>,
) -> Option<Shares<'a>> {
    ranks.map(|rank| epoch.view_slot(rank)).collect()
}
