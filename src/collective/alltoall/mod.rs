//! All-to-all: every rank gets a block from each rank.

mod bruck;
mod direct;
pub mod flat;
pub mod flat_v;
mod hierarchical;
mod paired;
mod pairwise;

use super::epochs::copy_flat;
use super::exchange::Exchange;
use super::paired::MOST_PAIRED;
use super::passes;
use super::select::{Row, Selection};
use super::varying::MOST_RANKS;
use crate::error::Result;
use crate::op::{Op, OpMemory};

use flat::FlatAllToAll;

use AllToAllAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum AllToAllAlgorithm {
    Flat,
    Paired,
    FlatV,
    Direct,
    Hierarchical,
    Bruck,
    Pairwise,
}

pub static TABLE: [Row<Algorithm>; 9] = [
    // Between few ranks two copies in the cache are faster than one by process_vm_readv(2).
    row("flat", Algorithm::Flat, usize::MAX).on_host().equal().most_ranks(4),
    row("flat", Algorithm::Flat, 32 << 10).on_host().equal(),
    row("direct", Algorithm::Direct, usize::MAX).on_open_host().equal(),
    row("flat", Algorithm::Flat, usize::MAX).on_host().equal(),
    row("paired", Algorithm::Paired, usize::MAX).on_host().most_ranks(MOST_PAIRED),
    row("flat_v", Algorithm::FlatV, usize::MAX).on_host().most_ranks(MOST_RANKS),
    // Two hosts of 2 and of 4 ranks on one machine: of the best other algorithm 0.6 and 0.1 of the
    // time at 8 B a block, 0.9 and 0.7 at 16 KiB, 1.5 and 0.9 at 64 KiB.
    row("hierarchical", Algorithm::Hierarchical, 16 << 10).on_hosts().equal(),
    row("bruck", Algorithm::Bruck, 256).equal(),
    row("pairwise", Algorithm::Pairwise, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("alltoall", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (size, topology) = (exchange.me().size, exchange.topology());
    let algorithm = selection.choose(&TABLE, &op.call(), size, topology).algorithm;
    let OpMemory { sent, received, buffers, .. } = &mut op.memory;
    let buffers = buffers.reborrow();
    match algorithm {
        Algorithm::Flat => {
            copy_flat(exchange, FlatAllToAll::new(exchange.me(), sent, buffers)).await
        }
        Algorithm::Direct => direct::direct(exchange, sent, buffers).await,
        Algorithm::Hierarchical => hierarchical::hierarchical(exchange, sent, buffers).await,
        Algorithm::Bruck => bruck::bruck(exchange, passes::into_output(buffers).await).await,
        Algorithm::Paired if size <= MOST_PAIRED => {
            paired::paired(exchange, sent, received, buffers).await
        }
        Algorithm::Paired | Algorithm::FlatV if size <= MOST_RANKS => {
            flat_v::flat_v(exchange, sent, received, buffers).await
        }
        Algorithm::Paired | Algorithm::FlatV | Algorithm::Pairwise => {
            pairwise::pairwise(exchange, sent, received, buffers).await
        }
    }
}
