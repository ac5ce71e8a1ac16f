//! A communicator that is being made by a thread of its own.
//!
//! Invariant: it ends, made or failed, within the time that initialisation may take; one that was
//! queued and never started fails when it is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::runtime;

use super::Communicator;

const THREAD: &str = "nexar-init";

pub struct Making {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    stage: Stage,
    fate: Fate,
}

/// What is to become of the communicator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Use,
    Close,
    Abort,
}

#[derive(Clone)]
enum Stage {
    /// Not started.
    Queued,
    Running,
    Ended(Result<Arc<Communicator>>),
}

type Make = Box<dyn FnOnce() -> Result<Arc<Communicator>> + Send>;

/// One that will be made when it is started. Dropped before that, it has failed.
pub struct Queued {
    making: Arc<Making>,
    make: Option<Make>,
}

impl Queued {
    pub fn new(make: impl FnOnce() -> Result<Arc<Communicator>> + Send + 'static) -> Self {
        let state = State { stage: Stage::Queued, fate: Fate::Use };
        let making = Arc::new(Making { state: Mutex::new(state), ended: Condvar::new() });
        Self { making, make: Some(Box::new(make)) }
    }

    pub fn making(&self) -> Arc<Making> {
        Arc::clone(&self.making)
    }

    /// Has it made by a thread. If none can be had, it has failed.
    pub fn start(mut self) {
        let mut state = self.making.lock();
        if state.fate != Fate::Use {
            return;
        }
        state.stage = Stage::Running;
        drop(state);
        let (making, make) = (self.making(), self.make.take());
        let started = runtime::start_thread(THREAD, move || {
            let made = catch_unwind(AssertUnwindSafe(|| make.map(|make| make())));
            let made = made.unwrap_or_else(|panic| Some(Err(Error::from_panic(&*panic))));
            making.end(made.expect("a queued one is started once"));
        });
        if let Err(error) = started {
            self.making.end(Err(error));
        }
    }

    /// Will not be started.
    pub fn fail(self, error: Error) {
        self.making.end(Err(error));
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let is_queued = matches!(self.making.lock().stage, Stage::Queued);
        if is_queued {
            let what = "its group was dropped before the communicator was made";
            self.making.end(Err(Error::Usage(what.to_owned())));
        }
    }
}

impl Making {
    /// What came of it, if it has ended.
    pub fn result(&self) -> Option<Result<Arc<Communicator>>> {
        match &self.lock().stage {
            Stage::Ended(result) => Some(result.clone()),
            Stage::Queued | Stage::Running => None,
        }
    }

    /// Waits until it has ended. It must have been started.
    pub fn wait(&self) -> Result<Arc<Communicator>> {
        let is_running = |state: &mut State| matches!(state.stage, Stage::Running);
        let state = self.ended.wait_while(self.lock(), is_running);
        match &state.unwrap_or_else(PoisonError::into_inner).stage {
            Stage::Ended(result) => result.clone(),
            Stage::Queued | Stage::Running => Err(Error::Usage("it was not started".to_owned())),
        }
    }

    /// Waits until it has ended, and closes what was made. One that was not started will not be.
    pub fn close(&self) {
        self.lock().fate = Fate::Close;
        if let Ok(communicator) = self.wait() {
            communicator.close();
        }
    }

    /// Aborts what is made, now or when it has been. Nobody waits for it any more.
    pub fn abort(&self) {
        let mut state = self.lock();
        state.fate = Fate::Abort;
        match &state.stage {
            Stage::Queued => {}
            Stage::Running => state.stage = Stage::Ended(Err(Error::Aborted)),
            Stage::Ended(Ok(communicator)) => communicator.abort(),
            Stage::Ended(Err(_)) => {}
        }
        drop(state);
        self.ended.notify_all();
    }

    fn end(&self, result: Result<Arc<Communicator>>) {
        let mut state = self.lock();
        if state.fate == Fate::Abort {
            drop(state);
            if let Ok(communicator) = result {
                communicator.abort();
            }
            return;
        }
        state.stage = Stage::Ended(result);
        drop(state);
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
