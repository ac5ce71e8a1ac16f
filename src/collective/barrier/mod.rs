//! Barrier: no rank leaves before all have entered.

mod dissemination;
pub mod flat;
mod hierarchical;

use super::epochs::copy_flat;
use super::exchange::Exchange;
use super::select::{Row, Selection};
use crate::error::Result;
use crate::op::Op;

use flat::FlatBarrier;

use BarrierAlgorithm as Algorithm;

#[derive(Clone, Copy, Debug)]
pub enum BarrierAlgorithm {
    Flat,
    Hierarchical,
    Dissemination,
}

pub static TABLE: [Row<Algorithm>; 3] = [
    row("flat", Algorithm::Flat, usize::MAX).on_host(),
    row("hierarchical", Algorithm::Hierarchical, usize::MAX).on_hosts(),
    row("dissemination", Algorithm::Dissemination, usize::MAX),
];

const fn row(name: &'static str, algorithm: Algorithm, up_to: usize) -> Row<Algorithm> {
    Row::new("barrier", name, algorithm, up_to)
}

pub async fn perform(exchange: &Exchange<'_>, selection: &Selection, op: &Op<'_>) -> Result<()> {
    let (size, topology) = (exchange.me().size, exchange.topology());
    match selection.choose(&TABLE, &op.call(), size, topology).algorithm {
        Algorithm::Flat => copy_flat(exchange, FlatBarrier { me: exchange.me() }).await,
        Algorithm::Hierarchical => hierarchical::hierarchical(exchange).await,
        Algorithm::Dissemination => dissemination::dissemination(exchange).await,
    }
}
