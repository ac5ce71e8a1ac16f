//! A context as its links know it: what they ask it, and what they report to it.
//!
//! Leaves to `context` what follows from a report. Peers are ranks of the roster here. Invariant:
//! links keep no context alive, and know nothing else of it.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::error::Error;
use crate::op::Call;
use crate::rank::Rank;
use crate::transport::ControlMessage;

use super::context_id::ContextId;

/// A communicator that shares links with others.
pub(super) trait LinkedContext: Send + Sync {
    fn id(&self) -> ContextId;

    /// The members by their ranks in the roster.
    fn members(&self) -> &[Rank];

    fn has_member(&self, peer: Rank) -> bool {
        self.members().contains(&peer)
    }

    fn fault(&self) -> Option<&Error>;

    /// The latest calls of this rank, newest first. Must be called inside the runtime.
    fn latest_calls(self: Arc<Self>) -> Vec<(u64, Call)>;

    /// Whether this rank has asked a peer for the payload of message `id`.
    fn expects_payload(&self, peer: Rank, id: u64) -> bool;

    /// Waits until this rank has left the context.
    fn left(&self) -> BoxFuture<'_, ()>;

    /// A peer has entered call number `seq`. Must be called inside the runtime.
    fn peer_entered(self: Arc<Self>, peer: Rank, seq: u64, call: Call);

    /// A peer reports that ranks disagree. Must be called inside the runtime.
    fn disagreement_reported(self: Arc<Self>, peer: Rank, disagreement: Error);

    /// A peer reports that the context has failed.
    fn fault_reported(&self, peer: Rank, fault: Error);

    /// The context has failed, as was reported before this rank created it.
    fn fail(&self, fault: Error);

    /// A control message of a peer has arrived. The error says how it breaks the protocol.
    fn deliver(&self, peer: Rank, message: ControlMessage) -> Result<(), String>;

    /// A peer waits until what it has written to shared memory is delivered.
    fn deliver_in_memory(&self, peer: Rank);

    /// The peer is gone, and all its control messages have been delivered. `how`: the reason.
    fn no_more_messages(&self, peer: Rank, how: &str);

    /// A peer has broken the protocol.
    fn peer_violated(&self, peer: Rank, what: &str);

    /// The connection to a peer that has not left the context is lost, so the context fails. If the
    /// peer has published a fault, that is the reason.
    fn peer_lost(&self, peer: Rank, how: &str);

    /// A peer is gone, which alone is no failure. The context fails if the peer has published a
    /// fault.
    fn peer_gone(&self, peer: Rank);
}
