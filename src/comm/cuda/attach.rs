//! The device of a communicator, and which buffers of a call are on it.
//!
//! A communicator gets its device before its ranks connect, if the program has used CUDA by then,
//! else in the first call that needs one. Leaves to `device::kind` the kind of memory at an
//! address. Invariants: a communicator keeps one device to its end; buffers on another device are
//! refused; no rank starts a call before every rank that had a device when it joined has its pinned
//! memory.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::comm::{Communicator, Work};
use crate::config::Config;
use crate::device::{CudaStream, Device, MemoryKind, kind_of};
use crate::error::{Error, Result};
use crate::rank::Rank;

use super::layout::OnDevice;
use super::state::{CudaState, Ending};

/// The device that is current in a thread of the program, if it has used one, or why that device
/// cannot be used.
pub type CurrentDevice = Result<Option<Arc<Device>>>;

/// The device that is current in the calling thread.
pub fn current_device() -> CurrentDevice {
    Device::current().map(|device| device.map(Arc::new))
}

/// Which buffers of a request are on a device, and the CUDA stream that orders it.
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
    /// Finds the buffers of an operation that are on a device. `stream`: the CUDA stream that the
    /// caller named. `None` if no buffer is on a device and no such stream was named.
    pub(in crate::comm) fn on_cuda(
        &self,
        work: &Work<'_>,
        stream: Option<CudaStream>,
    ) -> Result<Option<OnCuda>> {
        let own = self.device();
        let mut expected = self.cuda_device().or(self.wanted_device.get().copied());
        let mut is_on_device = |name: &str, range: &Range<usize>| {
            let (MemoryKind::Device { ordinal } | MemoryKind::Managed { ordinal }) =
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
        work.check_can_be_staged()?;
        self.attach_if_needed(expected)?;
        let stream = stream.unwrap_or(CudaStream(std::ptr::null_mut()));
        Ok(Some(OnCuda { stream, device: found }))
    }

    /// Whether a buffer of an operation is in the memory of a device.
    pub(in crate::comm) fn is_on_device(&self, work: &Work<'_>) -> Result<bool> {
        let own = self.device();
        for (name, bytes) in work.memory() {
            let start = bytes.as_ptr().addr();
            let kind = kind_of(name, &(start..start + bytes.len()), own.as_deref())?;
            if let MemoryKind::Device { .. } | MemoryKind::Managed { .. } = kind {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The ordinal of the communicator's device, if it has one.
    pub fn cuda_device(&self) -> Option<i32> {
        self.cuda.get().map(|cuda| cuda.ordinal())
    }

    /// The communicator's device, if it has one and has not ended.
    pub(in crate::comm) fn device(&self) -> Option<Arc<Device>> {
        self.cuda.get().and_then(|cuda| cuda.device().ok())
    }

    /// Attaches the device that the program has named, before any rank of the communicator is used.
    pub fn want_device(&self, ordinal: i32) -> Result<()> {
        let _ = self.wanted_device.set(ordinal);
        let prepare = || match Device::find(ordinal)? {
            Some(device) => {
                self.attach(CudaState::new(Arc::new(device), self.config.cuda_hold_on_error))
            }
            None => Ok(()),
        };
        prepare().map_err(|cause| unusable(self.me().rank, &cause))
    }

    fn attach(&self, cuda: Result<Arc<CudaState>>) -> Result<()> {
        let _ = self.cuda.set(cuda?);
        Ok(())
    }

    /// Attaches a device in a call, because the program had used none when the communicator was
    /// created. `expected`: the ordinal that the device must have.
    fn attach_if_needed(&self, expected: Option<i32>) -> Result<()> {
        if self.cuda.get().is_some() {
            return Ok(());
        }
        let _attaching = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cuda.get().is_some() {
            return Ok(());
        }
        let current =
            Device::current()?.filter(|here| expected.is_none_or(|it| it == here.ordinal()));
        let device = current.map_or_else(|| Device::primary(expected.unwrap_or(0)), Ok)?;
        self.attach(CudaState::new_in_call(Arc::new(device), self.config.cuda_hold_on_error))?;
        // A thread that has ended the communicator meanwhile may not have seen this device.
        if let (false, Some(cuda)) = (self.is_open(), self.cuda.get()) {
            cuda.close(Ending::Aborted);
        }
        Ok(())
    }
}

/// The state of a rank's device while its communicator is being created. The exchange in which the
/// ranks connect is the barrier before the first call: every rank has its pinned memory by then.
/// The drop frees that memory, so a thread of the program, or the one that creates the
/// communicator, must drop this.
#[derive(Default)]
pub struct Prepared(Option<Result<Arc<CudaState>>>);

impl Prepared {
    pub fn new(device: CurrentDevice, config: &Config) -> Self {
        let device = device.transpose();
        Self(
            device.map(|device| {
                device.and_then(|one| CudaState::new(one, config.cuda_hold_on_error))
            }),
        )
    }

    /// Why the device cannot be used. The other ranks receive this once the ranks have connected.
    pub fn failure(&self, rank: Rank) -> Option<Error> {
        self.0.as_ref()?.as_ref().err().map(|cause| unusable(rank, cause))
    }

    /// Attaches the device to the communicator that was created.
    pub fn attach_to(mut self, communicator: Arc<Communicator>) -> Arc<Communicator> {
        if let Some(Ok(cuda)) = self.0.take() {
            let _ = communicator.cuda.set(cuda);
        }
        communicator
    }
}

fn unusable(rank: Rank, cause: &Error) -> Error {
    Error::Cuda(format!("{rank}, preparing its device: {cause}"))
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(Ok(cuda)) = &self.0 {
            cuda.close(Ending::Destroyed);
        }
    }
}
