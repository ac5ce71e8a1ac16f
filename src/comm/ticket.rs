//! An operation between its beginning and its end: a call with its number, or a message.
//!
//! Invariant: a number that was taken is ended once, whatever happens to its call. One that was
//! given up fails the communicator first, so that no rank waits for it and nothing is sent behind a
//! message that it broke off.

use std::cell::Cell;
use std::sync::Arc;

use crate::error::{Doing, Error, Result};
use crate::transport::Past;

use super::Communicator;

pub(super) struct Ticket {
    pub communicator: Arc<Communicator>,
    pub doing: Doing,
    /// The calls before it, if it is one.
    pub past: Past,
    /// How many batches of streams the communicator had been given before.
    pub behind: u64,
    stage: Cell<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Failed,
    Ended,
}

impl Ticket {
    pub fn new(communicator: Arc<Communicator>, doing: Doing, past: Past, behind: u64) -> Self {
        Self { communicator, doing, past, behind, stage: Cell::new(Stage::Open) }
    }

    /// Ends the call, and the communicator on all ranks if the call failed.
    pub fn end(&self, result: Result<()>) -> Result<()> {
        let result = result.map_err(|cause| self.fail(cause));
        self.release();
        result
    }

    /// Fails the communicator on all ranks; the next call has to wait until this one has ended.
    /// What the caller is told.
    pub fn fail(&self, cause: Error) -> Error {
        self.stage.set(Stage::Failed);
        self.communicator.failed(self.doing, cause)
    }

    fn release(&self) {
        if self.stage.replace(Stage::Ended) != Stage::Ended {
            if let Doing::Collective { seq, .. } = self.doing {
                self.communicator.lanes.end(seq);
            }
            self.communicator.ended();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.stage.get() == Stage::Open {
            self.fail(Error::Panic("a call was given up before its end".to_owned()));
        }
        self.release();
    }
}
