//! Which bytes go to which rank at which step, and where to reduce.
//!
//! Knows no sockets, no CUDA and no clock: the mesh waits and fails. The folder of each collective
//! has its algorithms, the table by which one is chosen, and `perform`. Invariant: for a given
//! call, number of ranks and algorithm the operands are grouped the same way in every run and on
//! every rank, so the result has the same bits everywhere.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod broadcast;
mod epochs;
mod exchange;
pub mod fast_path;
mod gather;
mod leaders;
mod paired;
mod pairs;
mod passes;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
pub mod segments;
pub mod select;
mod share;
pub mod table;
mod tree;
mod varying;

use crate::error::Result;
use crate::op::{Collective, Op};

pub use exchange::Exchange;
use select::Selection;

/// Executes one operation on this rank, together with the other ranks that execute it.
pub async fn perform(
    exchange: &Exchange<'_>,
    selection: &Selection,
    op: &mut Op<'_>,
) -> Result<()> {
    if op.call().is_empty() {
        return Ok(());
    }
    match op.call().collective() {
        Collective::AllReduce => allreduce::perform(exchange, selection, op).await,
        Collective::AllReduceBucketed => allreduce::perform_bucketed(exchange, selection, op).await,
        Collective::Reduce => reduce::perform(exchange, selection, op).await,
        Collective::Broadcast => broadcast::perform(exchange, selection, op).await,
        Collective::AllGather | Collective::Split => {
            allgather::perform(exchange, selection, op).await
        }
        Collective::ReduceScatter => reduce_scatter::perform(exchange, selection, op).await,
        Collective::AllToAll => alltoall::perform(exchange, selection, op).await,
        Collective::Gather => gather::perform(exchange, selection, op).await,
        Collective::Scatter => scatter::perform(exchange, selection, op).await,
        Collective::Scan | Collective::ExScan => scan::perform(exchange, selection, op).await,
        Collective::Barrier => barrier::perform(exchange, selection, op).await,
    }
}
