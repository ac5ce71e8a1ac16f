//! Which ranks of a new communicator share memory: tried by those of one host, then known to all.
//!
//! Invariant: all ranks of a communicator know the same, because algorithms are chosen by it.

use crate::collective::select::Selection;
use crate::collective::{self, Exchange};
use crate::error::Result;
use crate::op::{Call, Op};
use crate::transport::quic::Opened;
use crate::transport::{AnyMesh, Lane, Mesh, Past};

/// Stands before the first call of a communicator.
const BEFORE_ALL: u64 = u64::MAX;

/// Connects the neighbours of a split-off communicator, then agrees on shared memory.
pub(super) async fn form(mesh: &mut AnyMesh) -> Result<()> {
    if let AnyMesh::Quic(quic) = mesh {
        quic.connect_neighbours().await?;
    }
    meet(mesh).await
}

/// Opens the memory that ranks of one host share, and tells all where that worked.
pub(super) async fn meet(mesh: &mut AnyMesh) -> Result<()> {
    let AnyMesh::Quic(quic) = mesh else { return Ok(()) };
    if !quic.may_share() {
        return Ok(());
    }
    let opened = quic.open_host().await;
    let place = mesh.place();
    let mut all = vec![0; place.size];
    all[place.rank.0] = opened as u8;
    let exchange = Exchange::new(mesh, Lane(0), BEFORE_ALL, Call::split(), Past::default());
    let telling = Op::split(&mut all, place.size);
    collective::perform(&exchange, &Selection::default(), telling).await?;
    if let AnyMesh::Quic(quic) = mesh {
        quic.settle(&all.into_iter().map(Opened::told).collect::<Vec<_>>());
    }
    Ok(())
}
