//! Scatter: every rank gets its block of the root's data.

mod binomial;
pub mod flat;
pub mod flat_v;
mod linear;
mod paired;

use super::epochs::copy_flat;
use super::exchange::Exchange;
use super::paired::MOST_PAIRED;
use super::passes;
use super::select::{Row, Selection};
use super::varying::MOST_RANKS;
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::{Op, OpMemory};

use flat::FlatScatter;

use ScatterAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum ScatterAlgorithm {
    Flat,
    Paired,
    FlatV,
    Binomial,
    Linear,
}

pub static TABLE: [Row<Algorithm>; 5] = [
    row("flat", Algorithm::Flat, usize::MAX).on_host().equal(),
    row("paired", Algorithm::Paired, usize::MAX).on_host().most_ranks(MOST_PAIRED),
    row("flat_v", Algorithm::FlatV, usize::MAX).on_host().most_ranks(MOST_RANKS),
    row("binomial", Algorithm::Binomial, 4 << 10).equal(),
    row("linear", Algorithm::Linear, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("scatter", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (me, topology, root) = (exchange.me(), exchange.topology(), op.root());
    let algorithm = selection.choose(&TABLE, &op.call(), me.size, topology).algorithm;
    let OpMemory { sent: blocks, buffers, .. } = &mut op.memory;
    let (input, own): (&[u8], &mut [u8]) = match buffers.reborrow() {
        Buffers::Apart { input, output } => {
            if me.rank == root {
                passes::copy(&input[blocks.get(root.0)], output).await;
            }
            (input, output)
        }
        // In place at the root, which sends all blocks but its own and receives none.
        Buffers::Shared { both } => (both, &mut []),
    };
    match algorithm {
        Algorithm::Flat => {
            copy_flat(exchange, FlatScatter::new(me, root, blocks, input, own)).await
        }
        Algorithm::Binomial => binomial::binomial(exchange, root, input, own).await,
        Algorithm::Paired if me.size <= MOST_PAIRED => {
            paired::paired(exchange, root, blocks, input, own).await
        }
        Algorithm::Paired | Algorithm::FlatV if me.size <= MOST_RANKS => {
            flat_v::flat_v(exchange, root, blocks, input, own).await
        }
        Algorithm::Paired | Algorithm::FlatV | Algorithm::Linear => {
            linear::linear(exchange, root, blocks, input, own).await
        }
    }
}
