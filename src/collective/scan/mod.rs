//! Scan: every rank gets the reduction of all ranks up to it. Exclusive scan: of all before it.

mod chain;
pub mod flat;
mod hillis_steele;
mod pipeline;
pub mod shares;

use super::epochs::reduce_flat;
use super::exchange::Exchange;
use super::passes;
use super::select::{Row, Selection};
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::{Collective, Op, Reducer};
use crate::rank::Rank;

use flat::FlatScan;

use shares::{FLAT_SCAN, Scanned, folding};

use ScanAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum ScanAlgorithm {
    Flat,
    Chain,
    HillisSteele,
    Pipeline,
}

pub static TABLE: [Row<Algorithm>; 4] = [
    // In a chain each rank reads from one other rank, however many there are.
    row("flat", Algorithm::Flat, 4 << 10).on_host().most_ranks(FLAT_SCAN),
    row("chain", Algorithm::Chain, usize::MAX).on_host(),
    row("hillis_steele", Algorithm::HillisSteele, 32 << 10),
    row("pipeline", Algorithm::Pipeline, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("scan", name, algorithm, up_to)
}

/// A scan, or an exclusive scan.
pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (call, me) = (op.call(), exchange.me());
    let algorithm = selection.choose(&TABLE, &call, me.size, exchange.topology()).algorithm;
    let (reducer, memory) = op.reduction_mut();
    let mut buffers = memory.buffers.reborrow();
    if call.collective() == Collective::Scan {
        return run(exchange, algorithm, reducer, buffers).await;
    }
    let has_no_result = me.rank == Rank(0);
    if has_no_result {
        run_first(exchange, algorithm, reducer, buffers.reborrow()).await?;
        passes::identity(reducer, buffers.output_mut()).await;
        return Ok(());
    }
    run_exclusive(exchange, algorithm, reducer, buffers).await
}

async fn run(
    exchange: &Exchange<'_>,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    match algorithm {
        Algorithm::Flat => {
            let flat = FlatScan::new(exchange.me(), reducer, Scanned::UpTo, buffers);
            reduce_flat(exchange, flat).await
        }
        Algorithm::Chain => chain::chain(exchange, reducer, Scanned::UpTo, buffers).await,
        Algorithm::HillisSteele => {
            let data = prepared(exchange, reducer, buffers).await;
            hillis_steele::hillis_steele(exchange, reducer, data, None).await
        }
        Algorithm::Pipeline => {
            let data = prepared(exchange, reducer, buffers).await;
            pipeline::pipeline(exchange, reducer, data).await
        }
    }
}

/// The part of rank 0 in an exclusive scan: it sends as in a scan.
async fn run_first(
    exchange: &Exchange<'_>,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    match algorithm {
        Algorithm::Flat => {
            let flat = FlatScan::new(exchange.me(), reducer, Scanned::Before, buffers);
            reduce_flat(exchange, flat).await
        }
        Algorithm::Chain => chain::chain(exchange, reducer, Scanned::Before, buffers).await,
        Algorithm::HillisSteele | Algorithm::Pipeline => {
            let mut own = passes::copied(buffers.input()).await?;
            run(exchange, algorithm, reducer, Buffers::Shared { both: &mut own }).await
        }
    }
}

/// The part of all other ranks in an exclusive scan.
async fn run_exclusive(
    exchange: &Exchange<'_>,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    match algorithm {
        Algorithm::Flat => {
            let flat = FlatScan::new(exchange.me(), reducer, Scanned::Before, buffers);
            reduce_flat(exchange, flat).await
        }
        Algorithm::Chain => chain::chain(exchange, reducer, Scanned::Before, buffers).await,
        Algorithm::HillisSteele => {
            let data = prepared(exchange, reducer, buffers).await;
            let mut up_to = passes::copied(data).await?;
            hillis_steele::hillis_steele(exchange, reducer, &mut up_to, Some(data)).await
        }
        Algorithm::Pipeline => {
            let data = prepared(exchange, reducer, buffers).await;
            pipeline::exclusive(exchange, reducer, data).await
        }
    }
}

/// This rank's share in the output, prepared.
async fn prepared<'b>(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    buffers: Buffers<'b>,
) -> &'b mut [u8] {
    let data = passes::into_output(buffers).await;
    passes::prepare(reducer, data, folding(exchange.me())).await;
    data
}
