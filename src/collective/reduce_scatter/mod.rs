//! Reduce-scatter: every rank gets its block of the reduction of all ranks' data.

pub mod flat;
pub mod pairwise;
mod recursive_halving;
pub mod ring;

use super::epochs::reduce_flat;
use super::exchange::Exchange;
use super::passes;
use super::select::{Row, Selection};
use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::error::{Error, Result};
use crate::op::{Op, OpMemory, Reducer};

use flat::FlatReduceScatter;

use ReduceScatterAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum ReduceScatterAlgorithm {
    Flat,
    RecursiveHalving,
    Ring,
    Pairwise,
}

pub static TABLE: [Row<Algorithm>; 4] = [
    row("flat", Algorithm::Flat, usize::MAX).on_host(),
    row("recursive_halving", Algorithm::RecursiveHalving, 16 << 10).commuting(),
    row("ring", Algorithm::Ring, usize::MAX).commuting(),
    row("pairwise", Algorithm::Pairwise, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("reduce_scatter", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (size, topology) = (exchange.me().size, exchange.topology());
    let algorithm = selection.choose(&TABLE, &op.call(), size, topology).algorithm;
    let (reducer, OpMemory { sent: blocks, buffers, .. }) = op.reduction_mut();
    let buffers = buffers.reborrow();
    match algorithm {
        Algorithm::Flat => {
            let flat = FlatReduceScatter::new(exchange.me(), reducer, blocks, buffers);
            reduce_flat(exchange, flat).await
        }
        Algorithm::RecursiveHalving => {
            let run = async |input: &[u8], output: &mut [u8]| {
                // The blocks are small, but may be far apart.
                let (mut data, blocks) = side_by_side(input, blocks)?;
                passes::prepare(reducer, &mut data, size).await;
                let halving = recursive_halving::recursive_halving;
                halving(exchange, reducer, &blocks, &mut data, output).await
            };
            apart(exchange, reducer, blocks, buffers, run).await
        }
        Algorithm::Ring => {
            let run = async |input: &[u8], output: &mut [u8]| {
                let load = passes::loader(reducer, input, size);
                ring::ring(exchange, reducer, blocks, load, output).await
            };
            apart(exchange, reducer, blocks, buffers, run).await
        }
        Algorithm::Pairwise => {
            let run = async |input: &[u8], output: &mut [u8]| {
                let share;
                let input = match reducer {
                    Reducer::User { .. } => input,
                    Reducer::Known(_) | Reducer::PreMulSum { .. } => {
                        share = prepared(reducer, input, size).await?;
                        &share
                    }
                };
                pairwise::pairwise(exchange, reducer, blocks, input, output).await
            };
            apart(exchange, reducer, blocks, buffers, run).await
        }
    }
}

/// Runs an algorithm with an output apart from the input, and finishes its result.
async fn apart(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    blocks: &Blocks,
    buffers: Buffers<'_>,
    algorithm: impl AsyncFnOnce(&[u8], &mut [u8]) -> Result<()>,
) -> Result<()> {
    let me = exchange.me();
    match buffers {
        Buffers::Apart { input, output } => {
            algorithm(input, output).await?;
            passes::finish(reducer, output, me.size).await;
        }
        Buffers::Shared { both } => {
            let own = blocks.get(me.rank.0);
            let mut result = passes::zeroed(own.len()).await?;
            algorithm(both, &mut result).await?;
            passes::finish(reducer, &mut result, me.size).await;
            passes::copy(&result, &mut both[own]).await;
        }
    }
    Ok(())
}

/// A prepared copy of this rank's share.
async fn prepared(reducer: &Reducer, input: &[u8], size: usize) -> Result<Vec<u8>> {
    let mut share = passes::copied(input).await?;
    passes::prepare(reducer, &mut share, size).await;
    Ok(share)
}

/// A copy of all blocks, one behind the other.
fn side_by_side(input: &[u8], blocks: &Blocks) -> Result<(Vec<u8>, Blocks)> {
    let (mut data, mut ranges) = (Vec::new(), Vec::new());
    let bytes = blocks.iter().map(|block| block.len()).sum();
    data.try_reserve_exact(bytes).map_err(|_| Error::out_of_memory(bytes))?;
    for block in blocks.iter() {
        ranges.push(data.len()..data.len() + block.len());
        data.extend_from_slice(&input[block]);
    }
    Ok((data, Blocks::at(ranges)))
}
