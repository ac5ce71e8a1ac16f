//! A communicator that a background thread creates.
//!
//! Leaves to `create` how. Invariant: the creation ends, with a communicator or an error, within
//! the timeout of initialisation; one that was queued and never started fails when it is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::runtime;

use super::Communicator;

const THREAD: &str = "nexar-init";

pub struct Making {
    state: Mutex<MakingState>,
    ended: Condvar,
}

struct MakingState {
    stage: MakingStage,
    fate: Fate,
}

/// What happens to the communicator when it has been created.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Use,
    Close,
    Abort,
}

#[derive(Clone)]
enum MakingStage {
    /// Not started.
    Queued,
    Running,
    Ended(Result<Arc<Communicator>>),
}

type Make = Box<dyn FnOnce() -> Result<Arc<Communicator>> + Send>;

/// A creation that has not started. Dropped before its start, it has failed.
pub struct Queued {
    making: Arc<Making>,
    make: Option<Make>,
}

impl Queued {
    pub fn new(make: impl FnOnce() -> Result<Arc<Communicator>> + Send + 'static) -> Self {
        let state = MakingState { stage: MakingStage::Queued, fate: Fate::Use };
        let making = Arc::new(Making { state: Mutex::new(state), ended: Condvar::new() });
        Self { making, make: Some(Box::new(make)) }
    }

    pub fn making(&self) -> Arc<Making> {
        Arc::clone(&self.making)
    }

    /// Starts the creation on a thread of its own. If no thread can be started, it has failed.
    pub fn start(mut self) {
        let mut state = self.making.lock();
        if state.fate != Fate::Use {
            return;
        }
        state.stage = MakingStage::Running;
        drop(state);
        let (making, make) = (self.making(), self.make.take());
        let started = runtime::start_thread(THREAD, move || {
            let made = catch_unwind(AssertUnwindSafe(|| make.map(|make| make())));
            let made = made.unwrap_or_else(|panic| Some(Err(Error::from_panic(&*panic))));
            making.end(made.expect("a creation is started once"));
        });
        if let Err(error) = started {
            self.making.end(Err(error));
        }
    }

    /// Fails it: it will not be started.
    pub fn fail(self, error: Error) {
        self.making.end(Err(error));
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let is_queued = matches!(self.making.lock().stage, MakingStage::Queued);
        if is_queued {
            let what = "its group was dropped before the communicator was made";
            self.making.end(Err(Error::Usage(what.to_owned())));
        }
    }
}

impl Making {
    /// Its result, if it has ended.
    pub fn result(&self) -> Option<Result<Arc<Communicator>>> {
        match &self.lock().stage {
            MakingStage::Ended(result) => Some(result.clone()),
            MakingStage::Queued | MakingStage::Running => None,
        }
    }

    /// Waits until it has ended. It must have been started.
    pub fn wait(&self) -> Result<Arc<Communicator>> {
        let is_running = |state: &mut MakingState| matches!(state.stage, MakingStage::Running);
        let state = self.ended.wait_while(self.lock(), is_running);
        match &state.unwrap_or_else(PoisonError::into_inner).stage {
            MakingStage::Ended(result) => result.clone(),
            MakingStage::Queued | MakingStage::Running => {
                Err(Error::Usage("it was not started".to_owned()))
            }
        }
    }

    /// Waits until it has ended, and closes the communicator. One that was not started never
    /// starts.
    pub fn close(&self) {
        self.lock().fate = Fate::Close;
        if let Ok(communicator) = self.wait() {
            communicator.close();
        }
    }

    /// Aborts the communicator, now or as soon as it was created. No thread waits for it any more.
    pub fn abort(&self) {
        let mut state = self.lock();
        state.fate = Fate::Abort;
        match &state.stage {
            MakingStage::Queued => {}
            MakingStage::Running => state.stage = MakingStage::Ended(Err(Error::Aborted)),
            MakingStage::Ended(Ok(communicator)) => communicator.abort(),
            MakingStage::Ended(Err(_)) => {}
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
        state.stage = MakingStage::Ended(result);
        drop(state);
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, MakingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
