//! Which bytes go to which rank at which step, and where to fold.
//!
//! Knows no sockets, no CUDA and no clock; waiting and failing are the mesh's. Invariant: for a
//! given call, number of ranks and algorithm the operands are grouped the same way in every run
//! and on every rank, so the result has the same bits everywhere.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod broadcast;
mod buckets;
mod exchange;
mod gather;
mod pairs;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
pub mod segments;
pub mod select;
mod tree;

use std::ops::Range;

use crate::blocks::Blocks;
use crate::buffer::{self, Buffers};
use crate::error::Result;
use crate::op::{Op, Reducer};
use crate::rank::Rank;
use crate::transport::Mesh;

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
    let algorithm = selection.choose(&call, place.size).algorithm;
    match op {
        Op::AllReduce { reducer, buffers, .. } => {
            all_reduce(exchange, algorithm, &reducer, buffers.into_output()).await
        }
        Op::Reduce { reducer, root, buffers, .. } => {
            reduce(exchange, algorithm, &reducer, root, buffers).await
        }
        Op::Broadcast { root, buffers, .. } => {
            let data = match buffers {
                Buffers::Apart { output, .. } if place.rank != root => output,
                at_root => at_root.into_output(),
            };
            match algorithm {
                Algorithm::BroadcastPipeline => {
                    broadcast::pipeline::pipeline(exchange, root, data).await
                }
                _ => broadcast::binomial::binomial(exchange, root, data).await,
            }
        }
        Op::AllGather { blocks, buffers, .. } => {
            let output = with_own_block(buffers, blocks.get(place.rank.0));
            match algorithm {
                Algorithm::AllGatherBruck => allgather::bruck::bruck(exchange, output).await,
                _ => allgather::ring::ring(exchange, &blocks, output).await,
            }
        }
        Op::ReduceScatter { reducer, blocks, buffers, .. } => {
            reduce_scatter(exchange, algorithm, &reducer, &blocks, buffers).await
        }
        Op::AllToAll { sent, received, buffers, .. } => match algorithm {
            Algorithm::AllToAllBruck => {
                alltoall::bruck::bruck(exchange, buffers.into_output()).await
            }
            _ => alltoall::pairwise::pairwise(exchange, &sent, &received, buffers).await,
        },
        Op::Gather { root, blocks, buffers, .. } => {
            gather(exchange, algorithm, root, &blocks, buffers).await
        }
        Op::Scatter { root, blocks, buffers, .. } => {
            scatter(exchange, algorithm, root, &blocks, buffers).await
        }
        Op::Scan { reducer, buffers, .. } => {
            let data = buffers.into_output();
            reducer.prepare(data, place.size);
            scan(exchange, algorithm, &reducer, data).await
        }
        Op::ExScan { reducer, buffers, .. } => {
            exclusive_scan(exchange, algorithm, &reducer, buffers).await
        }
        Op::AllReduceBucketed { reducer, buckets, .. } => {
            all_reduce_bucketed(exchange, selection, &reducer, buckets).await
        }
        Op::Barrier => barrier::dissemination::dissemination(exchange).await,
    }
}

async fn all_reduce<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    data: &mut [u8],
) -> Result<()> {
    let size = exchange.place().size;
    reducer.prepare(data, size);
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
        _ => allreduce::ring::ring(exchange, reducer, data).await?,
    }
    reducer.finish(data, size);
    Ok(())
}

async fn all_reduce_bucketed<M: Mesh>(
    exchange: &Exchange<'_, M>,
    selection: &Selection,
    reducer: &Reducer,
    mut buckets: Vec<&mut [u8]>,
) -> Result<()> {
    let place = exchange.place();
    let algorithm = |bytes| selection.all_reduce(bytes, reducer, place.size).algorithm;
    let (mut list, mut packed) = (&mut buckets[..], Vec::new());
    while let Some(piece) = buckets::next(&mut list) {
        match piece {
            Piece::Long(data) => {
                all_reduce(exchange, algorithm(data.len()), reducer, data).await?;
            }
            Piece::Short(buffers) => {
                buckets::pack(buffers, &mut packed)?;
                all_reduce(exchange, algorithm(packed.len()), reducer, &mut packed).await?;
                buckets::unpack(&packed, buffers);
            }
        }
    }
    Ok(())
}

