//! What an operation does: a collective, or one side of a message.
//!
//! Leaves to `collective` and `messaging` what is sent, and to `Batch` who waits. Collectives have
//! numbers and take turns in lanes; messages use no lane: a thread that waits for one holds up no
//! collective and no other message. They are begun in the order in which they were issued.

use std::ops::Range;
use std::sync::Arc;

use tracing::trace;

use crate::collective::Exchange;
use crate::collective::select::Ground;
use crate::comm::Communicator;
use crate::comm::cuda::{Staged, perform_cut};
use crate::comm::split::Splitting;
use crate::error::{Doing, Error, Result};
use crate::message::{Incoming, Outgoing};
use crate::messaging;
use crate::op::{Call, Op};
use crate::rank::{Place, Rank};
use crate::transport::shm::Started;
use crate::transport::{AnyMesh, LANES, Mesh};

use super::lane::Lanes;
use super::ticket::Ticket;

/// What a call of more bytes has written last may not have been sent when it ends.
const LARGE: usize = 256 << 10;
/// The same, if it waits for nobody.
const SMALL: usize = 8 << 10;

pub enum Work<'a> {
    Collective(Op<'a>),
    Split(Splitting<'a>),
    Send(Outgoing<'a>),
    Recv(Incoming<'a>),
    /// One of those, but for a split, through host memory.
    Staged(Staged<'a>),
}

impl<'a> From<Op<'a>> for Work<'a> {
    fn from(op: Op<'a>) -> Self {
        Self::Collective(op)
    }
}

impl<'a> From<Outgoing<'a>> for Work<'a> {
    fn from(outgoing: Outgoing<'a>) -> Self {
        Self::Send(outgoing)
    }
}

impl<'a> From<Incoming<'a>> for Work<'a> {
    fn from(incoming: Incoming<'a>) -> Self {
        Self::Recv(incoming)
    }
}

impl Work<'_> {
    /// Takes its number, if it is a collective, unless the communicator takes no more.
    pub fn begin(&self, communicator: Arc<Communicator>) -> Result<Ticket> {
        match self {
            Self::Collective(op) => communicator.begin(op.call()),
            Self::Split(_) => communicator.begin(Call::Split),
            Self::Send(outgoing) => communicator.begin_message(outgoing.call()),
            Self::Recv(incoming) => communicator.begin_message(incoming.call()),
            Self::Staged(staged) => staged.work().begin(communicator),
        }
    }

    /// Does it, with the ticket of its beginning.
    pub async fn perform(self, ticket: &Ticket) -> Result<()> {
        let mesh = &ticket.communicator.mesh;
        match self {
            // In a box: messages, of which a group may have thousands, are much smaller.
            Self::Collective(op) => Box::pin(collective(ticket, op, None)).await,
            Self::Staged(mut staged) => {
                let made = Box::pin(make_staged(ticket, &mut staged)).await;
                // The device goes on when this is dropped: who sees no result then sees the failure too.
                made.inspect_err(|cause| ticket.make_known(cause))
            }
            Self::Split(splitting) => Box::pin(splitting.perform(ticket)).await,
            Self::Send(outgoing) => ticket.in_order(messaging::send(mesh, outgoing)).await,
            Self::Recv(incoming) => receive(ticket, incoming).await,
        }
    }

    /// What it is, for error texts.
    pub fn words(&self) -> String {
        match self {
            Self::Collective(op) => op.call().to_string(),
            Self::Split(_) => Call::Split.to_string(),
            Self::Send(outgoing) => outgoing.call().to_string(),
            Self::Recv(incoming) => incoming.call().to_string(),
            Self::Staged(staged) => staged.work().words(),
        }
    }

    /// The buffers that the caller named, as it named them.
    pub fn memory(&self) -> Vec<(&'static str, &[u8])> {
        match self {
            Self::Collective(op) => op.memory(),
            Self::Send(outgoing) => vec![("sendbuff", outgoing.bytes)],
            Self::Recv(incoming) => vec![("recvbuff", &*incoming.into)],
            Self::Split(_) | Self::Staged(_) => Vec::new(),
        }
    }

    /// Where the scalar of its operator is, if a stream is to fetch it.
    pub fn scalar(&self) -> Option<Range<usize>> {
        let Self::Collective(op) = self else { return None };
        let (address, bytes) = op.scalar_of_stream()?;
        Some(address as usize..address as usize + bytes)
    }

    /// Whether it is a message, which goes over the network.
    pub fn is_message(&self) -> bool {
        match self {
            Self::Send(_) | Self::Recv(_) => true,
            Self::Collective(_) | Self::Split(_) => false,
            Self::Staged(staged) => staged.work().is_message(),
        }
    }

    /// Whether it calls a function of the program.
    pub fn calls_program(&self) -> bool {
        match self {
            Self::Collective(op) => op.call().calls_program(),
            Self::Staged(staged) => staged.work().calls_program(),
            Self::Split(_) | Self::Send(_) | Self::Recv(_) => false,
        }
    }

    /// Whether `rank` may end it with data still to be sent: it only sends in it, more than goes out
    /// at once, or the call is large.
    pub fn leaves_work(&self, rank: Rank) -> bool {
        let op = match self {
            Self::Collective(op) => op,
            Self::Send(outgoing) => return outgoing.bytes.len() > SMALL,
            Self::Split(_) | Self::Recv(_) => return false,
            Self::Staged(staged) => return staged.work().leaves_work(rank),
        };
        let only_sends = match *op {
            Op::Broadcast { root, .. } | Op::Scatter { root, .. } => root == rank,
            Op::Reduce { root, .. } | Op::Gather { root, .. } => root != rank,
            Op::Scan { .. } | Op::ExScan { .. } => rank == Rank(0),
            _ => false,
        };
        op.input_bytes() > if only_sends { SMALL } else { LARGE }
    }
}

