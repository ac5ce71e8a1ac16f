//! Memory of one host: bytes that a rank publishes once and the other ranks of its host view.
//!
//! The ranks of a host count *epochs* in each lane, all alike. In an epoch a rank may publish
//! bytes, view what the others have published, and then release the epoch. Implemented for threads
//! by `mem` and for processes by `process`. No operation waits by itself: if it cannot be done yet,
//! it returns a future to wait for. Invariants:
//! - what was published stays until every rank of the host has released its epoch: that is the
//!   back-pressure;
//! - lengths are those that the viewing rank expects, never the publisher's.

use std::ops::Deref;

use crate::error::Result;
use crate::rank::Rank;

use super::slot::{InPlace, Locked};
use super::{EncodedHeader, Io, Lane};

/// The most epochs by which a rank may be ahead of the slowest rank of its host, if what it
/// publishes needs a slot.
pub const EPOCHS: usize = 12;
/// The same in shared memory between more than two ranks.
const EPOCHS_OF_MANY: usize = 8;

/// Slots of a lane in shared memory. Half as many parts are published ahead. Between two ranks, a
/// part has then left its writer's own cache for the shared one by the time it is viewed; a read
/// from there is three times as fast. The slots of more ranks must all fit the shared cache.
pub fn slots(ranks: usize) -> usize {
    if ranks <= 2 { EPOCHS } else { EPOCHS_OF_MANY }
}

/// Most bytes that are published in an epoch: they are viewed while they are still in the cache. A
/// multiple of every built-in type's size.
pub const SLOT: usize = 64 << 10;

/// Where the processors are that read what this rank writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// They share a cache with this rank's processor.
    Near,
    /// They share none, so they read from memory.
    Far,
}

/// The outcome of an operation on the memory of a host. The common case allocates nothing.
pub enum Attempt<'a, T> {
    Done(T),
    /// The operation cannot be done yet. The caller repeats it once this has completed.
    Wait(Io<'a, Result<()>>),
}

/// Bytes that a rank of this host has published. Must not be held across an `await`: the publisher
/// may be polled on the same thread and wait until the view is dropped.
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

/// Guards bytes that others view in place. Dropping it waits, for a moment, for the ranks that view
/// them. It must not be leaked.
pub enum Published<'a> {
    /// Nothing to withdraw: readers have mapped the memory themselves.
    Shared,
    Locked(#[allow(dead_code, reason = "it is held for its drop")] InPlace<'a>),
}

pub trait HostMemory: Send + Sync {
    /// Begins `count` epochs of a lane, as all ranks of this host do, and returns the first.
    fn begin_epochs(&self, lane: Lane, count: u64) -> u64;

    /// Publishes as many bytes as the header says. `fill` writes them, in the way that suits the
    /// readers.
    fn publish(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: &mut dyn FnMut(&mut [u8], Readers),
    ) -> Result<Attempt<'_, ()>>;

    /// As `publish`, without a copy. The caller drops the guard when the epoch is `released` or the
    /// call has failed. `None`, and nothing is published, if others cannot view these bytes in
    /// place.
    fn publish_in_place<'a>(
        &'a self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &'a [u8],
    ) -> Result<Attempt<'a, Option<Published<'a>>>>;

    /// Publishes the address of bytes of this rank. Others `read_remote` what they need of them,
    /// and this rank does not write them until the epoch is `released`. False, and nothing is
    /// published, if the system cannot read such memory for other processes. Only where
    /// `Hosts::are_open`.
    fn publish_address(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &[u8],
    ) -> Result<Attempt<'_, bool>>;

    /// The bytes that a rank of this host, maybe this one, has published in an epoch. They must not
    /// be viewed once this rank has released the epoch.
    fn view(
        &self,
        lane: Lane,
        epoch: u64,
        at: Rank,
        encoded: &EncodedHeader,
    ) -> Result<Attempt<'_, View<'_>>>;

    /// Copies bytes whose address a rank has published, beginning at `offset` of them.
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

    /// Completes when all other ranks of this host have released an epoch.
    fn released(&self, lane: Lane, epoch: u64) -> Result<Attempt<'_, ()>>;

    /// Fails if a rank has given up a call while the call in this lane viewed its memory: the
    /// viewed bytes may then differ from the published ones. Must be called before any result of
    /// the view leaves this rank.
    fn confirm(&self, lane: Lane) -> Attempt<'_, ()>;
}
