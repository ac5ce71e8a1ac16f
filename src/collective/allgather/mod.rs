//! All-gather: every rank gets the blocks of all ranks. Also the exchange of colors and keys of a
//! split.

pub mod bruck;
pub mod flat;
pub mod ring;

use super::epochs::copy_flat;
use super::exchange::Exchange;
use super::passes;
use super::select::{Row, Selection};
use crate::error::Result;
use crate::op::{Op, OpMemory};

use flat::FlatAllGather;

use AllGatherAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum AllGatherAlgorithm {
    Flat,
    Bruck,
    Ring,
}

pub static TABLE: [Row<Algorithm>; 3] = [
    row("flat", Algorithm::Flat, usize::MAX).on_host(),
    row("bruck", Algorithm::Bruck, 4 << 10).equal(),
    row("ring", Algorithm::Ring, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("allgather", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (me, topology) = (exchange.me(), exchange.topology());
    let algorithm = selection.choose(&TABLE, &op.call(), me.size, topology).algorithm;
    let OpMemory { received: blocks, buffers, .. } = &mut op.memory;
    let buffers = buffers.reborrow();
    let own = blocks.get(me.rank.0);
    match algorithm {
        Algorithm::Flat => copy_flat(exchange, FlatAllGather::new(me, blocks, buffers)).await,
        Algorithm::Bruck => {
            bruck::bruck(exchange, passes::with_own_block(buffers, own).await).await
        }
        Algorithm::Ring => {
            ring::ring(exchange, blocks, passes::with_own_block(buffers, own).await).await
        }
    }
}
