//! Which bytes go to which rank at which step, and where to fold.
//!
//! Knows no sockets, no CUDA and no clock; waiting and failing are the mesh's. Invariant: for a
//! given call, number of ranks and algorithm the operands are grouped the same way in every run
//! and on every rank, so the result has the same bits everywhere.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
pub mod brief;
mod broadcast;
mod buckets;
mod exchange;
mod gather;
mod pairs;
mod passes;
mod reduce;
mod reduce_scatter;
mod rounds;
mod scan;
mod scatter;
pub mod segments;
pub mod select;
mod tree;

use std::ops::Range;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::error::{Error, Result};
use crate::op::{Collective, Op, OpMemory, Reducer};
use crate::rank::{Place, Rank};
use crate::transport::{Hosts, Mesh};

use buckets::Piece;
pub use exchange::Exchange;
use select::{Algorithm, Selection};

/// Performs one operation on this rank, together with the other ranks that perform it.
pub async fn perform<M: Mesh>(
    exchange: &Exchange<'_, M>,
    selection: &Selection,
    op: Op<'_>,
) -> Result<()> {
    let (call, place) = (op.call(), exchange.place());
    if call.is_empty() {
        return Ok(());
    }
    let algorithm = selection.choose(&call, place.size, exchange.ground()).algorithm;
    let (reducer, memory) = op.into_parts();
    let OpMemory { sent, received, buffers, buckets } = memory;
    match (call.collective(), reducer, call.root()) {
        (Collective::AllReduce, Some(reducer), None) => {
            all_reduce_anywhere(exchange, selection, algorithm, &reducer, buffers).await
        }
        (Collective::Reduce, Some(reducer), Some(root)) => match algorithm {
            Algorithm::ReduceFlat => reduce::flat::flat(exchange, &reducer, root, buffers).await,
            Algorithm::ReduceHierarchical => {
                reduce::hierarchical::hierarchical(
                    exchange, selection, &call, &reducer, root, buffers,
                )
                .await
            }
            _ => reduce_over_links(exchange, algorithm, &reducer, root, buffers).await,
        },
        (Collective::Broadcast, None, Some(root)) if algorithm == Algorithm::BroadcastFlat => {
            broadcast::flat::flat(exchange, root, call.bytes(), buffers).await
        }
        (Collective::Broadcast, None, Some(root)) => {
            let data = match buffers {
                Buffers::Apart { output, .. } if place.rank != root => output,
                at_root => passes::into_output(at_root).await,
            };
            match algorithm {
                Algorithm::BroadcastHierarchical => {
                    broadcast::hierarchical::hierarchical(exchange, selection, &call, root, data)
                        .await
                }
                _ => broadcast_over_links(exchange, algorithm, root, data).await,
            }
        }
        (Collective::AllGather, None, None) if algorithm == Algorithm::AllGatherFlat => {
            allgather::flat::flat(exchange, &received, buffers).await
        }
        (Collective::AllGather, None, None) => {
            let output = with_own_block(buffers, received.get(place.rank.0)).await;
            all_gather(exchange, algorithm, &received, output).await
        }
        (Collective::ReduceScatter, Some(reducer), None) => {
            reduce_scatter(exchange, algorithm, &reducer, &sent, buffers).await
        }
        (Collective::AllToAll, None, None) => match algorithm {
            Algorithm::AllToAllFlat => alltoall::flat::flat(exchange, &sent, buffers).await,
            Algorithm::AllToAllDirect => alltoall::direct::direct(exchange, &sent, buffers).await,
            Algorithm::AllToAllBruck => {
                alltoall::bruck::bruck(exchange, passes::into_output(buffers).await).await
            }
            Algorithm::AllToAllPairwise => {
                alltoall::pairwise::pairwise(exchange, &sent, &received, buffers).await
            }
            other => unreachable!("{other:?} is no all-to-all"),
        },
        (Collective::Gather, None, Some(root)) => {
            gather(exchange, algorithm, root, &received, buffers).await
        }
        (Collective::Scatter, None, Some(root)) => {
            scatter(exchange, algorithm, root, &sent, buffers).await
        }
        (Collective::Scan, Some(reducer), None) => match algorithm {
            Algorithm::ScanFlat => {
                scan::flat::flat(exchange, &reducer, Scanned::UpTo, buffers).await
            }
            Algorithm::ScanChain => {
                scan::chain::chain(exchange, &reducer, Scanned::UpTo, buffers).await
            }
            _ => {
                let data = passes::into_output(buffers).await;
                passes::prepare(&reducer, data, folding(place)).await;
                scan(exchange, algorithm, &reducer, data).await
            }
        },
        (Collective::ExScan, Some(reducer), None) => {
            exclusive_scan(exchange, algorithm, &reducer, buffers).await
        }
        (Collective::AllReduceBucketed, Some(reducer), None) => {
            all_reduce_bucketed(exchange, selection, &reducer, buckets).await
        }
        (Collective::Barrier, None, None) => match algorithm {
            Algorithm::BarrierFlat => barrier::flat::flat(exchange).await,
            Algorithm::BarrierHierarchical => barrier::hierarchical::hierarchical(exchange).await,
            Algorithm::BarrierDissemination => {
                barrier::dissemination::dissemination(exchange).await
            }
            other => unreachable!("{other:?} is no barrier"),
        },
        (Collective::Split, None, None) => {
            all_gather(exchange, algorithm, &received, passes::into_output(buffers).await).await
        }
        (collective, ..) => unreachable!("{collective:?} without its arguments"),
    }
}

