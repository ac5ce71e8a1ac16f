//! A device, and its context while that is current on a thread.
//!
//! Leaves to `stream` the work that is enqueued in the context. Invariants: every context that is
//! pushed is popped on every path, so that the program's own context stays current; every primary
//! context that is retained is released; a failure to release a resource is logged and not
//! returned, because the driver or the context may no longer exist.

use std::marker::PhantomData;

use cudarc::driver::sys::CUdevice;
use tracing::debug;

use crate::device::calls::{DriverContext, Event, OrCudaError, RELAXED};
use crate::device::driver::{Driver, DriverError};
use crate::device::pinned::Pinned;
use crate::device::{driver, unavailable_reason};
use crate::error::{Error, Result};

/// The device of a communicator, and the context in which its calls of the driver execute. A thread
/// of the program must drop it, because the drop calls the driver.
pub struct Device {
    driver: &'static Driver,
    device: CUdevice,
    ordinal: i32,
    context: DriverContext,
    /// Whether `context` is the device's primary context, which this value has retained.
    is_retained: bool,
}

impl Device {
    /// The device of the calling thread's current context. Without a current context: device 0, the
    /// default of the CUDA runtime, if its primary context is active. `None`: this process has not
    /// used CUDA yet.
    pub fn current() -> Result<Option<Self>> {
        let Some(driver) = driver() else { return Ok(None) };
        let Some(context) = driver.current_context().or_cuda_error()? else {
            let is_active = driver
                .device(0)
                .and_then(|device| driver.primary_is_active(device))
                .or_cuda_error()?;
            return if is_active { Self::primary(0).map(Some) } else { Ok(None) };
        };
        let device = driver.current_device().or_cuda_error()?;
        let ordinal = ordinal_of(driver, device)?;
        // Retains a primary context: the program may release it before the communicator ends.
        if driver.primary_is_active(device).or_cuda_error()? {
            let primary = Self::retained(driver, device, ordinal)?;
            if primary.context == context {
                return Ok(Some(primary));
            }
        }
        Ok(Some(Self { driver, device, ordinal, context, is_retained: false }))
    }

    /// The device with its primary context, which is retained until drop.
    pub fn primary(ordinal: i32) -> Result<Self> {
        let driver = driver().ok_or_else(|| Error::Cuda(unavailable_reason().to_owned()))?;
        Self::retained(driver, driver.device(ordinal).or_cuda_error()?, ordinal)
    }

    /// The device with its primary context. `None`: no device has this ordinal.
    pub fn find(ordinal: i32) -> Result<Option<Self>> {
        let devices = driver().map_or(0, Driver::device_count);
        let exists = usize::try_from(ordinal).is_ok_and(|ordinal| ordinal < devices);
        exists.then(|| Self::primary(ordinal)).transpose()
    }

    fn retained(driver: &'static Driver, device: CUdevice, ordinal: i32) -> Result<Self> {
        let context = driver.retain_primary(device).or_cuda_error()?;
        Ok(Self { driver, device, ordinal, context, is_retained: true })
    }

    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Makes the context current on this thread until the returned guard is dropped.
    pub fn enter(&self) -> Result<EnteredContext<'_>> {
        self.try_enter().or_cuda_error()
    }

    fn try_enter(&self) -> std::result::Result<EnteredContext<'_>, DriverError> {
        self.driver.push(self.context)?;
        Ok(EnteredContext { device: self, not_send: PhantomData })
    }

    /// Allocates memory of this device for the program. May wait for all work of the device.
    pub fn allocate_memory(&self, bytes: usize) -> Result<u64> {
        let entered = self.enter()?;
        let _relaxed = entered.relax().or_cuda_error()?;
        self.driver.allocate_on_device(bytes).or_cuda_error()
    }

    /// Frees memory of `allocate_memory`. The program must no longer use it.
    pub fn free_memory(&self, address: u64) -> Result<()> {
        let entered = self.enter()?;
        let _relaxed = entered.relax().or_cuda_error()?;
        self.driver.free_on_device(address).or_cuda_error()
    }

    /// Frees pinned memory. Neither this process nor a stream may still use it or a semaphore in
    /// it.
    pub fn free(&self, pinned: Pinned) {
        let freed = self.try_enter().and_then(|entered| {
            let _relaxed = entered.relax()?;
            self.driver.free_host(pinned.host())
        });
        log_failure(freed);
    }

    /// Whether both are the same context of the same device.
    pub fn is_same(&self, other: &Self) -> bool {
        self.context == other.context
    }

    /// Whether memory that was allocated here still exists. It does not if the program has reset
    /// the device.
    pub fn still_owns(&self, pinned: &Pinned) -> bool {
        let id = self.try_enter().and_then(|_entered| self.driver.buffer_id(pinned.host()));
        id.is_ok_and(|id| id == pinned.id())
    }

    pub fn destroy_event(&self, event: Event) {
        log_failure(self.try_enter().and_then(|_entered| self.driver.destroy_event(event)));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_retained {
            log_failure(self.driver.release_primary(self.device));
        }
    }
}

/// Logs that a resource could not be released: the context or the driver no longer exists, or
/// refuses all work.
pub(super) fn log_failure(released: std::result::Result<(), DriverError>) {
    if let Err(error) = released {
        debug!("{error}; the resource is not released");
    }
}

/// The number by which the program names a device.
fn ordinal_of(driver: &Driver, device: CUdevice) -> Result<i32> {
    for ordinal in 0..driver.device_count() as i32 {
        if driver.device(ordinal).or_cuda_error()? == device {
            return Ok(ordinal);
        }
    }
    Err(Error::Cuda(format!("the current context is of device {device}, which does not exist")))
}

/// A guard while the device's context is current on this thread. Not `Send`, because each thread
/// has its own stack of contexts.
pub struct EnteredContext<'a> {
    device: &'a Device,
    not_send: PhantomData<*mut ()>,
}

impl EnteredContext<'_> {
    pub(super) fn driver(&self) -> &'static Driver {
        self.device.driver
    }

    pub(super) fn ordinal(&self) -> i32 {
        self.device.ordinal
    }

    pub fn create_event(&self) -> Result<Event> {
        self.driver().create_event().or_cuda_error()
    }

    /// Allocates pinned memory, which host and device can access. Its contents are undefined. May
    /// wait for all work of the device.
    pub fn allocate(&self, bytes: usize) -> Result<Pinned> {
        let driver = self.driver();
        let _relaxed = self.relax().or_cuda_error()?;
        let host = driver.allocate_host(bytes).or_cuda_error()?;
        let described = driver.device_address(host).and_then(|device| {
            let id = driver.buffer_id(host)?;
            Ok(Pinned::new(host, device, bytes, id))
        });
        described.inspect_err(|_| log_failure(driver.free_host(host))).or_cuda_error()
    }

    /// Sets this thread's capture mode to relaxed until the returned guard is dropped. A capture in
    /// another thread would otherwise forbid this one to allocate, free and query; none of these
    /// calls disturbs the capture.
    pub(super) fn relax(&self) -> std::result::Result<Relaxed, DriverError> {
        let driver = self.driver();
        let before = driver.exchange_capture_mode(RELAXED)?;
        Ok(Relaxed { driver, before })
    }
}

impl Drop for EnteredContext<'_> {
    fn drop(&mut self) {
        log_failure(self.driver().pop());
    }
}

pub(super) struct Relaxed {
    driver: &'static Driver,
    before: u32,
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        log_failure(self.driver.exchange_capture_mode(self.before).map(drop));
    }
}
