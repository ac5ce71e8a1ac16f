//! The memory that ranks of one process publish for each other, by epochs.
//!
//! Leaves to the mesh which failure ends a wait, and to `Slot` the contents. Invariants: a thread
//! that changes what others wait for wakes them after the change; a slot is written only after all
//! ranks have released its previous epoch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::rank::Rank;

use super::super::host::EPOCHS;
use super::super::queue::Reason;
use super::super::slot::{InPlace, Locked, Slot};
use super::super::{EncodedHeader, Header, LANES, Lane};

pub(super) struct ThreadMemory {
    /// By rank.
    slots: Vec<[LaneSlots; LANES]>,
    gone: Vec<OnceLock<Reason>>,
    waiting: Mutex<Vec<Waker>>,
}

#[derive(Default)]
struct LaneSlots {
    slots: [Slot; EPOCHS],
    /// How many epochs its rank has released.
    released: AtomicU64,
}

impl ThreadMemory {
    pub fn new(size: usize) -> Self {
        Self {
            slots: (0..size).map(|_| Default::default()).collect(),
            gone: (0..size).map(|_| OnceLock::new()).collect(),
            waiting: Mutex::default(),
        }
    }

    /// The first of `others` that has not released this many epochs.
    pub fn slowest(
        &self,
        lane: Lane,
        mut others: impl Iterator<Item = Rank>,
        needed: u64,
    ) -> Option<Rank> {
        let released = |other: &Rank| self.slots[other.0][lane.0].released.load(Ordering::Acquire);
        others.find(|other| released(other) < needed)
    }

    /// Ready when all `others` have released this many epochs, or one never will.
    pub fn poll_released(
        &self,
        context: &Context<'_>,
        lane: Lane,
        others: impl Iterator<Item = Rank> + Clone,
        needed: u64,
        failed: impl Fn() -> bool,
    ) -> Poll<Result<(), (Rank, Option<Reason>)>> {
        self.poll(context, || match self.slowest(lane, others.clone(), needed) {
            None => Poll::Ready(Ok(())),
            Some(slow) if failed() => Poll::Ready(Err((slow, None))),
            Some(slow) => match self.gone[slow.0].get() {
                Some(reason) => Poll::Ready(Err((slow, Some(*reason)))),
                None => Poll::Pending,
            },
        })
    }

    pub fn publish(
        &self,
        lane: Lane,
        rank: Rank,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: impl FnOnce(&mut [u8]),
    ) {
        self.slot(lane, rank, epoch).publish(epoch + 1, encoded, fill);
        self.wake();
    }

    pub fn publish_in_place<'a>(
        &'a self,
        lane: Lane,
        rank: Rank,
        epoch: u64,
        header: &Header,
        bytes: &'a [u8],
    ) -> InPlace<'a> {
        let in_place = self.slot(lane, rank, epoch).publish_in_place(epoch + 1, header, bytes);
        self.wake();
        in_place
    }

    /// What a rank has published in an epoch, if it has.
    pub fn view(&self, lane: Lane, at: Rank, epoch: u64) -> Option<Locked<'_>> {
        self.slot(lane, at, epoch).view(epoch + 1)
    }

    /// Ready when a rank has published in an epoch, or never will.
    pub fn poll_published(
        &self,
        context: &Context<'_>,
        lane: Lane,
        at: Rank,
        epoch: u64,
        failed: impl Fn() -> bool,
    ) -> Poll<Result<(), Option<Reason>>> {
        self.poll(context, || {
            // Read before the slot, so that what was published before a failure is still viewed.
            let (failed, gone) = (failed(), self.gone[at.0].get());
            match self.view(lane, at, epoch) {
                Some(_) => Poll::Ready(Ok(())),
                None if failed => Poll::Ready(Err(None)),
                None => gone.map_or(Poll::Pending, |why| Poll::Ready(Err(Some(*why)))),
            }
        })
    }

    /// How many epochs all ranks must have released before a rank publishes in this one: its slot
    /// has the contents of an earlier one.
    pub fn needed(&self, lane: Lane, rank: Rank, epoch: u64) -> u64 {
        self.slot(lane, rank, epoch).stamp()
    }

    fn slot(&self, lane: Lane, rank: Rank, epoch: u64) -> &Slot {
        &self.slots[rank.0][lane.0].slots[epoch as usize % EPOCHS]
    }

    pub fn release(&self, lane: Lane, rank: Rank, epoch: u64) {
        self.slots[rank.0][lane.0].released.store(epoch + 1, Ordering::Release);
        self.wake();
    }

    /// A rank publishes nothing more.
    pub fn rank_gone(&self, rank: Rank, reason: Reason) {
        let _ = self.gone[rank.0].set(reason);
        self.wake();
    }

    /// Has all waiting threads poll again.
    pub fn wake(&self) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Calls `check`, and calls it again after the waker is registered: a change is either seen or
    /// finds the waker.
    fn poll<T>(&self, context: &Context<'_>, check: impl Fn() -> Poll<T>) -> Poll<T> {
        if let Poll::Ready(found) = check() {
            return Poll::Ready(found);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(context.waker().clone());
        drop(waiting);
        check()
    }
}
