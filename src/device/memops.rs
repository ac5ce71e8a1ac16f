//! Whether a stream of a device writes numbers that this process sees, and awaits those that it
//! writes.
//!
//! Tried once for each device on a stream of its own, in the pinned memory of the first
//! communicator there: a driver may wait for other streams when memory is freed. Invariant: the
//! trial ends, also if the device does not do its work.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::device::calls::{CudaStream, Told};
use crate::device::context::{EnteredContext, forgive};
use crate::device::pinned::Pinned;
use crate::error::Result;

/// Other work of the device may go before the trial's.
const PATIENCE: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_micros(50);

/// A number that the stream alone writes, and one that this process alone does: a stream writes
/// whatever was there before, and would take back what lets it go on.
const QUESTION: usize = 0;
const ANSWER: usize = 64;
const ASKED: u32 = 2;
const HEARD: u32 = 3;
const ANSWERED: u32 = 1;

impl EnteredContext<'_> {
    /// Whether `write_value` and `wait_value` work on this device. `None`: not tried yet.
    pub fn memops_work(&self) -> Option<bool> {
        let Some(known) = self.driver().memops_work.get(self.ordinal() as usize) else {
            return Some(false);
        };
        if !self.driver().has_memops() {
            known.get_or_init(|| self.say_why_not("the driver is too old"));
        }
        known.get().copied()
    }

    /// A stream for `try_memops`. The driver may wait for the work of other streams.
    pub fn trial_stream(&self) -> Result<CudaStream> {
        let _relaxed = self.relax().told();
        self.driver().create_stream().told()
    }

    /// Finds out whether they work, with a stream of `trial_stream` and memory that nothing else
    /// uses. May wait for other work of the device. `None` in place of the memory: the device may
    /// still write to it.
    pub fn try_memops(&self, stream: Result<CudaStream>, pinned: Pinned) -> (bool, Option<Pinned>) {
        let (worked, is_settled) = match stream {
            Ok(stream) => self.try_with(&pinned, stream),
            Err(error) => (Err(error), true),
        };
        let why_not = match &worked {
            Ok(true) => None,
            Ok(false) => Some(format!("a trial took longer than {} s", PATIENCE.as_secs())),
            Err(error) => Some(error.to_string()),
        };
        let known = self.driver().memops_work.get(self.ordinal() as usize);
        // Another thread may have tried at the same time.
        let is_first = known.is_some_and(|known| known.set(why_not.is_none()).is_ok());
        if let (true, Some(why)) = (is_first, &why_not) {
            self.say_why_not(why);
        }
        (why_not.is_none(), is_settled.then_some(pinned))
    }

    fn say_why_not(&self, why: &str) -> bool {
        warn!(
            "device {}: streams cannot wait for the network, so calls on its memory return when \
             they have ended: \
             {why}",
            self.ordinal()
        );
        false
    }

    /// Whether the trial worked, and whether the device has done with the memory. If it has not,
    /// because it is late or has failed, the memory stays there for what it may still write.
    fn try_with(&self, pinned: &Pinned, stream: CudaStream) -> (Result<bool>, bool) {
        let driver = self.driver();
        let _relaxed = self.relax().told();
        let deadline = Instant::now() + PATIENCE;
        let worked = self.converse(pinned, stream, deadline);
        // Lets the stream go on if it was to wait for an answer that did not follow.
        pinned.semaphore(ANSWER).advance(ANSWERED);
        // One failed answer may be another's fault.
        let is_idle = || until(deadline, || self.is_idle(stream));
        let is_settled = is_idle().or_else(|_| is_idle()).unwrap_or(false);
        if is_settled {
            forgive(driver.destroy_stream(stream));
        }
        (worked, is_settled)
    }

    /// The stream waits for what it has written itself, then for what this process writes.
    fn converse(&self, pinned: &Pinned, stream: CudaStream, deadline: Instant) -> Result<bool> {
        let (question, answer) = (pinned.semaphore(QUESTION), pinned.semaphore(ANSWER));
        question.begin_at(0);
        answer.begin_at(0);
        self.write_value(&question, 1, stream)?;
        self.wait_value(&question, 1, stream)?;
        self.write_value(&question, ASKED, stream)?;
        self.wait_value(&answer, ANSWERED, stream)?;
        self.write_value(&question, HEARD, stream)?;
        // Whether the stream is idle is asked only because that fails if the device has failed.
        let has_reached = |value| self.is_idle(stream).map(|_| question.has_reached(value));
        if !until(deadline, || has_reached(ASKED))? {
            return Ok(false);
        }
        answer.advance(ANSWERED);
        until(deadline, || has_reached(HEARD))
    }
}

/// Looks until what it looks for is there: true; or the deadline has passed: false.
fn until(deadline: Instant, is_there: impl Fn() -> Result<bool>) -> Result<bool> {
    while !is_there()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(NAP);
    }
    Ok(true)
}
