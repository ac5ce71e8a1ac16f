//! What a communicator has for the memory of a CUDA device, from its first use to its end.
//!
//! `attach` gives a communicator its device, `enqueue` puts operations on the caller's streams, `staged` makes
//! them. Leaves to `device` the driver. Invariants:
//! - what is enqueued for a communicator is ordered on the device as it was called, on whichever streams;
//! - the driver is called by threads of the program, and by the one that makes communicators in the background;
//! - memory is given back when no stream needs it, and only then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

use crate::cut::SLOT;
use crate::device::staging::Staging;
use crate::device::{CudaStream, Device, Entered, Event};
use crate::comm::Stream;
use crate::error::{Error, Result};

use super::allocation::{self, Patience};
use super::pinned_pool;

/// How a communicator ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Destroyed,
    Aborted,
}

impl Ending {
    /// How long it waits for a device that has all it needs.
    fn patience(self) -> Duration {
        match self {
            Self::Destroyed => Duration::from_secs(30),
            Self::Aborted => Duration::from_millis(500),
        }
    }
}

/// Who waits for a device looks so often whether it is done, and whether it still works.
const LOOK: Duration = Duration::from_micros(100);
pub const DEVICE_LOOK: Duration = Duration::from_millis(100);

/// Most bytes of a piece, which may need a scalar besides its data.
const PIECE: usize = SLOT + 4096;

/// A communicator that is being made waits for the memory of other ranks of its process.
const PATIENCE_WHEN_MADE: Patience =
    Patience { streams: Duration::from_millis(200), allocations: Duration::from_secs(10) };
/// The streams that are inside calls may wait for this very call.
const PATIENCE_IN_CALL: Patience =
    Patience { streams: Duration::from_millis(20), allocations: Duration::from_millis(250) };

pub struct Cuda {
    ordinal: i32,
    device: Mutex<DeviceUse>,
    /// Makes what was enqueued.
    worker: Arc<Stream>,
    /// `None`: streams of the device cannot wait for numbers, so callers do. Callers also wait while it is not
    /// set: a stream of this process was inside a call whenever memory was wanted.
    staging: OnceLock<Option<Arc<Staging>>>,
    getting_memory: Mutex<()>,
    order: Mutex<Order>,
    /// A failed operation holds its stream until the communicator is aborted or destroyed.
    pub holds: bool,
    /// Whether it was told that a caller waits.
    has_told: AtomicBool,
}

/// The last reference to a device calls the driver when it is dropped, which must not be in a thread of ours. So it
/// is taken out by who ends its use.
enum DeviceUse {
    Open(Arc<Device>),
    /// The communicator has ended. Whoever has the order next gives all back.
    Ending(Arc<Device>, Ending),
    Ended,
}

impl Cuda {
    /// For a communicator that is being made.
    pub fn new(device: Arc<Device>, holds: bool) -> Result<Arc<Self>> {
        Self::with_patience(device, holds, PATIENCE_WHEN_MADE)
    }

    /// For a communicator that a call is made on.
    pub fn new_in_call(device: Arc<Device>, holds: bool) -> Result<Arc<Self>> {
        Self::with_patience(device, holds, PATIENCE_IN_CALL)
    }

    fn with_patience(device: Arc<Device>, holds: bool, patience: Patience) -> Result<Arc<Self>> {
        let ordinal = device.ordinal();
        let worker = Stream::new()?;
        let event = device.enter()?.create_event()?;
        let staging = match staging_for(&device, patience) {
            Ok(staging) => staging.map_or_else(OnceLock::new, OnceLock::from),
            Err(error) => {
                device.destroy_event(event);
                return Err(error);
            }
        };
        if staging.get().is_none() {
            warn!(
                "device {ordinal}: no pinned memory is allocated while a stream of this process is \
                 inside a call; until it can be, calls on memory of the device return when they have ended"
            );
        }
        Ok(Arc::new(Self {
            ordinal,
            device: Mutex::new(DeviceUse::Open(device)),
            worker,
            staging,
            getting_memory: Mutex::new(()),
            order: Mutex::new(Order { event: Some(event), last: None, is_recorded: true }),
            holds,
            has_told: AtomicBool::new(false),
        }))
    }

    /// Whether it has the memory that it needs on this device.
    pub fn has_memory(&self) -> bool {
        self.staging.get().is_some()
    }

