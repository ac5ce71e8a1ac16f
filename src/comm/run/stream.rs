//! A host stream: a thread that executes jobs in the order in which they were queued.
//!
//! Leaves to `batch` what a job does, and to `stream_order` the order among streams of the same
//! communicator. Invariants: the thread sleeps while its queue is empty; every job that was queued
//! is executed, also after the stream was closed; the first error since the last `synchronize` is
//! kept.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::runtime;

use super::stream_order::with_issue_lock;

const THREAD: &str = "nexar-stream";

type StreamJob = Box<dyn FnOnce() -> Result<()> + Send>;

pub struct Stream {
    shared: Arc<StreamShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a stream and its thread share.
#[derive(Default)]
struct StreamShared {
    queue: Mutex<JobQueue>,
    /// Signalled when a job was queued and when one has completed.
    changed: Condvar,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<StreamJob>,
    /// How many jobs were ever queued, and how many have completed.
    queued: u64,
    completed: u64,
    closed: bool,
    error: Option<Error>,
}

impl Stream {
    /// Starts the thread of a new stream.
    pub fn new() -> Result<Arc<Self>> {
        let shared = Arc::new(StreamShared::default());
        let of_thread = Arc::clone(&shared);
        let thread = runtime::start_thread(THREAD, move || of_thread.execute_all())?;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Waits until every job that was queued before has completed. Returns the first error since
    /// the last `synchronize`, once.
    pub fn synchronize(&self) -> Result<()> {
        let queue = self.shared.lock();
        let queued = queue.queued;
        let mut queue = self.shared.wait_while(queue, |queue| queue.completed < queued);
        queue.error.take().map_or(Ok(()), Err)
    }

    /// The error that `synchronize` will return if there is one already; else `InProgress` if a job
    /// has not completed.
    pub fn query(&self) -> Result<()> {
        let queue = self.shared.lock();
        match (&queue.error, queue.completed < queue.queued) {
            (Some(error), _) => Err(error.clone()),
            (None, true) => Err(Error::InProgress),
            (None, false) => Ok(()),
        }
    }

    /// Accepts no further jobs, and waits for those that were queued.
    pub fn close(&self) {
        with_issue_lock(|| self.shared.lock().closed = true);
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Fails if the stream was closed. The caller must hold the issue lock until its `push`, so
    /// that the stream stays open in between.
    pub(super) fn check_open(&self) -> Result<()> {
        match self.shared.lock().closed {
            true => Err(Error::Handle { what: "stream", kind: "stream" }),
            false => Ok(()),
        }
    }

    /// Queues a job. The caller must hold the issue lock.
    pub(super) fn push(&self, job: impl FnOnce() -> Result<()> + Send + 'static) {
        let mut queue = self.shared.lock();
        queue.jobs.push_back(Box::new(job));
        queue.queued += 1;
        drop(queue);
        self.shared.changed.notify_all();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl StreamShared {
    /// The loop of the thread.
    fn execute_all(&self) {
        loop {
            let idle = |queue: &mut JobQueue| queue.jobs.is_empty() && !queue.closed;
            let mut queue = self.wait_while(self.lock(), idle);
            let Some(job) = queue.jobs.pop_front() else { return };
            drop(queue);
            let result = catch_unwind(AssertUnwindSafe(job))
                .unwrap_or_else(|panic| Err(Error::from_panic(&*panic)));
            let mut queue = self.lock();
            queue.completed += 1;
            if let Err(error) = result {
                queue.error.get_or_insert(error);
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    fn wait_while<'a>(
        &self,
        queue: MutexGuard<'a, JobQueue>,
        condition: impl FnMut(&mut JobQueue) -> bool,
    ) -> MutexGuard<'a, JobQueue> {
        self.changed.wait_while(queue, condition).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