/// The ranks that speak for their hosts: the first of each, but `root` for its own.
fn leaders(hosts: &Hosts, root: Option<Rank>) -> Vec<Rank> {
    let leader = |group: &Vec<Rank>| root.filter(|root| group.contains(root)).unwrap_or(group[0]);
    hosts.groups().iter().map(leader).collect()
}

/// `data` is the root's, and becomes everybody's.
async fn broadcast_over_links<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    root: Rank,
    data: &mut [u8],
) -> Result<()> {
    match algorithm {
        Algorithm::BroadcastPipeline => broadcast::pipeline::pipeline(exchange, root, data).await,
        Algorithm::BroadcastBinomial => broadcast::binomial::binomial(exchange, root, data).await,
        other => unreachable!("{other:?} is no broadcast over links"),
    }
}

/// `output` has the block of each rank; this rank's own is in its place.
async fn all_gather<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    blocks: &Blocks,
    output: &mut [u8],
) -> Result<()> {
    match algorithm {
        Algorithm::AllGatherFlat => {
            allgather::flat::flat(exchange, blocks, Buffers::Shared { both: output }).await
        }
        Algorithm::AllGatherBruck => allgather::bruck::bruck(exchange, output).await,
        Algorithm::AllGatherRing => allgather::ring::ring(exchange, blocks, output).await,
        other => unreachable!("{other:?} is no all-gather"),
    }
}

async fn all_reduce_anywhere<M: Mesh>(
    exchange: &Exchange<'_, M>,
    selection: &Selection,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    match algorithm {
        Algorithm::AllReduceHierarchical => {
            allreduce::hierarchical::hierarchical(exchange, selection, reducer, buffers).await
        }
        _ => all_reduce(exchange, algorithm, reducer, buffers).await,
    }
}

async fn all_reduce<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    match algorithm {
        Algorithm::AllReduceFlat => return allreduce::flat::flat(exchange, reducer, buffers).await,
        Algorithm::AllReduceSlices => {
            return allreduce::slices::slices(exchange, reducer, buffers).await;
        }
        _ => {}
    }
    let size = exchange.place().size;
    let data = passes::into_output(buffers).await;
    passes::prepare(reducer, data, size).await;
    match algorithm {
        Algorithm::AllReduceOneShot => {
            allreduce::one_shot::one_shot(exchange, reducer, data).await?;
        }
        Algorithm::AllReduceRecursiveDoubling => {
            allreduce::recursive_doubling::recursive_doubling(exchange, reducer, data).await?;
        }
        Algorithm::AllReduceRabenseifner => {
            allreduce::rabenseifner::rabenseifner(exchange, reducer, data).await?;
        }
        Algorithm::AllReduceRsAg => allreduce::rs_ag::rs_ag(exchange, reducer, data).await?,
        Algorithm::AllReduceRing => allreduce::ring::ring(exchange, reducer, data).await?,
        other => unreachable!("{other:?} is no all-reduce"),
    }
    passes::finish(reducer, data, size).await;
    Ok(())
}

async fn all_reduce_bucketed<M: Mesh>(
    exchange: &Exchange<'_, M>,
    selection: &Selection,
    reducer: &Reducer,
    mut buckets: Vec<&mut [u8]>,
) -> Result<()> {
    let place = exchange.place();
    let algorithm =
        |bytes| selection.all_reduce(bytes, reducer, place.size, exchange.ground()).algorithm;
    let (mut list, mut packed) = (&mut buckets[..], Vec::new());
    while let Some(piece) = buckets::next(&mut list) {
        match piece {
            Piece::Long(data) => {
                let algorithm = algorithm(data.len());
                let both = Buffers::Shared { both: data };
                all_reduce_anywhere(exchange, selection, algorithm, reducer, both).await?;
            }
            Piece::Short(buffers) => {
                buckets::pack(buffers, &mut packed)?;
                let (algorithm, both) = (algorithm(packed.len()), &mut packed[..]);
                let both = Buffers::Shared { both };
                all_reduce_anywhere(exchange, selection, algorithm, reducer, both).await?;
                buckets::unpack(&packed, buffers);
            }
        }
    }
    Ok(())
}

