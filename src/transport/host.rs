//! Memory of one host: bytes that a rank publishes once and the other ranks of its host view.
//!
//! The ranks of a host count *epochs* in each lane, all alike. In an epoch a rank may publish
//! bytes, view what the others have published, and then release the epoch. Implemented for threads
//! by `mem` and for processes by `process`. No operation waits by itself: one that cannot be done
//! yet returns what to wait for. Invariants:
//! - what was published stays until every rank of the host has released its epoch: that is the
//!   back-pressure;
//! - lengths are those that the viewing rank expects, never the publisher's.

use std::ops::Deref;

use crate::error::Result;
use crate::rank::Rank;

use super::slot::{InPlace, Locked};
use super::{EncodedHeader, Io, Lane};

/// Epochs by which a rank may be ahead of the slowest of its host, if what it publishes needs a
/// slot: at most.
pub const EPOCHS: usize = 12;
/// The same in shared memory, of more than two ranks.
const EPOCHS_OF_MANY: usize = 8;

/// Slots that a lane has in shared memory. What one of two ranks publishes has left its own cache
/// by the time the other views it, from which it would be read more slowly; the slots of more ranks
/// must all fit the cache that they share.
pub fn slots(ranks: usize) -> usize {
    if ranks <= 2 { EPOCHS } else { EPOCHS_OF_MANY }
}

/// Most bytes that are published in an epoch: they are viewed while they are still in the cache. A
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

/// What came of an operation on the memory of a host.
pub enum Attempt<'a, T> {
    Done(T),
    /// It cannot be done yet. Once this has completed the operation is tried again.
    Wait(Io<'a, Result<()>>),
}

/// Bytes that a rank of this host has published. Not to be held while something is awaited: a rank
/// of the same thread may have to wait for its end.
pub enum View<'a> {
    Shared(&'a [u8]),
    Locked(Locked<'a>),
}

impl Deref for View<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Locked(bytes) => bytes,
        }
    }
}

/// Bytes that others view where they are, until this is dropped: which waits, for a moment, for the
/// ranks that view them. It must not be leaked.
pub enum Published<'a> {
    /// Nothing is taken back: readers have mapped the memory themselves.
    Shared,
    Locked(#[allow(dead_code, reason = "it is held for its drop")] InPlace<'a>),
}

pub trait HostMemory: Send + Sync {
    /// The first of `count` epochs of a lane, which all ranks of this host begin.
    fn begin_epochs(&self, lane: Lane, count: u64) -> u64;

    /// Publishes as many bytes as the label says: `fill` writes them, for such readers.
    fn publish(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: &mut dyn FnMut(&mut [u8], Readers),
    ) -> Result<Attempt<'_, ()>>;

    /// As `publish`, with bytes that stay where they are. The guard is to be dropped when the epoch
    /// is `released`, or when the call has failed. `None`, and nothing is done, if others cannot
    /// view the bytes there.
    fn publish_in_place<'a>(
        &'a self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &'a [u8],
    ) -> Result<Attempt<'a, Option<Published<'a>>>>;

    /// Publishes where bytes of this rank lie: others `read_remote` what they want of them, and
    /// this rank does not write them until the epoch is `released`. False, and nothing is done, if
    /// the system reads such memory for nobody. Only where `Hosts::are_open`.
    fn publish_address(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &[u8],
    ) -> Result<Attempt<'_, bool>>;

    /// What a rank of this host, maybe this one, has published in an epoch; not to be viewed once
    /// the epoch is released.
    fn view(
        &self,
        lane: Lane,
        epoch: u64,
        at: Rank,
        encoded: &EncodedHeader,
    ) -> Result<Attempt<'_, View<'_>>>;

    /// Copies the bytes from `offset` on that a rank has published by their address.
    fn read_remote(
        &self,
        lane: Lane,
        epoch: u64,
        from: Rank,
        encoded: &EncodedHeader,
        offset: usize,
        into: &mut [u8],
    ) -> Result<Attempt<'_, ()>>;

    /// This rank views nothing more of this epoch and those before it.
    fn release(&self, lane: Lane, epoch: u64);

    /// Done when all other ranks of this host have released an epoch.
    fn released(&self, lane: Lane, epoch: u64) -> Result<Attempt<'_, ()>>;

    /// Fails if a rank has given up a call while the one in this lane viewed its memory: then what
    /// was viewed is not sure to be what was published. Asked before anything that follows from it
    /// leaves this rank.
    fn confirm(&self, lane: Lane) -> Attempt<'_, ()>;
}
