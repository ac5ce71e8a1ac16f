//! Shared memory of a new communicator: the ranks of one host try to open it, then all ranks
//! exchange the results.
//!
//! Leaves to the mesh how memory is shared. Invariant: all ranks of a communicator have the same
//! results, because they choose algorithms by them.

use crate::collective::select::Selection;
use crate::collective::{self, Exchange};
use crate::error::Result;
use crate::op::{Call, Op};
use crate::transport::{CallHistory, Lane, Mesh, Opened};

/// The sequence number of the exchange: before that of the first call.
const BEFORE_ALL: u64 = u64::MAX;

/// Connects the neighbours of a split-off communicator, then opens its shared memory.
pub(super) async fn connect(mesh: &mut Mesh) -> Result<()> {
    mesh.connect_neighbours().await?;
    open_shared_memory(mesh).await
}

/// Opens the memory that the ranks of this host share. Exchanges with all ranks whether that worked
/// on each, and selects the memory accordingly.
pub(super) async fn open_shared_memory(mesh: &mut Mesh) -> Result<()> {
    let Some(forming) = mesh.membership.forming() else { return Ok(()) };
    let Some(opened) = forming.open_host().await else { return Ok(()) };
    let mut all = vec![0; mesh.me.size];
    all[mesh.me.rank.0] = opened as u8;
    let exchange = Exchange::new(mesh, Lane(0), BEFORE_ALL, Call::split(), CallHistory::default());
    let mut results = Op::split(&mut all, mesh.me.size);
    collective::perform(&exchange, &Selection::default(), &mut results).await?;
    let opened: Vec<_> = all.into_iter().map(Opened::decode).collect();
    mesh.memory = forming.settle(&opened);
    Ok(())
}
