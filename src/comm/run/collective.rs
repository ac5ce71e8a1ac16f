//! A collective in the turn of its lane: on host memory, or executed by another module.
//!
//! Leaves to `pieces` the execution on host memory, and to `lane` the turns. Invariant: if ranks
//! disagree about a call, every rank reports the same error.

use tracing::trace;

use crate::collective::select::Topology;
use crate::collective::{Exchange, table};
use crate::comm::Communicator;
use crate::error::{Doing, Error, Result};
use crate::op::Op;
use crate::rank::RankOf;
use crate::transport::{LANES, Mesh, Started};

use super::lane::LaneQueues;
use super::pieces::perform_in_pieces;
use super::ticket::Ticket;

/// Waits for the turn of the call's lane, and executes the call. `started`: the epoch in which the
/// fast path has begun it, if it has.
pub async fn collective(ticket: &Ticket, op: &mut Op<'_>, started: Option<Started>) -> Result<()> {
    in_turn(ticket, started, async |exchange| {
        perform_in_pieces(&ticket.communicator, exchange, op).await
    })
    .await
}

/// Waits for the turn of the call's lane and runs `body`. Then confirms that no peer has reused
/// memory that `body` has read in place.
pub async fn in_turn(
    ticket: &Ticket,
    started: Option<Started>,
    body: impl AsyncFnOnce(&Exchange<'_>) -> Result<()>,
) -> Result<()> {
    let Doing::Collective { seq, call } = ticket.doing else {
        unreachable!("a collective has a sequence number")
    };
    let Communicator { name, mesh, selection, lanes, .. } = &*ticket.communicator;
    lanes.turn(seq).await;
    if let Some(fault) = mesh.settled_fault().await {
        return Err(fault);
    }
    let RankOf { rank, size } = mesh.me;
    trace!(
        rank = rank.0 as u64,
        "communicator {name}: {rank}, {call} #{seq}, {}",
        table::choose(selection, &call, size, Topology::of(mesh.hosts()))
    );
    let exchange = Exchange::new(mesh, LaneQueues::<LANES>::of(seq), seq, call, ticket.history)
        .continue_from(started);
    match body(&exchange).await {
        Ok(()) => exchange.confirm().await,
        Err(error) => Err(agreed(mesh, error).await),
    }
}

/// The error to report: where ranks disagree about a call, all ranks report the same error.
pub async fn agreed(mesh: &Mesh, error: Error) -> Error {
    if error.is_disagreement() { mesh.membership.agree(error).await } else { error }
}
