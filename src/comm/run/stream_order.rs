//! The order of the operations of a communicator on its streams.
//!
//! Stream batches are numbered, and those with collectives are also numbered among themselves. A
//! collective on a stream waits for earlier batches with collectives; an operation on no stream
//! waits for all earlier batches; a message on a stream waits for none, only for its own stream.
//! Batches of one group record the same counts and run concurrently. Leaves to `batch` what a batch
//! executes. Invariant: no operation starts before the batches that it waits for have completed,
//! unless the queue was dissolved because the communicator failed; then no operation waits.

use std::collections::BTreeSet;
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
    /// Positions that exist.
    pending: AtomicU64,
    progress: Mutex<OrderProgress>,
}

#[derive(Default)]
struct OrderProgress {
    batches: CompletedBatches,
    collectives: CompletedBatches,
    dissolved: bool,
    waiting: Vec<Waker>,
}

/// Which of the batches with consecutive numbers have completed.
#[derive(Default)]
struct CompletedBatches {
    /// All batches with lower numbers have completed.
    first: u64,
    /// Later ones that have completed too.
    early: BTreeSet<u64>,
}

/// How many stream batches were submitted; for an operation, how many it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    pub batches: u64,
    /// Those with collectives.
    pub collectives: u64,
}

#[derive(Clone, Copy)]
enum StreamNumber {
    Batch(u64),
    Collectives(u64),
}

/// The position of a batch among those of one communicator, or among those with collectives.
/// Dropping it completes the batch there.
pub struct StreamPosition {
    pub order: Arc<StreamOrder>,
    number: StreamNumber,
}

impl StreamCounts {
    /// The next position among all batches.
    pub fn next_batch(&mut self, order: &Arc<StreamOrder>) -> StreamPosition {
        let number = StreamNumber::Batch(self.batches);
        self.batches += 1;
        StreamPosition::new(order, number)
    }

    /// The next position among the batches with collectives.
    pub fn next_collectives(&mut self, order: &Arc<StreamOrder>) -> StreamPosition {
        let number = StreamNumber::Collectives(self.collectives);
        self.collectives += 1;
        StreamPosition::new(order, number)
    }
}

impl StreamPosition {
    fn new(order: &Arc<StreamOrder>, number: StreamNumber) -> Self {
        order.pending.fetch_add(1, Ordering::Relaxed);
        Self { order: Arc::clone(order), number }
    }
}

impl CompletedBatches {
    fn complete(&mut self, number: u64) {
        self.early.insert(number);
        while self.early.remove(&self.first) {
            self.first += 1;
        }
    }
}

impl OrderProgress {
    fn has_completed(&self, counts: StreamCounts) -> bool {
        self.batches.first >= counts.batches && self.collectives.first >= counts.collectives
    }
}

impl StreamOrder {
    /// Waits until as many batches have completed, or the queue was dissolved.
    pub async fn wait_completed(&self, counts: StreamCounts) {
        poll_fn(|context| {
            let mut progress = self.lock();
            if progress.has_completed(counts) || progress.dissolved {
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

    /// Whether every batch that this thread knows of has completed. Takes no lock.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Releases every operation that waits, because the communicator has failed.
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
        self.order.change(|progress| match self.number {
            StreamNumber::Batch(number) => progress.batches.complete(number),
            StreamNumber::Collectives(number) => progress.collectives.complete(number),
        });
        self.order.pending.fetch_sub(1, Ordering::Release);
    }
}
