//! Broadcast: every rank gets the data of the root.

mod binomial;
pub mod flat;
mod hierarchical;
mod pipeline;

use super::epochs::copy_flat;
use super::exchange::Exchange;
use super::passes;
use super::segments::SEGMENT;
use super::select::{Row, Selection, Topology};
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::{Call, Op};
use crate::rank::Rank;

use flat::FlatBroadcast;

use BroadcastAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum BroadcastAlgorithm {
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
    Row::new("broadcast", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (topology, call, root) = (exchange.topology(), op.call(), op.root());
    run(exchange, (selection, topology), &call, root, op.memory.buffers.reborrow()).await
}

/// Broadcasts by the algorithm for the call and this topology.
async fn run(
    exchange: &Exchange<'_>,
    (selection, topology): (&Selection, Topology),
    call: &Call,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let me = exchange.me();
    match selection.choose(&TABLE, call, me.size, topology).algorithm {
        Algorithm::Flat => {
            copy_flat(exchange, FlatBroadcast::new(me, root, call.bytes(), buffers)).await
        }
        Algorithm::Hierarchical => {
            let across = async |leaders: &Exchange<'_>, root: Rank, data: &mut [u8]| {
                let (on_links, both) =
                    ((selection, Topology::Links), Buffers::Shared { both: data });
                Box::pin(run(leaders, on_links, call, root, both)).await
            };
            let data = output(buffers, me.rank == root).await;
            hierarchical::hierarchical(exchange, root, data, across).await
        }
        Algorithm::Binomial => {
            let data = output(buffers, me.rank == root).await;
            binomial::binomial(exchange, root, data).await
        }
        Algorithm::Pipeline => {
            let data = output(buffers, me.rank == root).await;
            pipeline::pipeline(exchange, root, data).await
        }
    }
}

/// The output. At the root, it holds the data.
async fn output(buffers: Buffers<'_>, is_root: bool) -> &mut [u8] {
    match buffers {
        Buffers::Apart { output, .. } if !is_root => output,
        buffers => passes::into_output(buffers).await,
    }
}
