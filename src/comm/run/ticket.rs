//! An operation between its beginning and its end: a call with its number, or a message.
//!
//! Invariant: a number that was taken is ended once, whatever happens to its call. One that was
//! given up fails the communicator first, so that no rank waits for it and nothing is sent behind a
//! message that it broke off.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use crate::comm::Communicator;
use crate::error::{Doing, Error, Result};
use crate::message::MessageCall;
use crate::transport::{Mesh, Past};

pub struct Ticket {
    pub communicator: Arc<Communicator>,
    pub doing: Doing,
    /// The calls before it, if it is one.
    pub past: Past,
    /// How many batches of streams the communicator had been given before.
    pub behind: u64,
    /// When those had ended; if there were none, when somebody first looked at the clock.
    pub start: Cell<Option<Instant>>,
    /// Its number among the messages of the communicator, until it has its place among them.
    message: Cell<Option<u64>>,
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
        let (start, message) = (Cell::new(None), Cell::new(None));
        Self { communicator, doing, past, behind, start, message, stage: Cell::new(Stage::Open) }
    }

    /// As `new`, for a message.
    pub fn of_message(
        communicator: Arc<Communicator>,
        call: MessageCall,
        number: u64,
        behind: u64,
    ) -> Self {
        let ticket = Self::new(communicator, Doing::Message(call), Past::default(), behind);
        ticket.message.set(Some(number));
        ticket
    }

    /// Waits until the batches of streams before it, if any, have ended, by their own deadlines.
    pub async fn come(&self) {
        self.communicator.backlog.ended(self.behind).await;
        self.start.set(Some(Instant::now()));
    }

    /// Polls a message for the first time when those before it have been, which fixes its place
    /// among them; then to its end.
    pub async fn in_order(&self, message: impl Future<Output = Result<()>>) -> Result<()> {
        if let Some(number) = self.message.get() {
            self.communicator.messages.turn(number).await;
        }
        let mut message = pin!(message);
        let first = poll_fn(|context| Poll::Ready(message.as_mut().poll(context))).await;
        self.take_place();
        match first {
            Poll::Ready(result) => result,
            Poll::Pending => message.await,
        }
    }

    fn take_place(&self) {
        if let Some(number) = self.message.take() {
            self.communicator.messages.end(number);
        }
    }

    /// Whether nobody waits for it any more.
    pub fn has_ended(&self) -> bool {
        self.stage.get() == Stage::Ended
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
        if !self.has_ended() {
            self.stage.set(Stage::Failed);
        }
        self.communicator.failed(self.doing, cause)
    }

    /// Fails the communicator before the call has ended; `end` tells it.
    pub fn make_known(&self, cause: &Error) {
        let rank = self.communicator.place().rank;
        self.communicator.mesh.fail(cause.clone().during(rank, self.doing));
    }

    fn release(&self) {
        if self.stage.replace(Stage::Ended) != Stage::Ended {
            self.take_place();
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
