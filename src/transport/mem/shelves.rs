//! What ranks of a process lay out for each other, in rounds.
//!
//! Leaves to the mesh what has failed, and to `Slot` what is there. Invariants: who changes what others wait for wakes them after the
//! change; a slot is written when all ranks have passed what lay there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::rank::Rank;
use crate::transport::{Header, LANES, Lane, ROUNDS};

use super::queue::Reason;
use super::slot::{Found, Shown, Sight, Slot};

pub(super) struct Shelves {
    /// By rank.
    shelves: Vec<[Shelf; LANES]>,
    gone: Vec<OnceLock<Reason>>,
    waiting: Mutex<Vec<Waker>>,
}

#[derive(Default)]
struct Shelf {
    slots: [Slot; ROUNDS],
    /// How many rounds its rank has passed.
    passed: AtomicU64,
}

impl Shelves {
    pub fn new(size: usize) -> Self {
        Self {
            shelves: (0..size).map(|_| Default::default()).collect(),
            gone: (0..size).map(|_| OnceLock::new()).collect(),
            waiting: Mutex::default(),
        }
    }

    /// Ready when all `others` have passed so many rounds.
    pub fn poll_passed(
        &self,
        context: &Context<'_>,
        lane: Lane,
        others: impl Iterator<Item = Rank> + Clone,
        needed: u64,
        failed: impl Fn() -> bool,
    ) -> Poll<Result<(), (Rank, Option<Reason>)>> {
        let is_behind =
            |other: &Rank| self.shelves[other.0][lane.0].passed.load(Ordering::Acquire) < needed;
        let slow = || others.clone().find(is_behind);
        self.poll(context, || match slow() {
            None => Poll::Ready(Ok(())),
            Some(slow) if failed() => Poll::Ready(Err((slow, None))),
            Some(slow) => match self.gone[slow.0].get() {
                Some(reason) => Poll::Ready(Err((slow, Some(*reason)))),
                None => Poll::Pending,
            },
        })
    }

    pub fn lay(
        &self,
        lane: Lane,
        rank: Rank,
        round: u64,
        header: &Header,
        delay: u32,
        fill: impl FnOnce(&mut [u8]),
    ) {
        self.slot(lane, rank, round).lay(round + 1, header, delay, fill);
        self.wake();
    }

    pub fn show<'a>(
        &'a self,
        lane: Lane,
        rank: Rank,
        round: u64,
        header: &Header,
        delay: u32,
        bytes: &'a [u8],
    ) -> Shown<'a> {
        let shown = self.slot(lane, rank, round).show(round + 1, header, delay, bytes);
        self.wake();
        shown
    }

    /// What a rank has laid out, when it is there.
    pub fn poll_look(
        &self,
        context: &Context<'_>,
        lane: Lane,
        at: Rank,
        round: u64,
        failed: impl Fn() -> bool,
    ) -> Poll<Result<Sight<'_>, Option<Reason>>> {
        let slot = self.slot(lane, at, round);
        self.poll(context, || {
            // Asked first: what was laid out before is then seen.
            let (failed, gone) = (failed(), self.gone[at.0].get());
            match slot.look(round + 1) {
                Found::There(sight) => Poll::Ready(Ok(sight)),
                Found::Later => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                Found::Nothing if failed => Poll::Ready(Err(None)),
                Found::Nothing => gone.map_or(Poll::Pending, |why| Poll::Ready(Err(Some(*why)))),
            }
        })
    }

    fn slot(&self, lane: Lane, rank: Rank, round: u64) -> &Slot {
        &self.shelves[rank.0][lane.0].slots[round as usize % ROUNDS]
    }

    pub fn pass(&self, lane: Lane, rank: Rank, round: u64) {
        self.shelves[rank.0][lane.0].passed.store(round + 1, Ordering::Release);
        self.wake();
    }

    /// A rank lays out nothing more.
    pub fn rank_gone(&self, rank: Rank, reason: Reason) {
        let _ = self.gone[rank.0].set(reason);
        self.wake();
    }

    /// Lets all who wait look again.
    pub fn wake(&self) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Looks, and if there is nothing looks again once others can wake it: a change is either seen or
    /// finds the waker.
    fn poll<T>(&self, context: &Context<'_>, look: impl Fn() -> Poll<T>) -> Poll<T> {
        if let Poll::Ready(found) = look() {
            return Poll::Ready(found);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(context.waker().clone());
        drop(waiting);
        look()
    }
}
