//! A host stream: a thread that runs batches of operations in the order in which they were queued.
//!
//! Leaves to `Batch` to wait for other streams of the same communicators. Invariants: the thread
//! sleeps while there is nothing to do; what was queued is run, also if the stream is closed; and
//! the first error since the last `synchronize` is kept.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::runtime;

use super::batch::{Batch, while_nobody_issues};

const THREAD: &str = "nexar-stream";

pub struct Stream {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the stream and its thread share.
#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    /// Signalled when work comes and when it ends.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Batch<'static>>,
    /// How many batches were ever queued, and how many have ended.
    queued: u64,
    ended: u64,
    closed: bool,
    error: Option<Error>,
}

impl Stream {
    pub fn new() -> Result<Arc<Self>> {
        let desk = Arc::new(Desk::default());
        let of_thread = Arc::clone(&desk);
        let thread = runtime::start_thread(THREAD, move || of_thread.work())?;
        Ok(Arc::new(Self { desk, thread: Mutex::new(Some(thread)) }))
    }

    /// Waits until all that was queued before has ended. Returns the first error since the last
    /// time, once.
    pub fn synchronize(&self) -> Result<()> {
        let state = self.desk.lock();
        let queued = state.queued;
        let mut state = self.desk.wait_while(state, |state| state.ended < queued);
        state.error.take().map_or(Ok(()), Err)
    }

    /// The error that `synchronize` will return if there is one already; else `InProgress` if
    /// something has not ended.
    pub fn query(&self) -> Result<()> {
        let state = self.desk.lock();
        match (&state.error, state.ended < state.queued) {
            (Some(error), _) => Err(error.clone()),
            (None, true) => Err(Error::InProgress),
            (None, false) => Ok(()),
        }
    }

    /// Takes no further work, and waits for what was queued.
    pub fn close(&self) {
        while_nobody_issues(|| self.desk.lock().closed = true);
        self.desk.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Must be called, as `push`, while nobody else issues: then it stays open until that.
    pub fn check_open(&self) -> Result<()> {
        match self.desk.lock().closed {
            true => Err(Error::Handle { what: "stream", kind: "stream" }),
            false => Ok(()),
        }
    }

    pub fn push(&self, batch: Batch<'static>) {
        let mut state = self.desk.lock();
        state.queue.push_back(batch);
        state.queued += 1;
        drop(state);
        self.desk.changed.notify_all();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.desk.lock().closed = true;
        self.desk.changed.notify_all();
    }
}

impl Desk {
    /// The work of the thread.
    fn work(&self) {
        loop {
            let idle = |state: &mut State| state.queue.is_empty() && !state.closed;
            let mut state = self.wait_while(self.lock(), idle);
            let Some(batch) = state.queue.pop_front() else { return };
            drop(state);
            let ran = catch_unwind(AssertUnwindSafe(|| batch.run()));
            let result = ran.unwrap_or_else(|panic| Err(Error::from_panic(&*panic)));
            let mut state = self.lock();
            state.ended += 1;
            if let Err(error) = result {
                state.error.get_or_insert(error);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed.wait_while(state, condition).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
