//! Which ranks of a new communicator share memory: tried by those of one host, then known to all.
//!
//! Invariant: all ranks of a communicator know the same, because algorithms are chosen by it.

use crate::collective::select::Selection;
use crate::collective::{self, Exchange};
use crate::error::Result;
use crate::op::{Call, Op};
use crate::transport::{CallHistory, Lane, Mesh, Opened};

/// Stands before the first call of a communicator.
const BEFORE_ALL: u64 = u64::MAX;

/// Connects the neighbours of a split-off communicator, then agrees on shared memory.
pub(super) async fn form(mesh: &mut Mesh) -> Result<()> {
    mesh.connect_neighbours().await?;
    meet(mesh).await
}

/// Opens the memory that ranks of one host share, and tells all where that worked.
pub(super) async fn meet(mesh: &mut Mesh) -> Result<()> {
    let Some(forming) = mesh.membership.forming() else { return Ok(()) };
    let Some(opened) = forming.open_host().await else { return Ok(()) };
    let mut all = vec![0; mesh.me.size];
    all[mesh.me.rank.0] = opened as u8;
    let exchange = Exchange::new(mesh, Lane(0), BEFORE_ALL, Call::split(), CallHistory::default());
    let telling = Op::split(&mut all, mesh.me.size);
    collective::perform(&exchange, &Selection::default(), telling).await?;
    let opened: Vec<_> = all.into_iter().map(Opened::told).collect();
    mesh.memory = forming.settle(&opened);
    Ok(())
}
