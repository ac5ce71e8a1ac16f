//! Broadcast: every rank gets the root's data.

mod binomial;
pub mod flat;
mod hierarchical;
mod pipeline;

use super::exchange::Exchange;
use super::passes;
use super::segments::SEGMENT;
use super::select::{Ground, Row, Selection};
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::{Call, Op};
use crate::rank::Rank;

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

pub async fn perform(exchange: &Exchange<'_>, selection: &Selection, op: Op<'_>) -> Result<()> {
    let (ground, call, root) = (exchange.ground(), op.call(), op.root());
    run(exchange, (selection, ground), &call, root, op.memory.buffers).await
}

/// Broadcasts by the algorithm for the call between ranks on this ground.
async fn run(
    exchange: &Exchange<'_>,
    (selection, ground): (&Selection, Ground),
    call: &Call,
    root: Rank,
    buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    match selection.choose(&TABLE, call, place.size, ground).algorithm {
        Algorithm::Flat => flat::flat(exchange, root, call.bytes(), buffers).await,
        Algorithm::Hierarchical => {
            let across = async |leaders: &Exchange<'_>, root: Rank, data: &mut [u8]| {
                let (on_links, both) = ((selection, Ground::Links), Buffers::Shared { both: data });
                Box::pin(run(leaders, on_links, call, root, both)).await
            };
            let data = output(buffers, place.rank == root).await;
            hierarchical::hierarchical(exchange, root, data, across).await
        }
        Algorithm::Binomial => {
            let data = output(buffers, place.rank == root).await;
            binomial::binomial(exchange, root, data).await
        }
        Algorithm::Pipeline => {
            let data = output(buffers, place.rank == root).await;
            pipeline::pipeline(exchange, root, data).await
        }
    }
}

/// The output, which at the root holds the data.
async fn output(buffers: Buffers<'_>, is_root: bool) -> &mut [u8] {
    match buffers {
        Buffers::Apart { output, .. } if !is_root => output,
        buffers => passes::into_output(buffers).await,
    }
}
