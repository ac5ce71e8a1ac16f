//! All-reduce, of one buffer or of a list: every rank gets the reduction of all ranks' data.

mod buckets;
pub mod flat;
mod hierarchical;
mod one_shot;
mod rabenseifner;
mod recursive_doubling;
mod ring;
mod rs_ag;
mod slices;

use super::epochs::reduce_flat;
use super::exchange::Exchange;
use super::passes;
use super::select::{Row, Selection, Topology};
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::{Call, Op, Reducer};

use flat::FlatAllReduce;

use buckets::BucketPiece;

use AllReduceAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum AllReduceAlgorithm {
    Flat,
    Slices,
    Hierarchical,
    OneShot,
    RecursiveDoubling,
    Rabenseifner,
    Ring,
    RsAg,
}

pub static TABLE: [Row<Algorithm>; 11] = [
    // Two ranks each reduce all shares faster than they divide the work.
    row("flat", Algorithm::Flat, usize::MAX).on_host().most_ranks(2),
    row("flat", Algorithm::Flat, 8 << 10).on_host(),
    row("slices", Algorithm::Slices, usize::MAX).on_host(),
    row("hierarchical", Algorithm::Hierarchical, usize::MAX).on_hosts(),
    row("one_shot", Algorithm::OneShot, 1 << 10).most_ranks(4),
    // Two ranks send as much in one step as a ring in two.
    row("recursive_doubling", Algorithm::RecursiveDoubling, 256 << 10).most_ranks(2),
    row("recursive_doubling", Algorithm::RecursiveDoubling, 64 << 10),
    row("rabenseifner", Algorithm::Rabenseifner, 1 << 20),
    row("ring", Algorithm::Ring, usize::MAX).commuting(),
    row("rs_ag", Algorithm::RsAg, 0).commuting(),
    row("rabenseifner", Algorithm::Rabenseifner, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("allreduce", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (size, topology) = (exchange.me().size, exchange.topology());
    let algorithm = selection.choose(&TABLE, &op.call(), size, topology).algorithm;
    let (reducer, memory) = op.reduction_mut();
    run(exchange, selection, algorithm, reducer, memory.buffers.reborrow()).await
}

/// An all-reduce of a list of buffers: piece by piece, each as an all-reduce of its length.
pub async fn perform_bucketed(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (reducer, memory) = op.reduction_mut();
    let (mut list, mut packed) = (&mut memory.buckets[..], Vec::new());
    while let Some(piece) = buckets::next(&mut list) {
        match piece {
            BucketPiece::Long(data) => {
                run_on(exchange, selection, exchange.topology(), reducer, data).await?;
            }
            BucketPiece::Short(buffers) => {
                buckets::pack(buffers, &mut packed)?;
                run_on(exchange, selection, exchange.topology(), reducer, &mut packed).await?;
                buckets::unpack(&packed, buffers);
            }
        }
    }
    Ok(())
}

/// Reduces data in place, by the algorithm for its length and this topology.
async fn run_on(
    exchange: &Exchange<'_>,
    selection: &Selection,
    topology: Topology,
    reducer: &Reducer,
    data: &mut [u8],
) -> Result<()> {
    let (size, reduction) = (exchange.me().size, reducer.reduction());
    let call = Call::all_reduce(data.len() / reduction.dtype.size(), reduction);
    let algorithm = selection.choose(&TABLE, &call, size, topology).algorithm;
    run(exchange, selection, algorithm, reducer, Buffers::Shared { both: data }).await
}

async fn run(
    exchange: &Exchange<'_>,
    selection: &Selection,
    algorithm: Algorithm,
    reducer: &Reducer,
    buffers: Buffers<'_>,
) -> Result<()> {
    let size = exchange.me().size;
    match algorithm {
        Algorithm::Flat => {
            reduce_flat(exchange, FlatAllReduce::new(exchange.me(), reducer, buffers)).await
        }
        Algorithm::Slices => slices::slices(exchange, reducer, buffers).await,
        Algorithm::Hierarchical => {
            let across = async |leaders: &Exchange<'_>, fold: &Reducer, data: &mut [u8]| {
                Box::pin(run_on(leaders, selection, Topology::Links, fold, data)).await
            };
            hierarchical::hierarchical(exchange, reducer, buffers, across).await
        }
        Algorithm::OneShot => {
            let run = async |data: &mut [u8]| one_shot::one_shot(exchange, reducer, data).await;
            passes::in_output(reducer, buffers, size, run).await
        }
        Algorithm::RecursiveDoubling => {
            let run = async |data: &mut [u8]| {
                recursive_doubling::recursive_doubling(exchange, reducer, data).await
            };
            passes::in_output(reducer, buffers, size, run).await
        }
        Algorithm::Rabenseifner => {
            let run =
                async |data: &mut [u8]| rabenseifner::rabenseifner(exchange, reducer, data).await;
            passes::in_output(reducer, buffers, size, run).await
        }
        Algorithm::RsAg => {
            let run = async |data: &mut [u8]| rs_ag::rs_ag(exchange, reducer, data).await;
            passes::in_output(reducer, buffers, size, run).await
        }
        Algorithm::Ring => {
            let run = async |data: &mut [u8]| ring::ring(exchange, reducer, data).await;
            passes::in_output(reducer, buffers, size, run).await
        }
    }
}