async fn reduce_over_links<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let size = exchange.place().size;
    if exchange.place().rank == root {
        let data = passes::into_output(buffers).await;
        passes::prepare(reducer, data, size).await;
        match algorithm {
            Algorithm::ReducePipeline => {
                // In rank order the root's share goes into the chain before the result comes back,
                // unless the root is its last rank.
                let in_order = !reducer.reduction().is_commutative() && root.0 + 1 < size;
                let own = if in_order { passes::copied(data).await? } else { Vec::new() };
                let load = |part: Range<usize>, into: &mut [u8]| into.copy_from_slice(&own[part]);
                let bytes = data.len();
                reduce::pipeline::pipeline(exchange, reducer, root, bytes, load, data).await?;
            }
            Algorithm::ReduceBinomial => {
                reduce::binomial::binomial(exchange, reducer, root, data).await?;
            }
            other => unreachable!("{other:?} is no reduce"),
        }
        passes::finish(reducer, data, size).await;
        return Ok(());
    }
    let input = buffers.input();
    match algorithm {
        Algorithm::ReducePipeline => {
            let load = loader(reducer, input, size);
            let bytes = input.len();
            reduce::pipeline::pipeline(exchange, reducer, root, bytes, load, &mut []).await
        }
        Algorithm::ReduceBinomial => {
            let mut share = passes::copied(input).await?;
            passes::prepare(reducer, &mut share, size).await;
            reduce::binomial::binomial(exchange, reducer, root, &mut share).await
        }
        other => unreachable!("{other:?} is no reduce"),
    }
}

async fn reduce_scatter<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    blocks: &Blocks,
    buffers: Buffers<'_>,
) -> Result<()> {
    if algorithm == Algorithm::ReduceScatterFlat {
        return reduce_scatter::flat::flat(exchange, reducer, blocks, buffers).await;
    }
    match buffers {
        Buffers::Apart { input, output } => {
            reduce_scatter_into(exchange, algorithm, reducer, blocks, input, output).await
        }
        Buffers::Shared { both } => {
            let own = blocks.get(exchange.place().rank.0);
            let mut result = passes::zeroed(own.len()).await?;
            reduce_scatter_into(exchange, algorithm, reducer, blocks, both, &mut result).await?;
            passes::copy(&result, &mut both[own]).await;
            Ok(())
        }
    }
}

async fn reduce_scatter_into<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    blocks: &Blocks,
    input: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let size = exchange.place().size;
    let prepared = async || {
        let mut share = passes::copied(input).await?;
        passes::prepare(reducer, &mut share, size).await;
        Ok(share)
    };
    match algorithm {
        Algorithm::ReduceScatterRecursiveHalving => {
            // Small blocks, and there may be much between them.
            let (mut data, blocks) = side_by_side(input, blocks)?;
            passes::prepare(reducer, &mut data, size).await;
            reduce_scatter::recursive_halving::recursive_halving(
                exchange, reducer, &blocks, &mut data, output,
            )
            .await?;
        }
        Algorithm::ReduceScatterPairwise => {
            let share;
            let input = match reducer {
                Reducer::User { .. } => input,
                Reducer::Known(_) | Reducer::PreMulSum { .. } => {
                    share = prepared().await?;
                    &share
                }
            };
            reduce_scatter::pairwise::pairwise(exchange, reducer, blocks, input, output).await?;
        }
        Algorithm::ReduceScatterRing => {
            let load = loader(reducer, input, size);
            reduce_scatter::ring::ring(exchange, reducer, blocks, load, output).await?;
        }
        other => unreachable!("{other:?} is no reduce-scatter"),
    }
    passes::finish(reducer, output, size).await;
    Ok(())
}

/// A copy of all blocks, one behind the other.
fn side_by_side(input: &[u8], blocks: &Blocks) -> Result<(Vec<u8>, Blocks)> {
    let (mut data, mut places) = (Vec::new(), Vec::new());
    let bytes = blocks.iter().map(|block| block.len()).sum();
    data.try_reserve_exact(bytes).map_err(|_| Error::out_of_memory(bytes))?;
    for block in blocks.iter() {
        places.push(data.len()..data.len() + block.len());
        data.extend_from_slice(&input[block]);
    }
    Ok((data, Blocks::at(places)))
}

/// Writes a part of this rank's share, ready to be folded.
fn loader(reducer: &Reducer, input: &[u8], size: usize) -> impl Fn(Range<usize>, &mut [u8]) {
    move |part, into| {
        into.copy_from_slice(&input[part]);
        reducer.prepare(into, size);
    }
}

/// The output of a call that collects blocks, with this rank's own in its place.
async fn with_own_block(buffers: Buffers<'_>, own: Range<usize>) -> &mut [u8] {
    match buffers {
        Buffers::Apart { input, output } => {
            passes::copy(input, &mut output[own]).await;
            output
        }
        Buffers::Shared { both } => both,
    }
}

