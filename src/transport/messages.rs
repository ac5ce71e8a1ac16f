//! Messages of programs between two ranks: control messages, and payloads that follow them.
//!
//! Leaves the protocol to `messaging` and matching to the inbox. Invariant: control messages to one
//! rank arrive in its inbox in the order of first polls; a payload travels on its own, straight
//! into the buffer of its receive.

use crate::error::Result;
use crate::rank::Rank;

use super::{ControlMessage, Io, MessageQueues};

pub trait Messages: Send + Sync {
    /// Where control messages from the peers arrive. It learns of a failure, and that a peer has
    /// gone once nothing more comes from it.
    fn message_queues(&self) -> &MessageQueues;

    /// Connects to a peer from which something is awaited, so that its loss is noticed.
    fn connect(&self, peer: Rank);

    /// Hands a control message to a rank's inbox, this rank's own too. Dropping the future half-way
    /// leaves a broken message: fail the communicator.
    fn send_control(&self, to: Rank, message: ControlMessage) -> Io<'_, Result<()>>;

    /// Sends the payload of message `id`, which `to` has asked for.
    fn send_payload<'a>(&'a self, to: Rank, id: u64, bytes: &'a [u8]) -> Io<'a, Result<()>>;

    /// Receives the payload of message `id`, which `from` was asked for.
    fn recv_payload<'a>(&'a self, from: Rank, id: u64, into: &'a mut [u8]) -> Io<'a, Result<()>>;
}
