//! Bytes to a rank, or an error that says which peer failed.
//!
//! A `Mesh` joins the ranks of one communicator. It is composed of four contracts: `Lanes` (ordered
//! messages of collectives), `HostMemory` (what ranks of one host publish for each other), `Messages`
//! (what programs send to one rank) and `Membership` (calls, faults, splits, leaving). `mem` implements
//! them for threads; `process` composes them of `quic` between processes and `shm` between those of
//! one host. A further kind of link is added there and touches no collective.

mod board;
mod header;
mod host;
mod hosts;
mod inbox;
#[cfg(feature = "testing")]
pub mod injection;
pub mod key;
mod lanes;
pub mod mem;
mod membership;
mod mesh;
mod messages;
mod note;
mod payloads;
pub mod process;
mod queue;
pub mod quic;
mod recent_calls;
mod shm;
mod slot;
mod wait;
pub mod wire;

use std::future::Future;
use std::pin::Pin;

pub use header::{HEADER_BYTES, Header, HeaderWords, Label, Past};
pub use host::{Attempt, EPOCHS, Published, Readers, SLOT, View, slots};
pub use hosts::Hosts;
#[cfg(feature = "testing")]
pub use inbox::{CREDIT, OVERHEAD};
pub use inbox::{Inbox, Permit};
pub use lanes::{LANES, Land, Lane};
pub use membership::{Absent, Missing, Opened, Split};
pub use mesh::Mesh;
#[cfg(feature = "testing")]
pub use note::EAGER;
pub use note::{Form, NOTE_HEAD_BYTES, Note};
pub use quic::{is_delivering_faults, leave_all};
pub use shm::{FEW, FastEpoch, Few, Started, prepare as prepare_shared_memory};
pub use wait::{Demand, Waiting};

/// What a peer that left in good order has done.
const HAS_LEFT: &str = "has left the communicator";

/// An operation that waits for peers. Boxed, so that contracts are trait objects: a link is chosen
/// when a mesh is made. Polled by the thread that waits for it, which need not be the one it began
/// on.
pub type Io<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
