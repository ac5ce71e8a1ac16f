//! Stream order queue of a communicator: its stream batches execute one after another.
//!
//! Each batch records how many stream batches the communicator had before it. Batches of one group
//! record the same number and run concurrently. Leaves to `batch` what a batch executes. Invariant:
//! no batch starts before its predecessors have completed, unless the queue was dissolved because
//! the communicator failed; then no batch waits.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The issue lock: held while operations that belong together get their sequence numbers and their
/// positions on streams. So two batches have the same order on all streams and communicators.
static ISSUING: Mutex<()> = Mutex::new(());

/// Runs `body` while no other thread issues operations.
pub fn with_issue_lock<T>(body: impl FnOnce() -> T) -> T {
    let _issuing = ISSUING.lock().unwrap_or_else(PoisonError::into_inner);
    body()
}

#[derive(Default)]
pub struct StreamOrder {
    /// Positions that exist. Read by calls that need no more than that.
    queued: AtomicU64,
    progress: Mutex<OrderProgress>,
}

#[derive(Default)]
struct OrderProgress {
    completed: u64,
    dissolved: bool,
    waiting: Vec<Waker>,
}

/// The position of a batch in the queue of one communicator. Dropping it completes the batch there.
pub struct StreamPosition(Arc<StreamOrder>);

impl StreamPosition {
    pub fn new(order: &Arc<StreamOrder>) -> Self {
        order.queued.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(order))
    }

    /// Whether it is a position in this queue.
    pub fn is_in(&self, order: &Arc<StreamOrder>) -> bool {
        Arc::ptr_eq(&self.0, order)
    }
}

impl StreamOrder {
    /// Waits until `count` batches have completed, or the queue was dissolved.
    pub async fn wait_completed(&self, count: u64) {
        poll_fn(|context| {
            let mut progress = self.lock();
            if progress.completed >= count || progress.dissolved {
                return Poll::Ready(());
            }
            // A batch polls all its operations with one waker, which is stored once.
            if !progress.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                progress.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Whether every batch that this thread knows of has completed.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queued.load(Ordering::Acquire) == 0
    }

    /// Releases every batch that waits, because the communicator has failed.
    pub fn dissolve(&self) {
        self.change(|progress| progress.dissolved = true);
    }

    fn change(&self, change: impl FnOnce(&mut OrderProgress)) {
        let waiting = {
            let mut progress = self.lock();
            change(&mut progress);
            std::mem::take(&mut progress.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, OrderProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPosition {
    fn drop(&mut self) {
        self.0.change(|progress| progress.completed += 1);
        self.0.queued.fetch_sub(1, Ordering::Release);
    }
}
