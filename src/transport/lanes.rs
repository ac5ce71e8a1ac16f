//! Ordered lanes between two ranks: the messages of collectives.
//!
//! Leaves to the implementation which link a message takes. Invariants that every implementation
//! keeps:
//! - messages between two ranks in one lane arrive in the order sent, whole, once;
//! - a message's header is compared with the one that the receiver expects before a byte lands;
//! - every wait ends when the communicator fails, with the same first fault on all ranks; an
//!   operation that need not wait, because all it needs has been sent, still completes;
//! - memory for messages in flight is bounded: a sender waits for its receiver.

use crate::error::Result;
use crate::rank::Rank;

use super::{Header, Io};

/// One of the ordered channels between each pair of ranks. Operations in different lanes never
/// wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(pub usize);

/// How many lanes every pair of ranks has.
pub const LANES: usize = 4;

/// Writes a part of a message to its destination: copies it, or reduces it without an intermediate
/// copy. A part holds whole elements if the call reduces.
pub type Land<'a> = dyn FnMut(&mut [u8], &[u8]) + 'a;

pub trait Lanes: Send + Sync {
    /// Sends one message. Returns when the link has accepted all bytes; the peer may not have
    /// received them yet. Not cancel safe: dropping the future half-way leaves a broken message,
    /// after which the communicator must fail.
    fn send<'a>(
        &'a self,
        lane: Lane,
        to: Rank,
        header: &'a Header,
        bytes: &'a [u8],
    ) -> Io<'a, Result<()>>;

    /// Receives one message into `into`, whose length it must have. `land(destination, part)` is
    /// called for each part as it arrives.
    fn recv<'a>(
        &'a self,
        lane: Lane,
        from: Rank,
        header: &'a Header,
        into: &'a mut [u8],
        land: &'a mut Land<'_>,
    ) -> Io<'a, Result<()>>;
}
