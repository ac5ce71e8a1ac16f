//! The fast path of calls whose bytes travel in slots: the flat algorithm of their collective, in
//! one epoch that does not wait beyond the spin limit.
//!
//! Leaves calls that travel inline, and the release of the epoch, to `super`. Invariant: as in
//! `super`, no byte is overwritten that is still needed and not published.

use crate::buffer::Buffers;
use crate::collective::allgather::flat::FlatAllGather;
use crate::collective::allreduce::flat::FlatAllReduce;
use crate::collective::alltoall::flat::FlatAllToAll;
use crate::collective::alltoall::flat_v::FlatAllToAllV;
use crate::collective::broadcast::flat::FlatBroadcast;
use crate::collective::epochs::{Flat, FlatCopy, FlatReduction, Shares, sources};
use crate::collective::paired::{Paired, exchange_at_once};
use crate::collective::reduce::flat::FlatReduce;
use crate::collective::reduce_scatter::flat::FlatReduceScatter;
use crate::collective::scan::flat::FlatScan;
use crate::collective::scan::shares::{FLAT_SCAN, Scanned, folding};
use crate::collective::scatter::flat_v::FlatScatterV;
use crate::collective::share::{load, load_twice, own_and_output};
use crate::collective::varying::FlatWithCounts;
use crate::op::{Collective, Op, OpMemory, Reducer};
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;
use crate::transport::FastEpoch;

/// Executes the call, as `super::execute` does. Not inlined: its work takes longer than a function
/// call.
#[inline(never)]
pub fn execute(op: &mut Op<'_>, me: RankOf, epoch: &FastEpoch<'_>) -> Option<()> {
    let call = op.call();
    let (reducer, OpMemory { sent, received, buffers, .. }) = op.parts_mut();
    let buffers = buffers.reborrow();
    match (call.collective(), reducer, call.root()) {
        (Collective::AllReduce, Some(reducer), None) => {
            reduce_flat(FlatAllReduce::new(me, reducer, buffers), me, epoch)
        }
        (Collective::Reduce, Some(reducer), Some(root)) => {
            reduce_flat(FlatReduce::new(me, root, reducer, buffers), me, epoch)
        }
        (Collective::Scan, Some(reducer), None) if me.size <= FLAT_SCAN => {
            reduce_flat(FlatScan::new(me, reducer, Scanned::UpTo, buffers), me, epoch)
        }
        (Collective::Scan, Some(reducer), None) => chain(reducer, buffers, me, epoch),
        (Collective::ReduceScatter, Some(reducer), None) => {
            reduce_flat(FlatReduceScatter::new(me, reducer, sent, buffers), me, epoch)
        }
        (Collective::Broadcast, None, Some(root)) => {
            copy_flat(FlatBroadcast::new(me, root, epoch.bytes(), buffers), me, epoch)
        }
        (Collective::AllGather, None, None) => {
            copy_flat(FlatAllGather::new(me, received, buffers), me, epoch)
        }
        (Collective::AllToAll, None, None) => {
            copy_flat(FlatAllToAll::new(me, sent, buffers), me, epoch)
        }
        _ => unreachable!("no other call is eligible with more bytes than travel inline"),
    }
}