/// Waits for the turn of the call's lane, and makes the call, or goes on with one that was begun as a brief one.
pub async fn collective(
    ticket: &Ticket,
    op: Op<'_>,
    started: Option<Started>,
) -> Result<()> {
    in_turn(ticket, started, async |exchange| perform_cut(&ticket.communicator, exchange, op).await)
        .await
}

/// The same, through host memory.
/// The receiving side of a message, into host memory.
pub async fn receive(ticket: &Ticket, incoming: Incoming<'_>) -> Result<()> {
    let mesh = &ticket.communicator.mesh;
    let receiving = async { messaging::recv(mesh, incoming).await.map(drop) };
    match ticket.in_order(receiving).await {
        Ok(()) => Ok(()),
        Err(error) => Err(agreed(mesh, error).await),
    }
}

async fn make_staged(ticket: &Ticket, staged: &mut Staged<'_>) -> Result<()> {
    if staged.work().is_message() {
        return staged.perform_message(ticket).await;
    }
    in_turn(ticket, None, async |exchange| staged.perform(ticket, exchange).await).await
}

async fn in_turn(
    ticket: &Ticket,
    started: Option<Started>,
    body: impl AsyncFnOnce(&Exchange<'_, AnyMesh>) -> Result<()>,
) -> Result<()> {
    let Doing::Collective { seq, call } = ticket.doing else {
        unreachable!("a collective has a number")
    };
    let Communicator { name, mesh, selection, lanes, .. } = &*ticket.communicator;
    lanes.turn(seq).await;
    if let Some(fault) = mesh.settled_fault().await {
        return Err(fault);
    }
    let Place { rank, size } = mesh.place();
    trace!(
        rank = rank.0 as u64,
        "communicator {name}: {rank}, {call} #{seq}, {}",
        selection.choose(&call, size, Ground::of(mesh.hosts())).name
    );
    let exchange =
        Exchange::new(mesh, Lanes::<LANES>::of(seq), seq, call, ticket.past).go_on(started);
    match body(&exchange).await {
        Ok(()) => exchange.confirm().await,
        Err(error) => Err(agreed(mesh, error).await),
    }
}

/// Of what ranks disagree about, all are told the same.
async fn agreed(mesh: &AnyMesh, error: Error) -> Error {
    if error.is_disagreement() { mesh.agree(error).await } else { error }
}
