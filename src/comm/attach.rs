//! Which device a communicator has, and which of a call's buffers lie there.
//!
//! It gets one when it is made, if the program has used CUDA by then, else with its first call that needs one.
//! Leaves to `device::kind` what memory is at an address. Invariants: a communicator has one device, to its end;
//! buffers of another are refused.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::device::{CudaStream, Device, Kind, kind_of};
use crate::error::{Error, Result};

use super::Communicator;
use super::cuda::Cuda;
use super::layout::OnDevice;
use super::work::Work;

/// What of a request lies on a device, and the stream it is made in the order of.
#[derive(Clone)]
pub struct OnCuda {
    pub(super) stream: CudaStream,
    pub(super) device: OnDevice,
}

impl OnCuda {
    pub fn stream(&self) -> CudaStream {
        self.stream
    }
}

impl Communicator {
    /// Whether and where the buffers of an operation lie on a device; `stream` if it is one of CUDA's.
    pub fn on_cuda(&self, work: &Work<'_>, stream: Option<CudaStream>) -> Result<Option<OnCuda>> {
        let own = self.device();
        let mut expected = self.cuda_device().or(self.wanted_device.get().copied());
        let mut is_on_device = |name: &str, range: &Range<usize>| {
            let (Kind::Device { ordinal } | Kind::Managed { ordinal }) =
                kind_of(name, range, own.as_deref())?
            else {
                return Ok(false);
            };
            let expected = *expected.get_or_insert(ordinal);
            if expected != ordinal {
                let what = format!("{name} is on device {ordinal}, not on device {expected}");
                return Err(Error::Argument(what));
            }
            Ok(true)
        };
        let mut found = OnDevice::default();
        for (name, bytes) in work.memory() {
            let start = bytes.as_ptr().addr();
            let range = start..start + bytes.len();
            if is_on_device(name, &range)? {
                found.0.push(range);
            }
        }
        if let Some(range) = work.scalar()
            && is_on_device("the scalar of the operator", &range)?
        {
            found.0.push(range);
        }
        if found.0.is_empty() && stream.is_none() {
            return Ok(None);
        }
        self.attach_if_needed(expected)?;
        let stream = stream.unwrap_or(CudaStream(std::ptr::null_mut()));
        Ok(Some(OnCuda { stream, device: found }))
    }

    /// The number of its device, if it has one.
    pub fn cuda_device(&self) -> Option<i32> {
        self.cuda.get().map(|cuda| cuda.ordinal())
    }

    /// The device itself.
    pub fn device(&self) -> Option<Arc<Device>> {
        self.cuda.get().and_then(|cuda| cuda.device().ok())
    }

    /// The program has named a device for it, which it gets at once: later other ranks of this process may have
    /// work under way that waits for this one, and a device may wait for that before it gives memory.
    pub fn want_device(&self, ordinal: i32) -> Result<()> {
        let _ = self.wanted_device.set(ordinal);
        match Device::if_there(ordinal)? {
            Some(device) => self.attach(Arc::new(device)),
            None => Ok(()),
        }
    }

    /// Gives it a device, before any operation. Must be called by a thread of the program, or by the one that
    /// makes the communicator.
    pub fn attach(&self, device: Arc<Device>) -> Result<()> {
        let made = Cuda::new(device, self.config.cuda_holds)?;
        let _ = self.cuda.set(made);
        Ok(())
    }

    /// The program had used no device when the communicator was made. `expected`: one that it must be.
    fn attach_if_needed(&self, expected: Option<i32>) -> Result<()> {
        let _attaching = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cuda.get().is_some() {
            return Ok(());
        }
        let current =
            Device::current()?.filter(|here| expected.is_none_or(|it| it == here.ordinal()));
        let device = current.map_or_else(|| Device::primary(expected.unwrap_or(0)), Ok)?;
        self.attach(Arc::new(device))
    }
}