/// Executes a call of which only some ranks know the counts, as `super::execute` does.
#[inline(never)]
pub fn execute_with_counts(op: &mut Op<'_>, me: RankOf, epoch: &FastEpoch<'_>) -> Option<()> {
    let call = op.call();
    let OpMemory { sent, received, buffers, .. } = &mut op.memory;
    let mut buffers = buffers.reborrow();
    let is_root = call.root() == Some(me.rank);
    // The block of a rank for itself, unless it is in place.
    if let Buffers::Apart { input, output } = &mut buffers {
        let own = me.rank.0;
        match call.collective() {
            Collective::AllToAll => {
                output[received.get(own)].copy_from_slice(&input[sent.get(own)])
            }
            Collective::Gather if is_root => output[received.get(own)].copy_from_slice(input),
            Collective::Scatter if is_root => output.copy_from_slice(&input[sent.get(own)]),
            _ => {}
        }
    }
    if let Some(paired) = Paired::of(&call, sent, received, me.size) {
        return exchange_at_once(paired, buffers, me, epoch);
    }
    match call.root() {
        None => copy_flat_v(FlatAllToAllV::new(me, sent, received, buffers), epoch),
        Some(root) => {
            let (input, own): (&[u8], &mut [u8]) = match buffers {
                Buffers::Apart { input, output } => (input, output),
                Buffers::Shared { both } => (both, &mut []),
            };
            copy_flat_v(FlatScatterV::new(me, root, sent, input, own), epoch)
        }
    }
}

fn copy_flat<'a>(mut flat: impl FlatCopy<'a>, me: RankOf, epoch: &FastEpoch<'_>) -> Option<()> {
    publish(&mut flat, me, epoch);
    for index in 0.. {
        let Some(from) = flat.source(index) else { break };
        flat.copy(0, from, epoch.view_slot(from)?);
    }
    Some(())
}

/// As `copy_flat`, of a call that has its data behind the counts. `None` also if it has not, or if
/// the counts are wrong: the general path reads them again.
fn copy_flat_v<'a>(mut flat: impl FlatWithCounts<'a>, epoch: &FastEpoch<'_>) -> Option<()> {
    if flat.publishes_counts() {
        epoch.publish_slot(|slot| flat.write_counts(slot));
    }
    for index in 0.. {
        let Some(from) = flat.counts_from(index) else { break };
        flat.read_counts(from, epoch.view_slot(from)?).ok()?;
    }
    if flat.parts() > 0 {
        return None;
    }
    for index in 0.. {
        let Some(from) = flat.counts_from(index) else { break };
        flat.copy_inline(from, epoch.view_slot(from)?);
    }
    Some(())
}

fn reduce_flat<'a>(
    mut flat: impl FlatReduction<'a>,
    me: RankOf,
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    publish(&mut flat, me, epoch);
    let shares: Shares<'_> =
        sources(&flat).map(|from| epoch.view_slot(from)).collect::<Option<_>>()?;
    if !shares.is_empty() {
        let own = flat.publishes(me.rank).then(|| epoch.own());
        flat.reduce(0, &shares, own);
    }
    Some(())
}

fn publish<'a>(flat: &mut impl Flat<'a>, me: RankOf, epoch: &FastEpoch<'_>) {
    if flat.publishes(me.rank) {
        epoch.publish_slot(|slot| flat.fill(0, slot, Stores::Cached));
    }
    flat.keep_own(0);
}

/// Executes a scan by the algorithm `chain`, for more ranks than `flat`.
fn chain(
    reducer: &Reducer,
    mut buffers: Buffers<'_>,
    me: RankOf,
    epoch: &FastEpoch<'_>,
) -> Option<()> {
    let size = folding(me);
    if me.rank == Rank(0) {
        match buffers {
            Buffers::Apart { input, output } => epoch.publish_slot(|slot| {
                let published = (slot, me.size, Stores::Cached);
                load_twice(reducer, input, published, (output, size, Stores::Cached));
            }),
            Buffers::Shared { both } => {
                epoch.publish_slot(|slot| load(reducer, both, me.size, slot, Stores::Cached));
                reducer.prepare(both, size);
            }
        }
        return Some(());
    }
    let (mut scratch, whole) = (Vec::new(), 0..epoch.bytes());
    let before = epoch.view_slot(me.before(1))?;
    let (own, into) = own_and_output(reducer, &mut buffers, whole, size, &mut scratch);
    reducer.fold_into(into, before, own, Stores::Cached);
    if me.rank.0 + 1 < me.size {
        epoch.publish_slot(|slot| slot.copy_from_slice(into));
    }
    Some(())
}