async fn gather<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    root: Rank,
    blocks: &Blocks,
    buffers: Buffers<'_>,
) -> Result<()> {
    if exchange.place().rank != root {
        let own = buffers.input();
        return match algorithm {
            Algorithm::GatherBinomial => {
                gather::binomial::binomial(exchange, root, own, &mut []).await
            }
            Algorithm::GatherLinear => {
                gather::linear::linear(exchange, root, blocks, own, &mut []).await
            }
            Algorithm::GatherFlat => gather::flat::flat(exchange, root, blocks, own, &mut []).await,
            other => unreachable!("{other:?} is no gather"),
        };
    }
    let own = blocks.get(root.0);
    let output = with_own_block(buffers, own.clone()).await;
    match algorithm {
        Algorithm::GatherBinomial => {
            let own = passes::copied(&output[own]).await?;
            gather::binomial::binomial(exchange, root, &own, output).await
        }
        Algorithm::GatherLinear => {
            gather::linear::linear(exchange, root, blocks, &[], output).await
        }
        Algorithm::GatherFlat => gather::flat::flat(exchange, root, blocks, &[], output).await,
        other => unreachable!("{other:?} is no gather"),
    }
}

async fn scatter<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    root: Rank,
    blocks: &Blocks,
    buffers: Buffers<'_>,
) -> Result<()> {
    let (input, own): (&[u8], &mut [u8]) = match buffers {
        Buffers::Apart { input, output } => {
            if exchange.place().rank == root {
                passes::copy(&input[blocks.get(root.0)], output).await;
            }
            (input, output)
        }
        // In place at the root, which sends all blocks but its own and receives none.
        Buffers::Shared { both } => (both, &mut []),
    };
    match algorithm {
        Algorithm::ScatterBinomial => scatter::binomial::binomial(exchange, root, input, own).await,
        Algorithm::ScatterLinear => {
            scatter::linear::linear(exchange, root, blocks, input, own).await
        }
        Algorithm::ScatterFlat => scatter::flat::flat(exchange, root, blocks, input, own).await,
        other => unreachable!("{other:?} is no scatter"),
    }
}

/// Whose shares a scan folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// Of all ranks up to this one.
    UpTo,
    /// Of all ranks before this one: an exclusive scan, of which rank 0 has nothing.
    Before,
}

/// As how many ranks' share a rank prepares its own in a scan: rank 0 folds nothing, as if alone.
fn folding(place: Place) -> usize {
    if place.rank == Rank(0) { 1 } else { place.size }
}

async fn scan<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    data: &mut [u8],
) -> Result<()> {
    match algorithm {
        Algorithm::ScanPipeline => scan::pipeline::pipeline(exchange, reducer, data).await,
        Algorithm::ScanHillisSteele => {
            scan::hillis_steele::hillis_steele(exchange, reducer, data, None).await
        }
        other => unreachable!("{other:?} is no scan"),
    }
}

async fn exclusive_scan<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    if matches!(algorithm, Algorithm::ScanFlat | Algorithm::ScanChain) {
        return exclusive_scan_on_host(exchange, algorithm, reducer, buffers).await;
    }
    if place.rank == Rank(0) {
        // Sends as in a scan. Its result is the identity, if the operator has one.
        let mut own = passes::copied(buffers.input()).await?;
        passes::prepare(reducer, &mut own, folding(place)).await;
        scan(exchange, algorithm, reducer, &mut own).await?;
        let output = match buffers {
            Buffers::Apart { output, .. } => output,
            Buffers::Shared { both } => both,
        };
        passes::identity(reducer, output).await;
        return Ok(());
    }
    let data = passes::into_output(buffers).await;
    passes::prepare(reducer, data, place.size).await;
    match algorithm {
        Algorithm::ScanPipeline => scan::pipeline::exclusive(exchange, reducer, data).await,
        Algorithm::ScanHillisSteele => {
            let mut up_to = passes::copied(data).await?;
            let before = Some(data);
            scan::hillis_steele::hillis_steele(exchange, reducer, &mut up_to, before).await
        }
        other => unreachable!("{other:?} is no scan"),
    }
}

async fn exclusive_scan_on_host<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let both = match &mut buffers {
        Buffers::Apart { input, output } => Buffers::Apart { input, output },
        Buffers::Shared { both } => Buffers::Shared { both },
    };
    match algorithm {
        Algorithm::ScanFlat => scan::flat::flat(exchange, reducer, Scanned::Before, both).await?,
        _ => scan::chain::chain(exchange, reducer, Scanned::Before, both).await?,
    }
    if exchange.place().rank == Rank(0) {
        passes::identity(reducer, buffers.output_mut()).await;
    }
    Ok(())
}
