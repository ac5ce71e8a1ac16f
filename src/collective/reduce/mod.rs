//! Reduce: the root gets the reduction of all ranks' data.

mod binomial;
pub mod flat;
mod hierarchical;
mod pipeline;

use std::ops::Range;

use super::epochs::reduce_flat;
use super::exchange::Exchange;
use super::passes;
use super::segments::SEGMENT;
use super::select::{Row, Selection, Topology};
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::{Call, Op, Reducer};
use crate::rank::Rank;

use flat::FlatReduce;

use ReduceAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum ReduceAlgorithm {
    Flat,
    Hierarchical,
    Binomial,
    Pipeline,
}

pub static TABLE: [Row<Algorithm>; 4] = [
    row("flat", Algorithm::Flat, usize::MAX).on_host(),
    row("hierarchical", Algorithm::Hierarchical, usize::MAX).on_hosts(),
    row("binomial", Algorithm::Binomial, SEGMENT),
    row("pipeline", Algorithm::Pipeline, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("reduce", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (topology, call, root) = (exchange.topology(), op.call(), op.root());
    let (reducer, memory) = op.reduction_mut();
    let buffers = memory.buffers.reborrow();
    run(exchange, (selection, topology), &call, reducer, root, buffers).await
}

/// Reduces by the algorithm for the call and this topology.
async fn run(
    exchange: &Exchange<'_>,
    (selection, topology): (&Selection, Topology),
    call: &Call,
    reducer: &Reducer,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    match selection.choose(&TABLE, call, exchange.me().size, topology).algorithm {
        Algorithm::Flat => {
            reduce_flat(exchange, FlatReduce::new(exchange.me(), root, reducer, buffers)).await
        }
        Algorithm::Hierarchical => {
            let across =
                async |leaders: &Exchange<'_>, fold: &Reducer, root: Rank, data: &mut [u8]| {
                    let (on_links, both) =
                        ((selection, Topology::Links), Buffers::Shared { both: data });
                    Box::pin(run(leaders, on_links, call, fold, root, both)).await
                };
            hierarchical::hierarchical(exchange, reducer, root, buffers, across).await
        }
        Algorithm::Binomial => by_tree(exchange, reducer, root, buffers).await,
        Algorithm::Pipeline => by_chain(exchange, reducer, root, buffers).await,
    }
}

async fn by_tree(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let me = exchange.me();
    if me.rank == root {
        let run = async |data: &mut [u8]| binomial::binomial(exchange, reducer, root, data).await;
        return passes::in_output(reducer, buffers, me.size, run).await;
    }
    let mut share = passes::copied(buffers.input()).await?;
    passes::prepare(reducer, &mut share, me.size).await;
    binomial::binomial(exchange, reducer, root, &mut share).await
}

async fn by_chain(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let me = exchange.me();
    if me.rank != root {
        let (input, bytes) = (buffers.input(), buffers.input().len());
        let load = passes::loader(reducer, input, me.size);
        return pipeline::pipeline(exchange, reducer, root, bytes, load, &mut []).await;
    }
    // In rank order the root's share enters the chain before the result arrives, unless the root is
    // the last rank of the chain.
    let in_order = !reducer.reduction().is_commutative() && root.0 + 1 < me.size;
    let run = async |data: &mut [u8]| {
        let own = if in_order { passes::copied(data).await? } else { Vec::new() };
        let load = |part: Range<usize>, into: &mut [u8]| into.copy_from_slice(&own[part]);
        pipeline::pipeline(exchange, reducer, root, data.len(), load, data).await
    };
    passes::in_output(reducer, buffers, me.size, run).await
}
