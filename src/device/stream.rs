//! Enqueues work on a CUDA stream of the caller.
//!
//! Leaves to others what the work is part of. Invariant: each function returns before the device
//! has executed the work, except `synchronize`, and a copy from or to plain memory, for which the
//! driver may wait.

use crate::device::calls::{Capture, CudaStream, DriverRows, Event, OrCudaError};
use crate::device::context::EnteredContext;
use crate::device::pinned::TimelineSemaphore;
use crate::error::{Error, Result};

/// The driver accepts pitches below this.
const PITCH_LIMIT: usize = 1 << 31;

impl EnteredContext<'_> {
    /// Fails if the stream is being captured. A graph would replay the values that a call writes
    /// and awaits, which the semaphores have then long passed.
    pub fn check_not_capturing(&self, stream: CudaStream) -> Result<()> {
        let text = match self.driver().capture(stream).or_cuda_error()? {
            Capture::None => return Ok(()),
            Capture::Active => "the stream is being captured into a CUDA graph",
            Capture::Implicit => {
                "the default stream cannot be used while another stream, for which it would wait, \
                 is being captured into a CUDA graph"
            }
        };
        Err(Error::Usage(format!("{text}; calls of nexar cannot be captured")))
    }

    /// Enqueues a copy between any two addresses that the device can access: memory of devices, or
    /// pinned memory.
    pub fn copy(&self, to: u64, from: u64, bytes: usize, stream: CudaStream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.driver().copy(to, from, bytes, stream).or_cuda_error()
    }

    /// Enqueues a copy of `rows` rows of `width` bytes. A pitch is the distance between the starts
    /// of two rows, in bytes.
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
            return self.driver().copy_rows(to, from, width, rows, stream).or_cuda_error();
        }
        let row = |start: u64, pitch: usize, row: usize| start + (pitch * row) as u64;
        (0..rows).try_for_each(|n| {
            self.copy(row(to, to_pitch, n), row(from, from_pitch, n), width, stream)
        })
    }

    /// Enqueues a write of a value. A reader that sees the value sees everything that the stream
    /// has written before.
    pub fn write_value(
        &self,
        semaphore: &TimelineSemaphore,
        value: u32,
        stream: CudaStream,
    ) -> Result<()> {
        self.driver().write_value(semaphore.device_address(), value, stream).or_cuda_error()
    }

    /// Enqueues a wait until the semaphore has reached the value, compared modulo 2^32.
    pub fn wait_value(
        &self,
        semaphore: &TimelineSemaphore,
        value: u32,
        stream: CudaStream,
    ) -> Result<()> {
        self.driver().wait_value(semaphore.device_address(), value, stream).or_cuda_error()
    }

    /// Blocks the caller until the stream has executed all enqueued work. Allowed also while
    /// another stream is being captured.
    pub fn synchronize(&self, stream: CudaStream) -> Result<()> {
        let _relaxed = self.relax().or_cuda_error()?;
        self.driver().synchronize(stream).or_cuda_error()
    }

    /// Whether the stream has executed all enqueued work. Fails if it never will.
    pub fn is_idle(&self, stream: CudaStream) -> Result<bool> {
        let _relaxed = self.relax().or_cuda_error()?;
        self.driver().is_idle(stream).or_cuda_error()
    }

    pub fn record(&self, event: &Event, stream: CudaStream) -> Result<()> {
        self.driver().record(event, stream).or_cuda_error()
    }

    /// Whether the device has reached the event. Fails if it never will.
    pub fn has_happened(&self, event: &Event) -> Result<bool> {
        let _relaxed = self.relax().or_cuda_error()?;
        self.driver().has_happened(event).or_cuda_error()
    }

    /// Makes later work of the stream wait for the work that preceded the last record of the event.
    pub fn wait_event(&self, stream: CudaStream, event: &Event) -> Result<()> {
        self.driver().wait_event(stream, event).or_cuda_error()
    }
}
