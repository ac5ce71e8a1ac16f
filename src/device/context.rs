//! A device and the context that calls about it are made in, current for as long as they need it.
//!
//! Leaves to `stream` what is done in it. Invariants: who has entered leaves on every path, so that
//! the program finds its own context current as before; a primary context that is kept here is
//! released; what is given back to a driver or a context that is gone is left as it is, without a
//! word to the caller.

use std::marker::PhantomData;

use cudarc::driver::sys::CUdevice;
use tracing::debug;

use crate::device::calls::{DriverContext, Event, RELAXED, Told};
use crate::device::driver::{Driver, Failed};
use crate::device::pinned::Pinned;
use crate::device::{driver, why_not};
use crate::error::{Error, Result};

/// The device of a communicator and the context its calls are made in. It is to be dropped by a
/// thread of the program, since that may call the driver.
pub struct Device {
    driver: &'static Driver,
    device: CUdevice,
    ordinal: i32,
    context: DriverContext,
    /// The context is the primary one of the device, which stays at least as long as this.
    is_retained: bool,
}

impl Device {
    /// The device of the calling thread: that of its current context. If it has none, device 0, if
    /// its primary context is active: there the CUDA runtime works unless it is told otherwise.
    /// `None`: this process has not used CUDA yet.
    pub fn current() -> Result<Option<Self>> {
        let Some(driver) = driver() else { return Ok(None) };
        let Some(context) = driver.current_context().told()? else {
            let is_active =
                driver.device(0).and_then(|device| driver.primary_is_active(device)).told()?;
            return if is_active { Self::primary(0).map(Some) } else { Ok(None) };
        };
        let device = driver.current_device().told()?;
        let ordinal = ordinal_of(driver, device)?;
        // Most contexts are primary ones: the program may then release it before the communicator.
        if driver.primary_is_active(device).told()? {
            let primary = Self::retained(driver, device, ordinal)?;
            if primary.context == context {
                return Ok(Some(primary));
            }
        }
        Ok(Some(Self { driver, device, ordinal, context, is_retained: false }))
    }

    /// The primary context of a device, retained until drop.
    pub fn primary(ordinal: i32) -> Result<Self> {
        let driver = driver().ok_or_else(|| Error::Cuda(why_not().to_owned()))?;
        Self::retained(driver, driver.device(ordinal).told()?, ordinal)
    }

    /// The same, if there is such a device.
    pub fn if_there(ordinal: i32) -> Result<Option<Self>> {
        let devices = driver().map_or(0, Driver::device_count);
        let exists = usize::try_from(ordinal).is_ok_and(|ordinal| ordinal < devices);
        exists.then(|| Self::primary(ordinal)).transpose()
    }

    fn retained(driver: &'static Driver, device: CUdevice, ordinal: i32) -> Result<Self> {
        let context = driver.retain_primary(device).told()?;
        Ok(Self { driver, device, ordinal, context, is_retained: true })
    }

    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Makes the context current on this thread until the result is dropped.
    pub fn enter(&self) -> Result<EnteredContext<'_>> {
        self.try_enter().told()
    }

    fn try_enter(&self) -> std::result::Result<EnteredContext<'_>, Failed> {
        self.driver.push(self.context)?;
        Ok(EnteredContext { device: self, stays_in_its_thread: PhantomData })
    }

    /// Memory of this device, for the program. May wait for all work of the device.
    pub fn allocate_memory(&self, bytes: usize) -> Result<u64> {
        let entered = self.enter()?;
        let _relaxed = entered.relax().told()?;
        self.driver.allocate_on_device(bytes).told()
    }

    /// Frees what `allocate_memory` has given, which the program does not use any more.
    pub fn free_memory(&self, address: u64) -> Result<()> {
        let entered = self.enter()?;
        let _relaxed = entered.relax().told()?;
        self.driver.free_on_device(address).told()
    }

    /// Gives memory back that neither the program nor a stream uses any more, also by a cell.
    pub fn free(&self, pinned: Pinned) {
        let freed = self.try_enter().and_then(|entered| {
            let _relaxed = entered.relax()?;
            self.driver.free_host(pinned.host())
        });
        forgive(freed);
    }

    /// Whether it is the same context of the same device.
    pub fn is_same(&self, other: &Self) -> bool {
        self.context == other.context
    }

    /// Whether memory that was allocated here has not been freed, as it is when a program resets
    /// the device.
    pub fn still_has(&self, pinned: &Pinned) -> bool {
        let id = self.try_enter().and_then(|_entered| self.driver.buffer_id(pinned.host()));
        id.is_ok_and(|id| id == pinned.id())
    }

    pub fn destroy_event(&self, event: Event) {
        forgive(self.try_enter().and_then(|_entered| self.driver.destroy_event(event)));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_retained {
            forgive(self.driver.release_primary(self.device));
        }
    }
}

/// What cannot be given back stays: the context or the driver is gone, or will not do any more
/// work.
pub(super) fn forgive(ended: std::result::Result<(), Failed>) {
    if let Err(failed) = ended {
        debug!("{failed}; what was to be given back is left to the driver");
    }
}

/// The number by which the program knows a device.
fn ordinal_of(driver: &Driver, device: CUdevice) -> Result<i32> {
    for ordinal in 0..driver.device_count() as i32 {
        if driver.device(ordinal).told()? == device {
            return Ok(ordinal);
        }
    }
    Err(Error::Cuda(format!("the current context is that of device {device}, which is none")))
}

/// A device whose context is current on this thread. Each thread has its own stack of contexts, so
/// this stays in the thread where it was made.
pub struct EnteredContext<'a> {
    device: &'a Device,
    stays_in_its_thread: PhantomData<*mut ()>,
}

impl EnteredContext<'_> {
    pub(super) fn driver(&self) -> &'static Driver {
        self.device.driver
    }

    pub(super) fn ordinal(&self) -> i32 {
        self.device.ordinal
    }

    pub fn create_event(&self) -> Result<Event> {
        self.driver().create_event().told()
    }

    /// Memory that the program and the device reach, with anything in it. May wait for all work of
    /// the device.
    pub fn allocate(&self, bytes: usize) -> Result<Pinned> {
        let driver = self.driver();
        let _relaxed = self.relax().told()?;
        let host = driver.allocate_host(bytes).told()?;
        let described = driver.device_address(host).and_then(|device| {
            let id = driver.buffer_id(host)?;
            Ok(Pinned::new(host, device, bytes, id))
        });
        described.inspect_err(|_| forgive(driver.free_host(host))).told()
    }

    /// Lets this thread do, until the result is dropped, what a capture of another stream forbids
    /// all threads, and what does not disturb it: memory that no stream uses is got and freed.
    pub(super) fn relax(&self) -> std::result::Result<Relaxed, Failed> {
        let driver = self.driver();
        let before = driver.exchange_capture_mode(RELAXED)?;
        Ok(Relaxed { driver, before })
    }
}

impl Drop for EnteredContext<'_> {
    fn drop(&mut self) {
        forgive(self.driver().pop());
    }
}

pub(super) struct Relaxed {
    driver: &'static Driver,
    before: u32,
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        forgive(self.driver.exchange_capture_mode(self.before).map(drop));
    }
}
