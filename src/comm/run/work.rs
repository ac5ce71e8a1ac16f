//! The work of an operation: a collective, one side of a message, or an operation of another
//! module.
//!
//! Leaves collectives, which have sequence numbers and take turns in lanes, to `collective`, the
//! bytes of messages to `messaging`, and the waiting to `batch`. Messages use no lane: a thread
//! that waits for one delays no collective and no other message but the sends behind it to that
//! rank. Invariant: messages have the order in which they were issued, whichever starts first.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::message::{Incoming, MessageCall, Outgoing, RecvCount};
use crate::messaging;
use crate::op::{Collective, Op};
use crate::rank::Rank;
use crate::transport::{Demand, Peers};

use super::collective::{agreed, collective};
use super::ticket::Ticket;

/// A rank may complete a collective with a larger input while data is still to be sent.
const LARGE: usize = 256 << 10;
/// The same limit for a rank that only sends, and so waits for no other.
const SMALL: usize = 8 << 10;

pub enum Work<'a> {
    /// Boxed, so that a message is no larger than it must be.
    Collective(Box<Op<'a>>),
    Send(Outgoing<'a>),
    Recv(Incoming<'a>),
    Other(Box<dyn Operation + Send + 'a>),
}

/// An operation that another module executes: a split, or one whose buffers are staged.
pub trait Operation {
    /// Takes a sequence number, or registers a message. Fails if the communicator accepts no more
    /// operations.
    fn begin(&self, communicator: Arc<Communicator>) -> Result<Ticket>;

    /// The operation's name and arguments, for error texts.
    fn describe(&self) -> String;

    /// See the methods of `Work`.
    fn message(&self) -> Option<Peers> {
        None
    }

    fn calls_program(&self) -> bool {
        false
    }

    fn leaves_work(&self, _rank: Rank) -> bool {
        false
    }

    /// Executes the operation, with the ticket that `begin` returned.
    fn perform<'t>(
        self: Box<Self>,
        ticket: &'t Ticket,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + 't>>
    where
        Self: 't;
}

impl<'a> From<Op<'a>> for Work<'a> {
    fn from(op: Op<'a>) -> Self {
        Self::Collective(Box::new(op))
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
    /// Gives a collective its sequence number, or registers a message. Fails if the communicator
    /// accepts no more operations.
    pub(in crate::comm) fn begin(&self, communicator: Arc<Communicator>) -> Result<Ticket> {
        match self {
            Self::Collective(op) => Ticket::of_call(communicator, op.call()),
            Self::Send(outgoing) => Ticket::of_message(communicator, outgoing.call()),
            Self::Recv(incoming) => {
                Ticket::of_message(communicator, MessageCall::Recv(incoming.call))
            }
            Self::Other(operation) => operation.begin(communicator),
        }
    }

    /// Executes the operation, with the ticket that `begin` returned.
    pub(in crate::comm) async fn perform(self, ticket: &Ticket) -> Result<()> {
        let mesh = &ticket.communicator.mesh;
        match self {
            // Boxed, to keep the future small: a group may have thousands of messages, which need
            // much less.
            Self::Collective(mut op) => Box::pin(collective(ticket, &mut op, None)).await,
            Self::Send(outgoing) => messaging::send(mesh, ticket.turn(), outgoing).await,
            Self::Recv(incoming) => receive(ticket, incoming).await,
            Self::Other(operation) => operation.perform(ticket).await,
        }
    }

    /// The operation's name and arguments, for error texts.
    pub(in crate::comm) fn describe(&self) -> String {
        match self {
            Self::Collective(op) => op.call().to_string(),
            Self::Send(outgoing) => outgoing.call().to_string(),
            Self::Recv(incoming) => MessageCall::Recv(incoming.call).to_string(),
            Self::Other(operation) => operation.describe(),
        }
    }

    /// The buffers of the caller, with the names of their parameters.
    pub(in crate::comm) fn memory(&self) -> Vec<(&'static str, &[u8])> {
        match self {
            Self::Collective(op) => op.named_buffers(),
            Self::Send(outgoing) => vec![("sendbuff", outgoing.bytes)],
            Self::Recv(incoming) => vec![("recvbuff", &*incoming.into)],
            Self::Other(_) => Vec::new(),
        }
    }

    /// Fails if no CUDA stream can order the operation: the stream could report neither the count
    /// of a message nor an error of one call.
    pub(in crate::comm) fn check_can_be_staged(&self) -> Result<()> {
        match self {
            Self::Recv(incoming) if matches!(incoming.call.count, RecvCount::UpTo(_)) => {
                let what = "a receive with a capacity needs a recvbuff in host memory, and stream \
                            NULL or one of nexarStreamCreate; on a CUDA stream, probe for the \
                            count and use nexarRecvTag";
                Err(Error::Argument(what.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// The address range of the operator's scalar, if a stream must copy it to the host.
    pub(in crate::comm) fn scalar(&self) -> Option<Range<usize>> {
        let Self::Collective(op) = self else { return None };
        let (address, bytes) = op.scalar_of_stream()?;
        Some(address as usize..address as usize + bytes)
    }

    /// The properties on `rank` by which the way to wait is chosen.
    pub(in crate::comm) fn demand(&self, rank: Rank) -> Demand {
        Demand {
            message: self.message(),
            calls_program: self.calls_program(),
            leaves_work: self.leaves_work(rank),
        }
    }

    /// The other ranks of a message. `None` for other operations.
    pub(in crate::comm) fn message(&self) -> Option<Peers> {
        match self {
            Self::Send(outgoing) => Some(Peers::One(outgoing.to)),
            Self::Recv(incoming) => {
                Some(incoming.call.wanted.source.map_or(Peers::Any, Peers::One))
            }
            Self::Collective(_) => None,
            Self::Other(operation) => operation.message(),
        }
    }

    /// Whether the operation calls a function of the program.
    pub(in crate::comm) fn calls_program(&self) -> bool {
        match self {
            Self::Collective(op) => op.call().calls_program(),
            Self::Other(operation) => operation.calls_program(),
            Self::Send(_) | Self::Recv(_) => false,
        }
    }

    /// Whether `rank` may complete the operation with data still to be sent: the call is large, or
    /// the rank only sends and has more data than is sent at once.
    pub(in crate::comm) fn leaves_work(&self, rank: Rank) -> bool {
        let op = match self {
            Self::Collective(op) => op,
            Self::Send(outgoing) => return outgoing.bytes.len() > SMALL,
            Self::Recv(_) => return false,
            Self::Other(operation) => return operation.leaves_work(rank),
        };
        let is_root = op.call().root() == Some(rank);
        let only_sends = match op.call().collective() {
            Collective::Broadcast | Collective::Scatter => is_root,
            Collective::Reduce | Collective::Gather => !is_root,
            Collective::Scan | Collective::ExScan => rank == Rank(0),
            _ => false,
        };
        op.input_bytes() > if only_sends { SMALL } else { LARGE }
    }
}

/// Receives a message into host memory, and reports it.
pub async fn receive(ticket: &Ticket, mut incoming: Incoming<'_>) -> Result<()> {
    let mesh = &ticket.communicator.mesh;
    let report = incoming.report.take();
    match messaging::recv(mesh, ticket.posted(), incoming).await {
        Ok((source, envelope)) => {
            // The caller of a late operation has its error already.
            if let Some(report) = report.filter(|_| !ticket.has_failed()) {
                report(source, envelope);
            }
            Ok(())
        }
        Err(error) => Err(agreed(mesh, error).await),
    }
}
