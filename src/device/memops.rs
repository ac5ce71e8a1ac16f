//! Whether streams of a device can write values that this process sees, and await values that this
//! process writes.
//!
//! A trial decides it, once for each device, on a stream of its own. It uses the pinned memory of
//! the first communicator of the device: a driver may wait for other streams before it frees
//! memory. Invariant: the trial ends, even if the device does not execute it.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::device::calls::{CudaStream, OrCudaError};
use crate::device::context::{EnteredContext, log_failure};
use crate::device::pinned::Pinned;
use crate::error::Result;

/// The device may execute other work before the trial.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_micros(50);

/// Offsets of two semaphores, each with one writer: a stream stores its value whatever the old
/// value is, so it could overwrite the value of this process that it awaits.
const DEVICE_SEMAPHORE: usize = 0;
const HOST_SEMAPHORE: usize = 64;
const DEVICE_WAITS: u32 = 2;
const DEVICE_RESUMED: u32 = 3;
const HOST_SIGNAL: u32 = 1;

impl EnteredContext<'_> {
    /// Whether `write_value` and `wait_value` work on this device. `None`: not tried yet.
    pub fn memops_work(&self) -> Option<bool> {
        let Some(known) = self.driver().memops_work.get(self.ordinal() as usize) else {
            return Some(false);
        };
        if !self.driver().has_memops() {
            known.get_or_init(|| self.warn_unusable("the driver is too old"));
        }
        known.get().copied()
    }

    /// A stream for `try_memops`. The driver may wait for the work of other streams.
    pub fn trial_stream(&self) -> Result<CudaStream> {
        let _relaxed = self.relax().or_cuda_error();
        self.driver().create_stream().or_cuda_error()
    }

    /// Tries `write_value` and `wait_value`, on a stream of `trial_stream` and in memory that
    /// nothing else uses. May wait for other work of the device. Returns whether they work, and the
    /// memory, or `None` if the device may still write to it.
    pub fn try_memops(&self, stream: Result<CudaStream>, pinned: Pinned) -> (bool, Option<Pinned>) {
        let (worked, is_idle) = match stream {
            Ok(stream) => self.try_with(&pinned, stream),
            Err(error) => (Err(error), true),
        };
        let failure = match &worked {
            Ok(true) => None,
            Ok(false) => Some(format!("a trial took longer than {} s", PATIENCE.as_secs())),
            Err(error) => Some(error.to_string()),
        };
        let known = self.driver().memops_work.get(self.ordinal() as usize);
        // Another thread may have tried at the same time.
        let is_first = known.is_some_and(|known| known.set(failure.is_none()).is_ok());
        if let (true, Some(why)) = (is_first, &failure) {
            self.warn_unusable(why);
        }
        (failure.is_none(), is_idle.then_some(pinned))
    }

    /// Returns false.
    fn warn_unusable(&self, why: &str) -> bool {
        warn!(
            "device {}: streams cannot wait for the network, so calls on its memory return only \
             when they have completed: {why}",
            self.ordinal()
        );
        false
    }

    /// Returns whether the trial worked, and whether the device no longer uses the memory. A device
    /// that is late or has failed may still write to it.
    fn try_with(&self, pinned: &Pinned, stream: CudaStream) -> (Result<bool>, bool) {
        let driver = self.driver();
        let _relaxed = self.relax().or_cuda_error();
        let deadline = Instant::now() + PATIENCE;
        let worked = self.exchange_values(pinned, stream, deadline);
        // Releases the stream if the trial failed while the stream waits.
        pinned.semaphore(HOST_SEMAPHORE).advance(HOST_SIGNAL);
        // A query may report a failure of earlier work, so one failure is not final.
        let wait_idle = || poll_until(deadline, || self.is_idle(stream));
        let is_idle = wait_idle().or_else(|_| wait_idle()).unwrap_or(false);
        if is_idle {
            log_failure(driver.destroy_stream(stream));
        }
        (worked, is_idle)
    }

    /// The stream awaits a value that it has written itself, then one that this process writes.
    fn exchange_values(
        &self,
        pinned: &Pinned,
        stream: CudaStream,
        deadline: Instant,
    ) -> Result<bool> {
        let device = pinned.semaphore(DEVICE_SEMAPHORE);
        let host = pinned.semaphore(HOST_SEMAPHORE);
        device.initialize(0);
        host.initialize(0);
        self.write_value(&device, 1, stream)?;
        self.wait_value(&device, 1, stream)?;
        self.write_value(&device, DEVICE_WAITS, stream)?;
        self.wait_value(&host, HOST_SIGNAL, stream)?;
        self.write_value(&device, DEVICE_RESUMED, stream)?;
        // `is_idle` is called only because it fails if the device has failed.
        let has_reached = |value| self.is_idle(stream).map(|_| device.has_reached(value));
        if !poll_until(deadline, || has_reached(DEVICE_WAITS))? {
            return Ok(false);
        }
        host.advance(HOST_SIGNAL);
        poll_until(deadline, || has_reached(DEVICE_RESUMED))
    }
}

/// Polls `is_done`. Returns true when it is, false when the deadline has passed.
fn poll_until(deadline: Instant, is_done: impl Fn() -> Result<bool>) -> Result<bool> {
    while !is_done()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
    Ok(true)
}
