//! Gather: the root gets the blocks of all ranks.

mod binomial;
pub mod flat;
mod flat_v;
mod linear;

use super::epochs::copy_flat;
use super::exchange::Exchange;
use super::passes;
use super::select::{Row, Selection};
use crate::error::Result;
use crate::op::{Op, OpMemory};

use flat::FlatGather;

use GatherAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum GatherAlgorithm {
    Flat,
    FlatV,
    Binomial,
    Linear,
}

pub static TABLE: [Row<Algorithm>; 4] = [
    row("flat", Algorithm::Flat, usize::MAX).on_host().equal(),
    row("flat_v", Algorithm::FlatV, usize::MAX).on_host(),
    row("binomial", Algorithm::Binomial, 4 << 10).equal(),
    row("linear", Algorithm::Linear, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("gather", name, algorithm, up_to)
}

pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    let (me, topology, root) = (exchange.me(), exchange.topology(), op.root());
    let algorithm = selection.choose(&TABLE, &op.call(), me.size, topology).algorithm;
    let OpMemory { received: blocks, buffers, .. } = &mut op.memory;
    if me.rank != root {
        let own = buffers.input();
        return match algorithm {
            Algorithm::Flat => {
                let flat = FlatGather { me, root, blocks, own, output: &mut [] };
                copy_flat(exchange, flat).await
            }
            Algorithm::Binomial => binomial::binomial(exchange, root, own, &mut []).await,
            Algorithm::FlatV => flat_v::flat_v(exchange, root, blocks, own, &mut []).await,
            Algorithm::Linear => linear::linear(exchange, root, blocks, own, &mut []).await,
        };
    }
    let own = blocks.get(root.0);
    let output = passes::with_own_block(buffers.reborrow(), own.clone()).await;
    match algorithm {
        Algorithm::Flat => {
            let flat = FlatGather { me, root, blocks, own: &[], output };
            copy_flat(exchange, flat).await
        }
        Algorithm::Binomial => {
            let own = passes::copied(&output[own]).await?;
            binomial::binomial(exchange, root, &own, output).await
        }
        Algorithm::FlatV => flat_v::flat_v(exchange, root, blocks, &[], output).await,
        Algorithm::Linear => linear::linear(exchange, root, blocks, &[], output).await,
    }
}
