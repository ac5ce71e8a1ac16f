//! Whether a stream of a device writes numbers that this process sees, and awaits those that it writes.
//!
//! Tried once for each device on a stream of its own. Invariant: the trial ends, also if the device does not
//! do its work.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::device::calls::{CudaStream, Told};
use crate::device::context::{Entered, forgive};
use crate::device::pinned::Pinned;
use crate::error::Result;

/// Other work of the device may go before the trial's.
const PATIENCE: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_micros(50);

/// A number that the stream alone writes, and one that this process alone does: a stream writes whatever was
/// there before, and would take back what lets it go on.
const QUESTION: usize = 0;
const ANSWER: usize = 64;
const BYTES: usize = 128;
const ASKED: u32 = 2;
const HEARD: u32 = 3;
const ANSWERED: u32 = 1;

impl Entered<'_> {
    /// Whether `write_value` and `wait_value` work on this device. Found out by the first who asks in this
    /// process, who may wait for work that the device has.
    pub fn memops_work(&self) -> bool {
        let known = self.driver().memops_work.get(self.ordinal() as usize);
        known.is_some_and(|known| *known.get_or_init(|| self.try_memops()))
    }

    fn try_memops(&self) -> bool {
        let why_not = match self.driver().has_memops() {
            false => "the driver is too old".to_owned(),
            true => match self.allocate(BYTES).and_then(|pinned| self.try_with(pinned)) {
                Ok(true) => return true,
                Ok(false) => format!("a trial took longer than {} s", PATIENCE.as_secs()),
                Err(error) => error.to_string(),
            },
        };
        warn!(
            "device {}: streams cannot wait for the network, so calls on its memory return when they have ended: \
             {why_not}",
            self.ordinal()
        );
        false
    }

    fn try_with(&self, pinned: Pinned) -> Result<bool> {
        let driver = self.driver();
        let _relaxed = self.relax().told();
        let stream = match driver.create_stream().told() {
            Ok(stream) => stream,
            Err(error) => {
                forgive(driver.free_host(pinned.host()));
                return Err(error);
            }
        };
        let deadline = Instant::now() + PATIENCE;
        let worked = self.converse(&pinned, stream, deadline);
        // Lets the stream go on if it was to wait for an answer that did not follow.
        pinned.cell(ANSWER).advance(ANSWERED);
        // What a device that is late or has failed may still write stays there for it. One failed answer may
        // be another's fault.
        let is_idle = || until(deadline, || self.is_idle(stream));
        if is_idle().or_else(|_| is_idle()).unwrap_or(false) {
            forgive(driver.destroy_stream(stream));
            forgive(driver.free_host(pinned.host()));
        }
        worked
    }

    /// The stream waits for what it has written itself, then for what this process writes.
    fn converse(&self, pinned: &Pinned, stream: CudaStream, deadline: Instant) -> Result<bool> {
        let (question, answer) = (pinned.cell(QUESTION), pinned.cell(ANSWER));
        question.begin_at(0);
        answer.begin_at(0);
        self.write_value(&question, 1, stream)?;
        self.wait_value(&question, 1, stream)?;
        self.write_value(&question, ASKED, stream)?;
        self.wait_value(&answer, ANSWERED, stream)?;
        self.write_value(&question, HEARD, stream)?;
        // Whether the stream is idle is asked only because that fails if the device has failed.
        let has_come = |value| self.is_idle(stream).map(|_| question.has_come_to(value));
        if !until(deadline, || has_come(ASKED))? {
            return Ok(false);
        }
        answer.advance(ANSWERED);
        until(deadline, || has_come(HEARD))
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
