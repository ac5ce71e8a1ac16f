//! Work that is put on a stream of the caller's, done in its order.
//!
//! Leaves to others what the work is part of. Invariant: each call returns before its work is done,
//! except `synchronize`, and a copy from or to plain memory, for which the driver may wait.

use crate::device::calls::{Capture, CudaStream, DriverRows, Event, Told};
use crate::device::context::EnteredContext;
use crate::device::pinned::TimelineSemaphore;
use crate::error::{Error, Result};

/// The driver takes rows that are less far apart than this.
const PITCH_LIMIT: usize = 1 << 31;

impl EnteredContext<'_> {
    /// A graph would replay the numbers that a call writes and awaits, by then long passed.
    pub fn check_not_capturing(&self, stream: CudaStream) -> Result<()> {
        let text = match self.driver().capture(stream).told()? {
            Capture::None => return Ok(()),
            Capture::Active => "the stream is being captured into a CUDA graph",
            Capture::Implicit => {
                "the default stream cannot be used while another stream, for which it would wait, \
                 is being \
                 captured into a CUDA graph"
            }
        };
        Err(Error::Usage(format!("{text}; calls of nexar cannot be part of one")))
    }

    /// Between any two places that the device reaches: memory of devices, or pinned.
    pub fn copy(&self, to: u64, from: u64, bytes: usize, stream: CudaStream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.driver().copy(to, from, bytes, stream).told()
    }

    /// As `copy`, of `rows` rows of `width` bytes; a pitch is how far apart two rows begin, in
    /// bytes.
    #[expect(clippy::too_many_arguments, reason = "two sides, a size and a stream")]
    pub fn copy_rows(
        &self,
        to: u64,
        to_pitch: usize,
        from: u64,
        from_pitch: usize,
        width: usize,
        rows: usize,
        stream: CudaStream,
    ) -> Result<()> {
        if width == 0 || rows == 0 {
            return Ok(());
        }
        if rows == 1 || (to_pitch == width && from_pitch == width) {
            return self.copy(to, from, width * rows, stream);
        }
        if to_pitch < PITCH_LIMIT && from_pitch < PITCH_LIMIT {
            let to = DriverRows { address: to, pitch: to_pitch };
            let from = DriverRows { address: from, pitch: from_pitch };
            return self.driver().copy_rows(to, from, width, rows, stream).told();
        }
        let row = |start: u64, pitch: usize, row: usize| start + (pitch * row) as u64;
        (0..rows).try_for_each(|n| {
            self.copy(row(to, to_pitch, n), row(from, from_pitch, n), width, stream)
        })
    }

    /// A reader that sees the value sees everything that the stream did before.
    pub fn write_value(
        &self,
        semaphore: &TimelineSemaphore,
        value: u32,
        stream: CudaStream,
    ) -> Result<()> {
        self.driver().write_value(semaphore.device_address(), value, stream).told()
    }

    /// Waits in stream order until the cell, counted cyclically, has come to the value.
    pub fn wait_value(
        &self,
        semaphore: &TimelineSemaphore,
        value: u32,
        stream: CudaStream,
    ) -> Result<()> {
        self.driver().wait_value(semaphore.device_address(), value, stream).told()
    }

    /// Waits here until the stream has done all that was put on it, also while another is being
    /// captured.
    pub fn synchronize(&self, stream: CudaStream) -> Result<()> {
        let _relaxed = self.relax().told()?;
        self.driver().synchronize(stream).told()
    }

    /// Whether the stream has done all that was put on it. Fails if it never will.
    pub fn is_idle(&self, stream: CudaStream) -> Result<bool> {
        let _relaxed = self.relax().told()?;
        self.driver().is_idle(stream).told()
    }

    pub fn record(&self, event: &Event, stream: CudaStream) -> Result<()> {
        self.driver().record(event, stream).told()
    }

    /// Whether the device has come to the event. Fails if it never will.
    pub fn has_happened(&self, event: &Event) -> Result<bool> {
        let _relaxed = self.relax().told()?;
        self.driver().has_happened(event).told()
    }

    /// What is put on the stream later waits for what was before the event when it was last
    /// recorded.
    pub fn wait_event(&self, stream: CudaStream, event: &Event) -> Result<()> {
        self.driver().wait_event(stream, event).told()
    }
}
