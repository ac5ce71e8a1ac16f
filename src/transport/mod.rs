//! Bytes to a rank, or say which peer failed.
//!
//! A `Mesh` joins the ranks of one communicator; a collective knows nothing of it but this
//! trait. Invariants every mesh keeps:
//! - messages between two ranks in one lane arrive in the order sent, whole, once;
//! - a message's header is compared with the one the receiver expects before a byte lands;
//! - every wait ends when the mesh fails, with the same first fault on all ranks; an operation
//!   that need not wait, because all it needs has been sent, still completes;
//! - memory for messages on their way is bounded: a sender waits for its receiver.
//!
//! Ranks of one host also see each other's memory: in rounds, which they count alike, each may lay out
//! bytes that all others look at.
//!
//! Messages of a collective go in lanes. Messages that programs send to one rank are told of in
//! notes, which arrive in the receiving rank's inbox in the order sent; the bytes of long ones, their
//! bodies, follow on ways of their own.

mod any;
mod board;
mod header;
mod hosts;
mod inbox;
pub mod mem;
mod note;
pub mod quic;
pub mod shm;
pub mod wire;

use std::future::Future;
use std::ops::Deref;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Place, Rank};

pub use any::AnyMesh;
pub use header::{Header, Label, Past};
pub use hosts::Hosts;
pub use inbox::{CREDIT, Inbox, OVERHEAD, Permit};
pub use note::{EAGER, Form, NOTE_HEAD_BYTES, Note};
pub use shm::prepare as prepare_shared_memory;

/// What a peer that left in good order has done.
const HAS_LEFT: &str = "has left the communicator";

/// One of the ordered channels between each pair of ranks. Operations in different lanes never
/// wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(pub usize);

/// Who has not come to a call.
pub struct Missing {
    pub absent: Vec<Absent>,
    pub unknown: Vec<Rank>,
}

/// A rank that has not come to a call, and the last call that it has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent {
    pub rank: Rank,
    pub last: Option<u64>,
}

/// A part of a mesh's ranks that becomes a mesh of its own.
#[derive(Clone, Debug)]
pub struct Split {
    /// The number of the call that split it.
    pub seq: u64,
    /// What tells its parts apart.
    pub color: u32,
    /// Of this rank's part, in their new order.
    pub members: Vec<Rank>,
}

/// How many lanes every mesh has.
pub const LANES: usize = 4;

/// How many rounds a rank may be ahead of the slowest of its host, if what it lays out needs a slot: at most.
pub const ROUNDS: usize = 12;
/// The same in shared memory, of more than two ranks.
const ROUNDS_OF_MANY: usize = 8;

/// How many slots a lane has in shared memory. What one of two ranks lays out has left its own cache by the time
/// the other looks at it, from which it would be read more slowly; the slots of more ranks must all fit the cache
/// that they share.
pub fn slots(ranks: usize) -> usize {
    if ranks <= 2 { ROUNDS } else { ROUNDS_OF_MANY }
}

/// Most bytes that are laid out in a round: they are looked at while they are still in the cache. A
/// multiple of every element's size.
pub const SLOT: usize = 64 << 10;

/// Where the processors are that read what this rank writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// They share a cache with this one's.
    Near,
    /// What they read comes from memory.
    Far,
}

pub trait Mesh: Sized {
    fn place(&self) -> Place;

    /// Sends one message. Returns when the mesh has taken all bytes over; the peer may not have
    /// received them yet. Dropping the future half-way leaves a broken message: fail the mesh.
    fn send(
        &self,
        lane: Lane,
        to: Rank,
        header: &Header,
        bytes: &[u8],
    ) -> impl Future<Output = Result<()>>;

    /// Receives one message into `into`, whose length it must have. As parts of it arrive, each
    /// a whole number of elements of any type, `land(into, part)` puts them there: copying,
    /// or folding without an intermediate copy.
    fn recv(
        &self,
        lane: Lane,
        from: Rank,
        header: &Header,
        into: &mut [u8],
        land: impl FnMut(&mut [u8], &[u8]),
    ) -> impl Future<Output = Result<()>>;

    /// Bytes that a rank of this host has laid out. Not to be held while something is awaited: a rank of the
    /// same thread may have to wait for its end.
    type Sight<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    /// Who shares memory with whom.
    fn hosts(&self) -> &Hosts;

    /// The first of `count` rounds of a lane, which all ranks of this host begin.
    fn begin_rounds(&self, lane: Lane, count: u64) -> u64;

