//! Which bytes go to which rank at which step, and where to fold.
//!
//! Knows no sockets, no CUDA and no clock; waiting and failing are the mesh's. Invariant: for a
//! given call, number of ranks and algorithm the operands are grouped the same way in every run
//! and on every rank, so the result has the same bits everywhere.

mod allgather;
mod allreduce;
mod barrier;
mod broadcast;
mod chunks;
mod exchange;
mod reduce;
mod reduce_scatter;
pub mod select;
mod tree;

use crate::buffer::{self, Buffers};
use crate::error::Result;
use crate::op::{Call, Fold, Op};
use crate::rank::Rank;
use crate::reduce::{finish, prepare};
use crate::transport::Mesh;

pub use exchange::Exchange;
use select::Algorithm;

/// Performs one operation on this rank, together with the other ranks that perform it.
pub async fn perform<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    op: Op<'_>,
) -> Result<()> {
    if op.call.is_empty() {
        return Ok(());
    }
    match (op.call, algorithm) {
        (
            Call::AllReduce { fold, .. },
            Algorithm::AllReduceRecursiveDoubling | Algorithm::AllReduceRing,
        ) => all_reduce(exchange, algorithm, fold, op.buffers).await,
        (Call::Reduce { fold, root, .. }, Algorithm::ReduceBinomial) => {
            reduce(exchange, fold, root, op.buffers).await
        }
        (Call::Broadcast { root, .. }, Algorithm::BroadcastBinomial) => {
            broadcast(exchange, root, op.buffers).await
        }
        (Call::AllGather { .. }, Algorithm::AllGatherRing) => {
            all_gather(exchange, op.buffers).await
        }
        (Call::ReduceScatter { fold, .. }, Algorithm::ReduceScatterRing) => {
            reduce_scatter(exchange, fold, op.buffers).await
        }
        (Call::Barrier, Algorithm::BarrierDissemination) => {
            barrier::dissemination::dissemination(exchange).await
        }
        (call, other) => unreachable!("{other:?} is no algorithm for {call}"),
    }
}

async fn all_reduce<M: Mesh>(
    exchange: &Exchange<'_, M>,
    algorithm: Algorithm,
    fold: Fold,
    buffers: Buffers<'_>,
) -> Result<()> {
    let size = exchange.place().size;
    let data = buffers.into_output();
    prepare(fold, data, size);
    match algorithm {
        Algorithm::AllReduceRecursiveDoubling => {
            allreduce::recursive_doubling::recursive_doubling(exchange, fold, data).await?;
        }
        Algorithm::AllReduceRing => allreduce::ring::ring(exchange, fold, data).await?,
        other => unreachable!("select.rs has no {other:?} for all-reduce"),
    }
    finish(fold, data, size);
    Ok(())
}

async fn reduce<M: Mesh>(
    exchange: &Exchange<'_, M>,
    fold: Fold,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let size = exchange.place().size;
    if exchange.place().rank == root {
        let data = buffers.into_output();
        prepare(fold, data, size);
        reduce::binomial::binomial(exchange, fold, root, data).await?;
        finish(fold, data, size);
        return Ok(());
    }
    let Buffers::Apart { input, .. } = buffers else { unreachable!("recvbuff is the root's") };
    let mut share = buffer::copied(input)?;
    prepare(fold, &mut share, size);
    reduce::binomial::binomial(exchange, fold, root, &mut share).await
}

async fn broadcast<M: Mesh>(
    exchange: &Exchange<'_, M>,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let data = match buffers {
        Buffers::Apart { output, .. } if exchange.place().rank != root => output,
        at_root => at_root.into_output(),
    };
    broadcast::binomial::binomial(exchange, root, data).await
}

async fn all_gather<M: Mesh>(exchange: &Exchange<'_, M>, buffers: Buffers<'_>) -> Result<()> {
    let blocks = match buffers {
        Buffers::Apart { input, output } => {
            let own = exchange.place().rank.0 * input.len();
            output[own..own + input.len()].copy_from_slice(input);
            output
        }
        Buffers::Shared { both } => both,
    };
    allgather::ring::ring(exchange, blocks).await
}

async fn reduce_scatter<M: Mesh>(
    exchange: &Exchange<'_, M>,
    fold: Fold,
    buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let (rank, size) = (place.rank.0, place.size);
    let input: &[u8] = match &buffers {
        Buffers::Apart { input, .. } => input,
        Buffers::Shared { both } => both,
    };
    let bytes = input.len() / size;
    let share = |block: usize, into: &mut [u8]| {
        into.copy_from_slice(&input[block * bytes..(block + 1) * bytes]);
        prepare(fold, into, size);
    };
    let (mut partial, mut next) = (buffer::zeroed(bytes)?, buffer::zeroed(bytes)?);
    reduce_scatter::ring::ring(exchange, fold, share, &mut partial, &mut next).await?;
    finish(fold, &mut partial, size);
    match buffers {
        Buffers::Apart { output, .. } => output.copy_from_slice(&partial),
        Buffers::Shared { both } => {
            both[rank * bytes..(rank + 1) * bytes].copy_from_slice(&partial)
        }
    }
    Ok(())
}