    /// Gets the memory that could not be had before, if it can be had at once. Callers wait as before if it
    /// cannot.
    pub fn get_memory(&self) {
        let Ok(_alone) = self.getting_memory.try_lock() else { return };
        if self.has_memory() {
            return;
        }
        let Ok(device) = self.device() else { return };
        let staging = match staging_for(&device, Patience::NONE) {
            Ok(Some(staging)) => staging,
            Ok(None) => return,
            Err(error) => return debug!("device {}: still without memory: {error}", self.ordinal),
        };
        // Under the lock of its end: memory that comes later would not be given back.
        let device_use = self.device_use();
        match (&*device_use, staging) {
            (DeviceUse::Open(_), staging) => _ = self.staging.set(staging),
            (_, Some(staging)) => pinned_pool::keep(staging, device),
            (_, None) => {}
        }
    }

    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Fails when the communicator has ended.
    pub fn device(&self) -> Result<Arc<Device>> {
        match &*self.device_use() {
            DeviceUse::Open(device) => Ok(Arc::clone(device)),
            DeviceUse::Ending(..) | DeviceUse::Ended => Err(Error::Aborted),
        }
    }

    fn device_use(&self) -> MutexGuard<'_, DeviceUse> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn staging(&self) -> Option<&Arc<Staging>> {
        self.staging.get().and_then(Option::as_ref)
    }

    /// The thread that makes its operations, which never calls the driver.
    pub fn worker(&self) -> &Arc<Stream> {
        &self.worker
    }

    /// Says, once, that a caller waits for what would else be made behind its back.
    pub fn tell_that_callers_wait(&self, bytes: usize) {
        if self.staging().is_some() && !self.has_told.swap(true, Ordering::Relaxed) {
            info!("device {}: {bytes} bytes at once, the caller waits", self.ordinal);
        }
    }

    /// While this is held nobody else enqueues anything for the communicator.
    pub fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, if it can be had in time: who enqueues may stand still in the driver.
    fn lock_within(&self, patience: Duration) -> Option<MutexGuard<'_, Order>> {
        let until = Instant::now() + patience;
        loop {
            match self.order.try_lock() {
                Ok(order) => return Some(order),
                Err(TryLockError::Poisoned(order)) => return Some(order.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Nothing more is enqueued for now: has the device say when it has done all that was.
    pub fn rest(&self, order: &mut Order, entered: &Entered<'_>) -> Result<()> {
        if let (Some(staging), Some(stream)) = (self.staging(), order.unrested()) {
            staging.retire(|cell, value| entered.write_value(cell, value, stream))?;
        }
        order.rest(entered)
    }

    /// As `rest`, after something could not be enqueued. If this cannot either, nobody will ever know when the
    /// device needs the memory no more.
    pub fn settle(&self, order: &mut Order, device: &Device) {
        let rested = device.enter().and_then(|entered| self.rest(order, &entered));
        if let (Err(_), Some(staging)) = (rested, self.staging()) {
            staging.lose();
        }
    }

    /// Lets the device go on with all that was enqueued.
    pub fn release(&self) {
        if let Some(staging) = self.staging() {
            staging.release();
        }
    }

    /// Why its device does nothing of what was put on streams any more, if that is so and can be seen now.
    pub fn why_broken(&self) -> Option<Error> {
        let order = self.lock_within(Duration::ZERO)?;
        why_broken(&*self.device().ok()?, &order)
    }

    /// Everything enqueued has ended: waits until the device has done its part, and gives all back.
    pub fn close(&self, ending: Ending) {
        self.worker.close();
        let mut device_use = self.device_use();
        if let DeviceUse::Open(device) = &*device_use {
            *device_use = DeviceUse::Ending(Arc::clone(device), ending);
        }
        drop(device_use);
        self.give_back(ending.patience());
    }

    /// Gives all back if the communicator has ended. If a call stands still in the driver, it does so when it
    /// goes on.
    pub fn give_back(&self, patience: Duration) {
        if !matches!(*self.device_use(), DeviceUse::Ending(..)) {
            return;
        }
        let Some(mut order) = self.lock_within(patience) else { return };
        let device_use = std::mem::replace(&mut *self.device_use(), DeviceUse::Ended);
        let DeviceUse::Ending(device, ending) = device_use else { return };
        if let Some(staging) = self.staging() {
            if self.holds {
                staging.release();
            }
            wait_for_device(staging, &device, &order, ending.patience());
            if !staging.is_lost() {
                pinned_pool::keep(Arc::clone(staging), Arc::clone(&device));
            }
        }
        if let Some(event) = order.event.take() {
            device.destroy_event(event);
        }
        drop(order);
        if ending == Ending::Destroyed {
            pinned_pool::free();
        }
    }
}

/// Pinned memory of a communicator on this device: the inner `None` if its streams cannot wait for numbers, the
/// outer one if memory cannot be had now, because a stream of this process stays inside a call.
fn staging_for(device: &Arc<Device>, patience: Patience) -> Result<Option<Option<Arc<Staging>>>> {
    let (ordinal, entered) = (device.ordinal(), device.enter()?);
    let known = entered.memops_work();
    if known == Some(false) {
        return Ok(Some(None));
    }
    let got = match known.and_then(|_| pinned_pool::take(device)) {
        Some(pinned) => Some((pinned, None)),
        None => allocation::while_no_stream_waits(patience, || {
            let pinned = entered.allocate(Staging::bytes_of(PIECE))?;
            Ok((pinned, known.is_none().then(|| entered.trial_stream())))
        })
        .transpose()?,
    };
    let pinned = match got {
        None => return Ok(None),
        Some((pinned, None)) => pinned,
        // Outside of the allocation: the device may be busy for seconds.
        Some((pinned, Some(stream))) => match entered.try_memops(stream, pinned) {
            (true, Some(pinned)) => pinned,
            (true, None) => return Ok(None),
            (false, settled) => {
                if let Some(unused) = settled {
                    pinned_pool::keep(Staging::new(unused, PIECE), Arc::clone(device));
                    pinned_pool::free();
                }
                return Ok(Some(None));
            }
        },
    };
    let staging = Staging::new(pinned, PIECE);
    allocation::watch(&staging);
    info!("device {ordinal}: {} KiB of pinned memory", Staging::bytes_of(PIECE) >> 10);
    Ok(Some(Some(staging)))
}

/// Waits until the device has done all that was enqueued, or never will.
fn wait_for_device(staging: &Staging, device: &Device, order: &Order, patience: Duration) {
    let ordinal = device.ordinal();
    let is_done = || staging.is_idle() || staging.is_lost();
    let until = Instant::now() + patience;
    let mut next_look = Instant::now() + DEVICE_LOOK;
    while !is_done() && Instant::now() < until {
        std::thread::sleep(LOOK);
        if Instant::now() >= next_look {
            next_look += DEVICE_LOOK;
            if let Some(why) = why_broken(device, order) {
                warn!("device {ordinal} has broken, its pinned memory is lost: {why}");
                staging.lose();
                // Nothing will end what it has not come to.
                staging.release();
            }
        }
    }
    if !is_done() {
        warn!("device {ordinal}: a stream stands still, its pinned memory is kept");
    }
}

/// A device that has broken says so whatever it is asked.
fn why_broken(device: &Device, order: &Order) -> Option<Error> {
    let event = order.event.as_ref()?;
    device.enter().and_then(|entered| entered.has_happened(event)).err()
}

/// In which order things were enqueued on streams.
pub struct Order {
    /// Until the communicator ends.
    event: Option<Event>,
    last: Option<CudaStream>,
    /// Whether `event` stands behind all of it.
    is_recorded: bool,
}

impl Order {
    /// What is put on this stream next comes behind all that was enqueued before.
    pub fn go_on_with(&mut self, stream: CudaStream, entered: &Entered<'_>) -> Result<()> {
        let Some(event) = &self.event else { return Ok(()) };
        match self.last {
            None => {}
            // Between two calls the program may have got another stream with the same handle.
            Some(last) if last == stream && !self.is_recorded => {}
            Some(last) => {
                if !self.is_recorded {
                    entered.record(event, last)?;
                }
                entered.wait_event(stream, event)?;
            }
        }
        (self.last, self.is_recorded) = (Some(stream), false);
        Ok(())
    }

    /// All that was enqueued has been done: nothing comes behind it.
    pub fn clear(&mut self) {
        (self.last, self.is_recorded) = (None, true);
    }

    /// The stream that something was put on since the last rest.
    fn unrested(&self) -> Option<CudaStream> {
        self.last.filter(|_| !self.is_recorded)
    }

    /// The caller may destroy its streams.
    fn rest(&mut self, entered: &Entered<'_>) -> Result<()> {
        if let (Some(event), Some(last)) = (&self.event, self.unrested()) {
            entered.record(event, last)?;
            self.is_recorded = true;
        }
        Ok(())
    }
}