    /// Lays out bytes in a round for the ranks of this host, as many as the label says: `fill` writes
    /// them, for such readers. Waits while a rank is too far behind.
    fn lay(
        &self,
        lane: Lane,
        round: u64,
        label: &Label,
        fill: impl FnOnce(&mut [u8], Readers),
    ) -> impl Future<Output = Result<()>>;

    /// Bytes that others see where they are, until it is dropped: which waits, for a moment, for those that
    /// look at them. It must not be leaked.
    type Shown<'a>
    where
        Self: 'a;

    /// As `lay`, with bytes that stay where they are. To be dropped when all have `passed` the round, or when
    /// the call has failed. `None`, and nothing is done, if others cannot see them there.
    fn show<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        label: &Label,
        bytes: &'a [u8],
    ) -> impl Future<Output = Result<Option<Self::Shown<'a>>>>;

    /// What a rank of this host, maybe this one, has laid out in a round; not to be looked at once the
    /// round is passed.
    fn look<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        at: Rank,
        label: &Label,
    ) -> impl Future<Output = Result<Self::Sight<'a>>>;

    /// Waits until all other ranks of this host have passed a round.
    fn passed(&self, lane: Lane, round: u64) -> impl Future<Output = Result<()>>;

    /// Tells the ranks of this host where bytes of this rank lie: they `fetch` of them what they want, and this
    /// rank does not write them until all have `passed` the round. False, and nothing is done, if the system
    /// reads such memory for nobody. Only where `Hosts::are_open`.
    fn expose(
        &self,
        lane: Lane,
        round: u64,
        label: &Label,
        bytes: &[u8],
    ) -> impl Future<Output = Result<bool>>;

    /// Copies what a rank has exposed from `offset` on.
    fn fetch(
        &self,
        lane: Lane,
        round: u64,
        from: Rank,
        label: &Label,
        offset: usize,
        into: &mut [u8],
    ) -> impl Future<Output = Result<()>>;

    /// Fails if a rank has given up a call while the one in this lane saw its memory: then what was seen is not
    /// sure to be what was shown. Asked before anything that follows from it leaves this rank.
    fn confirm(&self, lane: Lane) -> impl Future<Output = Result<()>>;

    /// This rank looks at nothing more of this round and those before it.
    fn pass(&self, lane: Lane, round: u64);

    /// Where notes from the peers arrive. It learns of a failure, and that a peer has gone once
    /// nothing more comes from it.
    fn inbox(&self) -> &Inbox;

    /// Connects to a peer from which something is awaited, so that its loss is noticed.
    fn connect(&self, peer: Rank);

    /// Hands a note to a rank's inbox, this rank's own too. Notes to one rank arrive in the order of
    /// first polls. Dropping the future half-way leaves a broken note: fail the mesh.
    fn send_note(&self, to: Rank, note: Note) -> impl Future<Output = Result<()>>;

    /// Sends the bytes of message `id`, which `to` has asked for.
    fn send_body(&self, to: Rank, id: u64, bytes: &[u8]) -> impl Future<Output = Result<()>>;

    /// Receives the bytes of message `id`, which `from` was asked for.
    fn recv_body(&self, from: Rank, id: u64, into: &mut [u8]) -> impl Future<Output = Result<()>>;

    /// A mesh of this rank's part. Every member asks for it.
    fn split(&self, split: Split) -> impl Future<Output = Result<Self>>;

    /// This rank does not know who is in its part, because call number `seq` has failed here: whoever
    /// has made the mesh of that color is told, so that it does not wait for this rank.
    fn renounce(&self, seq: u64, color: u32, fault: Error);

    /// Tells all ranks which call this rank makes as its number `seq`, so that ranks which never
    /// exchange a message in it still learn that they disagree.
    fn announce(&self, seq: u64, call: Call);

    /// This rank has found that ranks disagree. Fails the communicator on all of them, with the same
    /// words, which it returns: others may have found other ones.
    fn agree(&self, disagreement: Error) -> impl Future<Output = Error>;

    /// The fault; where ranks disagree, when there are words for it.
    fn settled_fault(&self) -> impl Future<Output = Option<Error>>;

    /// Ranks that have not announced call number `seq` yet, and those of which nothing is known.
    fn missing(&self, seq: u64) -> Missing;

    /// Fails the communicator on all its ranks, and returns the fault that was first.
    fn fail(&self, fault: Error) -> Error;

    fn fault(&self) -> Option<Error>;

    /// This rank sends and receives no more. What it has sent still arrives.
    fn leave(&self);
}
