//! What ranks of a process lay out for each other, in rounds.
//!
//! Leaves to the mesh what has failed. Invariants: who changes what others wait for wakes them after the
//! change; a slot is written when all ranks have passed what lay there.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::task::{Context, Poll, Waker};

use crate::op::Call;
use crate::rank::Rank;
use crate::transport::{Header, LANES, Lane, Past, ROUNDS};

use super::queue::Reason;

pub(super) struct Shelves {
    /// By rank.
    shelves: Vec<[Shelf; LANES]>,
    gone: Vec<OnceLock<Reason>>,
    waiting: Mutex<Vec<Waker>>,
}

#[derive(Default)]
struct Shelf {
    slots: [RwLock<Slot>; ROUNDS],
    /// How many rounds its rank has passed.
    passed: AtomicU64,
}

struct Slot {
    /// The round after which it was laid out.
    stamp: u64,
    header: Header,
    bytes: Vec<u8>,
    /// How often others look in vain: a delay without a clock.
    delay: AtomicU32,
}

impl Default for Slot {
    fn default() -> Self {
        let header =
            Header { seq: 0, call: Call::Barrier, past: Past::default(), step: 0, bytes: 0 };
        Self { stamp: 0, header, bytes: Vec::new(), delay: AtomicU32::new(0) }
    }
}

/// A slot while it is looked at.
pub struct Sight<'a>(RwLockReadGuard<'a, Slot>);

impl Sight<'_> {
    pub(super) fn header(&self) -> Header {
        self.0.header
    }
}

impl Deref for Sight<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Shelves {
    pub fn new(size: usize) -> Self {
        Self {
            shelves: (0..size).map(|_| Default::default()).collect(),
            gone: (0..size).map(|_| OnceLock::new()).collect(),
            waiting: Mutex::default(),
        }
    }

    /// Ready when all `others` have passed what lies where something is to be laid out.
    pub fn poll_free(
        &self,
        context: &Context<'_>,
        lane: Lane,
        others: &[Rank],
        round: u64,
        failed: impl Fn() -> bool,
    ) -> Poll<Result<(), (Rank, Option<Reason>)>> {
        let needed = (round + 1).saturating_sub(ROUNDS as u64);
        let is_behind =
            |other: &Rank| self.shelves[other.0][lane.0].passed.load(Ordering::Acquire) < needed;
        let slow = || others.iter().copied().find(is_behind);
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
        let slot = &self.shelves[rank.0][lane.0].slots[round as usize % ROUNDS];
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.bytes.clear();
        slot.bytes.resize(header.bytes, 0);
        fill(&mut slot.bytes);
        slot.header = *header;
        slot.delay = AtomicU32::new(delay);
        slot.stamp = round + 1;
        drop(slot);
        self.wake();
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
        let slot = &self.shelves[at.0][lane.0].slots[round as usize % ROUNDS];
        self.poll(context, || {
            let slot = slot.read().unwrap_or_else(PoisonError::into_inner);
            if slot.stamp == round + 1 {
                if slot.delay.load(Ordering::Relaxed) == 0 {
                    return Poll::Ready(Ok(Sight(slot)));
                }
                slot.delay.fetch_sub(1, Ordering::Relaxed);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.gone[at.0].get() {
                _ if failed() => Poll::Ready(Err(None)),
                Some(reason) => Poll::Ready(Err(Some(*reason))),
                None => Poll::Pending,
            }
        })
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
