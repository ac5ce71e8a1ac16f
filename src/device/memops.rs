//! Whether a stream of a device writes numbers that this process sees, and awaits those that it writes.
//!
//! Tried once for each device on a stream of its own. Invariant: the trial ends, also if the device does not
//! do its work.

use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::device::calls::{CudaStream, Told};
use crate::device::context::Entered;
use crate::device::pinned::{Cell, Pinned};
use crate::error::Result;

/// Other work of the device may go before the trial's.
const PATIENCE: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_micros(50);

impl Entered<'_> {
    /// Whether `write_value` and `wait_value` work on this device. Found out by the first who asks in this
    /// process, who may wait for work that the device has.
    pub fn memops_work(&self) -> bool {
        let driver = self.driver();
        let known = driver.memops_work.get(self.ordinal() as usize);
        driver.has_memops() && known.is_some_and(|known| *known.get_or_init(|| self.try_memops()))
    }

    fn try_memops(&self) -> bool {
        let worked = self.allocate(64).and_then(|pinned| self.try_on(pinned));
        match &worked {
            Ok(true) => {}
            Ok(false) => warn!(
                "streams of device {} did not do their work within {} s; calls will wait for them",
                self.ordinal(),
                PATIENCE.as_secs()
            ),
            Err(error) => {
                warn!("streams of device {} cannot be waited for: {error}", self.ordinal());
            }
        }
        worked.unwrap_or(false)
    }

    fn try_on(&self, pinned: Pinned) -> Result<bool> {
        let driver = self.driver();
        let _relaxed = self.relax().told()?;
        let stream = driver.create_stream().told()?;
        let cell = pinned.cell(0);
        let worked = self.converse(&cell, stream);
        // Lets go whatever still waits.
        cell.advance(LAST);
        if matches!(worked, Ok(false)) {
            // The device may still come to it.
            return worked;
        }
        for ended in [driver.destroy_stream(stream), driver.free_host(pinned.host())] {
            if let Err(failed) = ended {
                debug!("{failed}");
            }
        }
        worked
    }

    /// The stream waits for what it has written itself, then for what this process writes.
    fn converse(&self, cell: &Cell, stream: CudaStream) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        self.write_value(cell, 1, stream)?;
        self.wait_value(cell, 1, stream)?;
        self.write_value(cell, 2, stream)?;
        self.wait_value(cell, 3, stream)?;
        self.write_value(cell, LAST, stream)?;
        Ok(self.comes(cell, 2, stream, deadline)? && {
            cell.advance(3);
            self.comes(cell, LAST, stream, deadline)?
        })
    }

    fn comes(
        &self,
        cell: &Cell,
        value: u32,
        stream: CudaStream,
        deadline: Instant,
    ) -> Result<bool> {
        while !cell.has_come_to(value) {
            // Fails if the device has failed.
            self.is_idle(stream)?;
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(NAP);
        }
        Ok(true)
    }
}

/// What the stream writes at the end.
const LAST: u32 = 4;
