//! Messages of programs between two ranks: control messages, and payloads that follow them.
//!
//! Leaves the protocol to `messaging` and matching to `MessageQueues`. Invariant: control messages
//! to one rank are delivered in the order of first polls; a rendezvous payload travels on its own,
//! straight into the buffer of its receive.

use crate::error::Result;
use crate::rank::Rank;

use super::{ControlMessage, Io, MessageQueues};

pub trait Messages: Send + Sync {
    /// The queues to which control messages from the peers are delivered. The mesh reports to them
    /// a failure, and a lost peer once all that it had sent is delivered.
    fn message_queues(&self) -> &MessageQueues;

    /// Connects to a peer from which something is awaited, so that its loss is noticed.
    fn connect(&self, peer: Rank);

    /// Sends a control message to a rank, which may be this one. Not cancel safe: dropping the
    /// future half-way leaves a broken message, after which the communicator must fail.
    fn send_control(&self, to: Rank, message: ControlMessage) -> Io<'_, Result<()>>;

    /// Sends the payload of message `id`, for which `to` has sent a CTS.
    fn send_payload<'a>(&'a self, to: Rank, id: u64, bytes: &'a [u8]) -> Io<'a, Result<()>>;

    /// Receives the payload of message `id`, for which `from` was sent a CTS.
    fn recv_payload<'a>(&'a self, from: Rank, id: u64, into: &'a mut [u8]) -> Io<'a, Result<()>>;
}
