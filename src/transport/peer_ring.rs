//! What a link in the memory of a host offers to the messages between this rank and one peer.
//!
//! Leaves to `message_queues` what a message means. Invariant: the lock of `MessageQueues` is held
//! in every call, so messages are written and read by one thread at a time, in order.

use super::control_message::CONTROL_HEAD_BYTES;

/// Messages that a peer which keeps the protocol has written and this rank has not consumed.
pub const MOST_MESSAGES: usize = 128;

/// This rank's ends of the two rings between it and a peer.
pub trait PeerRing: Send {
    /// Sends a control message, and wakes the peer. False if there is no room for it.
    fn write(&mut self, head: &[u8; CONTROL_HEAD_BYTES], payload: &[u8]) -> bool;

    /// The head of the next message of the peer, if it has arrived.
    fn next(&self) -> Option<[u8; CONTROL_HEAD_BYTES]>;

    /// Consumes the next message, which has arrived. `payload` has the length that its head says.
    fn take(&mut self, payload: &mut [u8]);
}
