//! Messages between two ranks as operations of a communicator.
//!
//! Leaves to `messaging` what is sent and to `Batch` who waits. Messages have no numbers and use no
//! lane: a thread that waits for one holds up no collective and no other message. Their order is
//! fixed when they are first polled.

use std::sync::Arc;

use tracing::trace;

use crate::error::{Doing, Result};
use crate::message::{Incoming, MessageCall, Outgoing};
use crate::messaging;
use crate::op::Op;
use crate::transport::Past;

use super::ticket::Ticket;
use super::{Communicator, SMALL};

/// What an operation does.
pub enum Work<'a> {
    Collective(Op<'a>),
    Send(Outgoing<'a>),
    Recv(Incoming<'a>),
}

impl<'a> From<Op<'a>> for Work<'a> {
    fn from(op: Op<'a>) -> Self {
        Self::Collective(op)
    }
}

impl Communicator {
    /// Sends a message; polled by whoever awaits it, without a deadline. Must be polled to its end.
    pub async fn send_async(self: &Arc<Self>, outgoing: Outgoing<'_>) -> Result<()> {
        let ticket = self.begin_message(outgoing.call())?;
        ticket.end(messaging::send(&self.mesh, outgoing).await)
    }

    /// Receives a message; polled by whoever awaits it, without a deadline. Must be polled to its end.
    pub async fn recv_async(self: &Arc<Self>, incoming: Incoming<'_>) -> Result<()> {
        let ticket = self.begin_message(incoming.call())?;
        ticket.end(messaging::recv(&self.mesh, incoming).await.map(drop))
    }

    /// Notes that a message is asked for, unless the communicator takes no more.
    pub(super) fn begin_message(self: &Arc<Self>, call: MessageCall) -> Result<Ticket> {
        let mut state = self.lock();
        self.check_open(&state, &call)?;
        state.running += 1;
        let behind = state.stream_batches;
        drop(state);
        let (name, rank) = (&self.name, self.place().rank);
        trace!(rank = rank.0 as u64, "communicator {name}: {rank}, {call}");
        Ok(Ticket::new(Arc::clone(self), Doing::Message(call), Past::default(), behind))
    }

    /// Whether a message may leave data to be sent when it ends.
    pub(super) fn message_leaves_work(outgoing: &Outgoing<'_>) -> bool {
        outgoing.bytes.len() > SMALL
    }
}
