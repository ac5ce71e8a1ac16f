//! A communicator that a background thread creates.
//!
//! Leaves to the caller the function that creates it. Invariant: a creation that was started ends,
//! with a communicator or an error, within the timeout of initialisation; a queued creation that is
//! dropped before its start has failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::runtime;

use super::Communicator;

const THREAD: &str = "nexar-init";

pub struct BackgroundCreation {
    state: Mutex<CreationState>,
    ended: Condvar,
}

struct CreationState {
    stage: CreationStage,
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
enum CreationStage {
    /// Not started.
    Queued,
    Running,
    Ended(Result<Arc<Communicator>>),
}

type Create = Box<dyn FnOnce() -> Result<Arc<Communicator>> + Send>;

/// A creation that has not started. If it is dropped before its start, the creation fails.
pub struct QueuedCreation {
    creation: Arc<BackgroundCreation>,
    create: Option<Create>,
}

impl QueuedCreation {
    pub fn new(create: impl FnOnce() -> Result<Arc<Communicator>> + Send + 'static) -> Self {
        let state = CreationState { stage: CreationStage::Queued, fate: Fate::Use };
        let creation =
            Arc::new(BackgroundCreation { state: Mutex::new(state), ended: Condvar::new() });
        Self { creation, create: Some(Box::new(create)) }
    }

    pub fn creation(&self) -> Arc<BackgroundCreation> {
        Arc::clone(&self.creation)
    }

    /// Starts the creation on a thread of its own. If no thread can be started, the creation fails.
    pub fn start(mut self) {
        let mut state = self.creation.lock();
        if state.fate != Fate::Use {
            return;
        }
        state.stage = CreationStage::Running;
        drop(state);
        let (creation, create) = (self.creation(), self.create.take());
        let started = runtime::start_thread(THREAD, move || {
            let created = catch_unwind(AssertUnwindSafe(|| create.map(|create| create())));
            let created = created.unwrap_or_else(|panic| Some(Err(Error::from_panic(&*panic))));
            creation.end(created.expect("a creation is started once"));
        });
        if let Err(error) = started {
            self.creation.end(Err(error));
        }
    }

    /// Fails the creation without starting it.
    pub fn fail(self, error: Error) {
        self.creation.end(Err(error));
    }
}

impl Drop for QueuedCreation {
    fn drop(&mut self) {
        let is_queued = matches!(self.creation.lock().stage, CreationStage::Queued);
        if is_queued {
            let what = "its group was dropped before the communicator was created";
            self.creation.end(Err(Error::Usage(what.to_owned())));
        }
    }
}

impl BackgroundCreation {
    /// The result of the creation, if it has ended.
    pub fn result(&self) -> Option<Result<Arc<Communicator>>> {
        match &self.lock().stage {
            CreationStage::Ended(result) => Some(result.clone()),
            CreationStage::Queued | CreationStage::Running => None,
        }
    }

    /// Waits until the creation has ended. Fails if it was not started.
    pub fn wait(&self) -> Result<Arc<Communicator>> {
        let is_running = |state: &mut CreationState| matches!(state.stage, CreationStage::Running);
        let state = self.ended.wait_while(self.lock(), is_running);
        match &state.unwrap_or_else(PoisonError::into_inner).stage {
            CreationStage::Ended(result) => result.clone(),
            CreationStage::Queued | CreationStage::Running => {
                Err(Error::Usage("the communicator's creation was not started".to_owned()))
            }
        }
    }

    /// Waits until the creation has ended, and closes the communicator. A creation that was not
    /// started never starts.
    pub fn close(&self) {
        self.lock().fate = Fate::Close;
        if let Ok(communicator) = self.wait() {
            communicator.close();
        }
    }

    /// Aborts the communicator, now or as soon as it is created. Threads that wait for the creation
    /// return at once.
    pub fn abort(&self) {
        let mut state = self.lock();
        state.fate = Fate::Abort;
        match &state.stage {
            CreationStage::Queued => {}
            CreationStage::Running => state.stage = CreationStage::Ended(Err(Error::Aborted)),
            CreationStage::Ended(Ok(communicator)) => communicator.abort(),
            CreationStage::Ended(Err(_)) => {}
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
        state.stage = CreationStage::Ended(result);
        drop(state);
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, CreationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
