//! Bytes to a rank, or an error that says which peer failed.
//!
//! A `Mesh` joins the ranks of one communicator. It is composed of four contracts: `Lanes` (ordered
//! messages of collectives), `HostMemory` (what ranks of one host publish for each other),
//! `Messages` (what programs send to one rank) and `Membership` (calls, faults, splits, leaving).
//! `mem` implements them for threads; `process` composes them of `quic` between processes and `shm`
//! between those of one host. A further kind of link is added there and touches no collective.

mod call_table;
mod control_message;
mod header;
mod host;
mod hosts;
#[cfg(feature = "testing")]
pub mod injection;
pub mod key;
mod lanes;
pub mod mem;
mod membership;
mod mesh;
mod message_queues;
mod messages;
mod payloads;
mod peer_messages;
mod peer_ring;
pub mod process;
mod queue;
pub mod quic;
mod recent_calls;
#[cfg(not(feature = "testing"))]
mod shm;
#[cfg(feature = "testing")]
pub mod shm;
mod slot;
mod wait;
pub mod wire;

use std::future::Future;
use std::pin::Pin;

pub use control_message::{CONTROL_HEAD_BYTES, ControlMessage, EAGER, Location, Protocol};
pub use header::{CallHistory, EncodedHeader, HEADER_BYTES, Header, HeaderWords};
pub use host::{Attempt, EPOCHS, Published, Readers, SLOT, View, slots};
pub use hosts::Hosts;
pub use lanes::{LANES, Land, Lane};
pub use membership::{Absent, Missing, Opened, Split};
pub use mesh::Mesh;
#[cfg(feature = "testing")]
pub use message_queues::OVERHEAD;
pub use message_queues::{MatchedMessage, MessageQueues, Permit, Receive, SendTurn};
pub use peer_messages::Answer;
#[cfg(feature = "testing")]
pub use peer_messages::CREDIT;
pub use peer_ring::{MOST_MESSAGES, PeerRing};
pub use quic::{is_delivering_faults, leave_all};
pub use shm::{
    FastEpoch, FastEpochs, INLINE_BYTES, Inline, Started, prepare as prepare_shared_memory,
};
pub use wait::{Demand, Peers, Waiting};

/// The reason that is given for a peer which has left in good order.
const HAS_LEFT: &str = "has left the communicator";

/// An operation that waits for peers. Boxed, so that the contracts are trait objects: a link is
/// chosen when a mesh is created. Polled by the thread that waits for it, which may be another one
/// than the thread that began it.
pub type Io<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// As `Io`, where different threads may poll it, one at a time.
pub type SendIo<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
