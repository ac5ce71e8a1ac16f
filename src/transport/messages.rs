//! Messages of programs between two ranks: control messages, and payloads that follow them.
//!
//! Leaves the protocol to `messaging` and matching to `MessageQueues`. Invariant: control messages
//! to one rank are delivered in the order of first polls; a rendezvous payload travels on its own,
//! straight into the buffer of its receive, or is read by the receiver where it is.

use std::sync::Arc;

use crate::error::Result;
use crate::message::{Incoming, Outgoing};
use crate::rank::Rank;

use super::{ControlMessage, Location, MessageQueues, SendIo};

pub trait Messages: Send + Sync {
    /// The queues to which control messages from the peers are delivered. The mesh reports to them
    /// a failure, and a lost peer once all that it had sent is delivered.
    fn message_queues(&self) -> &Arc<MessageQueues>;

    /// Connects to a peer from which something is awaited, so that its loss is noticed.
    fn connect(&self, peer: Rank);

    /// Sends a control message to a rank, which may be this one. Not cancel safe: dropping the
    /// future half-way leaves a broken message, after which the communicator must fail.
    fn send_control(&self, to: Rank, message: ControlMessage) -> SendIo<'_, Result<()>>;

    /// Whether messages of this rank and `peer` travel through shared memory. Then a thread that
    /// waits for them calls `progress`.
    fn are_in_memory(&self, _peer: Rank) -> bool {
        false
    }

    /// Delivers the control messages that have arrived in shared memory.
    fn progress(&self) {}

    /// Sends a short message, if that takes no waiting.
    fn send_at_once(&self, _outgoing: &Outgoing<'_>) -> bool {
        false
    }

    /// Receives and reports a short message that arrives within the spin limit, if it is the first
    /// that the receive names, and the receive accepts it.
    fn receive_at_once(&self, _incoming: &mut Incoming<'_>) -> bool {
        false
    }

    /// Where `to` can read these bytes itself. `None`: it cannot.
    fn publish_payload(&self, _to: Rank, _bytes: &[u8]) -> Option<Location> {
        None
    }

    /// This rank no longer waits until published bytes were read.
    fn give_up(&self) {}

    /// Reads the payload that `from` has published. False if it cannot be read.
    fn read_payload(&self, _from: Rank, _location: Location, _into: &mut [u8]) -> bool {
        false
    }

    /// Sends the payload of message `id`, for which `to` has sent a CTS.
    fn send_payload<'a>(&'a self, to: Rank, id: u64, bytes: &'a [u8]) -> SendIo<'a, Result<()>>;

    /// Receives the payload of message `id`, for which `from` was sent a CTS.
    fn recv_payload<'a>(
        &'a self,
        from: Rank,
        id: u64,
        into: &'a mut [u8],
    ) -> SendIo<'a, Result<()>>;
}