async fn reduce<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let size = exchange.place().size;
    if exchange.place().rank == root {
        let data = buffers.into_output();
        reducer.prepare(data, size);
        match algorithm {
            Algorithm::ReducePipeline => {
                // In rank order the root's share goes into the chain before the result comes back.
                let in_order = !reducer.reduction().is_commutative();
                let own = if in_order { buffer::copied(data)? } else { Vec::new() };
                let load = |part: Range<usize>, into: &mut [u8]| into.copy_from_slice(&own[part]);
                let bytes = data.len();
                reduce::pipeline::pipeline(exchange, reducer, root, bytes, load, data).await?;
            }
            _ => reduce::binomial::binomial(exchange, reducer, root, data).await?,
        }
        reducer.finish(data, size);
        return Ok(());
    }
    let input = buffers.input();
    match algorithm {
        Algorithm::ReducePipeline => {
            let load = loader(reducer, input, size);
            let bytes = input.len();
            reduce::pipeline::pipeline(exchange, reducer, root, bytes, load, &mut []).await
        }
        _ => {
            let mut share = buffer::copied(input)?;
            reducer.prepare(&mut share, size);
            reduce::binomial::binomial(exchange, reducer, root, &mut share).await
        }
    }
}

async fn reduce_scatter<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    blocks: &Blocks,
    buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let own = blocks.get(place.rank.0);
    let input = buffers.input();
    let prepared = || {
        let mut share = buffer::copied(input)?;
        reducer.prepare(&mut share, place.size);
        Ok(share)
    };
    let mut result = buffer::zeroed(own.len())?;
    match algorithm {
        Algorithm::ReduceScatterRecursiveHalving => {
            let (mut data, result) = (prepared()?, &mut result);
            reduce_scatter::recursive_halving::recursive_halving(
                exchange, reducer, blocks, &mut data, result,
            )
            .await?;
        }
        Algorithm::ReduceScatterPairwise => {
            let (data, result) = (prepared()?, &mut result);
            reduce_scatter::pairwise::pairwise(exchange, reducer, blocks, &data, result).await?;
        }
        _ => {
            let load = loader(reducer, input, place.size);
            reduce_scatter::ring::ring(exchange, reducer, blocks, load, &mut result).await?;
        }
    }
    reducer.finish(&mut result, place.size);
    match buffers {
        Buffers::Apart { output, .. } => output.copy_from_slice(&result),
        Buffers::Shared { both } => both[own].copy_from_slice(&result),
    }
    Ok(())
}

/// Writes a part of this rank's share, ready to be folded.
fn loader(reducer: &Reducer, input: &[u8], size: usize) -> impl Fn(Range<usize>, &mut [u8]) {
    move |part, into| {
        into.copy_from_slice(&input[part]);
        reducer.prepare(into, size);
    }
}

/// The output of a call that collects blocks, with this rank's own in its place.
fn with_own_block(buffers: Buffers<'_>, own: Range<usize>) -> &mut [u8] {
    match buffers {
        Buffers::Apart { input, output } => {
            output[own].copy_from_slice(input);
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
            _ => gather::linear::linear(exchange, root, blocks, own, &mut []).await,
        };
    }
    let place = blocks.get(root.0);
    let output = with_own_block(buffers, place.clone());
    match algorithm {
        Algorithm::GatherBinomial => {
            let own = buffer::copied(&output[place])?;
            gather::binomial::binomial(exchange, root, &own, output).await
        }
        _ => gather::linear::linear(exchange, root, blocks, &[], output).await,
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
                output.copy_from_slice(&input[blocks.get(root.0)]);
            }
            (input, output)
        }
        // In place at the root, which sends all blocks but its own and receives none.
        Buffers::Shared { both } => (both, &mut []),
    };
    match algorithm {
        Algorithm::ScatterBinomial => scatter::binomial::binomial(exchange, root, input, own).await,
        _ => scatter::linear::linear(exchange, root, blocks, input, own).await,
    }
}

async fn scan<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    data: &mut [u8],
) -> Result<()> {
    match algorithm {
        Algorithm::ScanPipeline => scan::pipeline::pipeline(exchange, reducer, data).await,
        _ => scan::hillis_steele::hillis_steele(exchange, reducer, data, None).await,
    }
}

async fn exclusive_scan<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    if place.rank == Rank(0) {
        // Sends as in a scan. Its result is the identity, if the operator has one.
        let mut own = buffer::copied(buffers.input())?;
        reducer.prepare(&mut own, place.size);
        scan(exchange, algorithm, reducer, &mut own).await?;
        match buffers {
            Buffers::Apart { output, .. } => reducer.identity(output),
            Buffers::Shared { both } => reducer.identity(both),
        }
        return Ok(());
    }
    let data = buffers.into_output();
    reducer.prepare(data, place.size);
    match algorithm {
        Algorithm::ScanPipeline => scan::pipeline::exclusive(exchange, reducer, data).await,
        _ => {
            let mut up_to = buffer::copied(data)?;
            let before = Some(data);
            scan::hillis_steele::hillis_steele(exchange, reducer, &mut up_to, before).await
        }
    }
}
