//! What a communicator has for its CUDA device, from the first use of the device to the end of the
//! communicator.
//!
//! `attach` creates it, `enqueue` puts operations on the caller's streams, `staged` executes them.
//! Leaves to `device` the driver. Invariants:
//! - the device executes what was enqueued for a communicator in the order of the calls, on
//!   whichever streams;
//! - the driver is called by threads of the program, and by the thread that creates communicators
//!   in the background;
//! - pinned memory is freed or reused only when no stream uses it any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

use crate::comm::Stream;
use crate::cut::SLOT;
use crate::device::staging::Staging;
use crate::device::{self, CudaStream, Device, EnteredContext, Event};
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
    /// How long to wait for a device that can complete everything that was enqueued.
    fn patience(self) -> Duration {
        match self {
            Self::Destroyed => Duration::from_secs(30),
            Self::Aborted => Duration::from_millis(500),
        }
    }
}

/// How often a thread that waits for a device checks whether it is done.
const POLL: Duration = Duration::from_micros(100);
/// How often that thread checks whether the device still works.
pub const DEVICE_POLL: Duration = Duration::from_millis(100);

/// Most bytes of a piece. It may need a scalar besides its data.
const PIECE: usize = SLOT + 4096;

/// In the creation of a communicator: other ranks of this process allocate too.
const PATIENCE_IN_CREATION: Patience =
    Patience { streams: Duration::from_millis(200), allocations: Duration::from_secs(10) };
/// In a call: the streams that are inside calls may wait for this very call.
const PATIENCE_IN_CALL: Patience =
    Patience { streams: Duration::from_millis(20), allocations: Duration::from_millis(250) };

/// Whether this process has a CUDA driver. Loads it at the first call.
pub fn has_driver() -> bool {
    device::driver().is_some()
}

pub struct CudaState {
    ordinal: i32,
    device: Mutex<DeviceUse>,
    /// Executes what was enqueued.
    worker: Arc<Stream>,
    /// `None`: streams of the device cannot wait on memory, so callers wait. Callers also wait
    /// while it is not set, because a stream of this process was inside a call at every attempt to
    /// allocate.
    staging: OnceLock<Option<Arc<Staging>>>,
    getting_memory: Mutex<()>,
    order: Mutex<Order>,
    /// A failed operation holds its stream until the communicator is aborted or destroyed.
    pub holds: bool,
    /// Whether the log says that a caller waits.
    has_logged_wait: AtomicBool,
}

/// The use of the device. Dropping the last reference to a device calls the driver, which the
/// library's own threads must not do. So the thread of the program that ends the use takes it out.
enum DeviceUse {
    Open(Arc<Device>),
    /// The communicator has ended. The next thread that locks the order releases everything.
    Ending(Arc<Device>, Ending),
    Ended,
}

impl CudaState {
    /// For a communicator that is being created.
    pub fn new(device: Arc<Device>, holds: bool) -> Result<Arc<Self>> {
        Self::with_patience(device, holds, PATIENCE_IN_CREATION)
    }

    /// For a communicator that is inside a call.
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
                "device {ordinal}: pinned memory cannot be allocated while a stream of this \
                 process is inside a call; until then, calls on memory of the device return only \
                 when they have completed"
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
            has_logged_wait: AtomicBool::new(false),
        }))
    }

    /// Whether it has its pinned memory.
    pub fn has_memory(&self) -> bool {
        self.staging.get().is_some()
    }

    /// Allocates the pinned memory that could not be allocated before, if that is possible at once.
    /// Otherwise callers wait as before.
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
        // Under the lock of `close`: memory that is set later would never be released.
        let device_use = self.device_use();
        match (&*device_use, staging) {
            (DeviceUse::Open(_), staging) => _ = self.staging.set(staging),
            (_, Some(staging)) => pinned_pool::add(staging, device),
            (_, None) => {}
        }
    }

    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Its device. Fails when the communicator has ended.
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

    /// The thread that executes its operations. It never calls the driver.
    pub fn worker(&self) -> &Arc<Stream> {
        &self.worker
    }

    /// Writes to the log, once, that a caller waits for a call that is larger than the staging
    /// buffer.
    pub fn log_that_callers_wait(&self, bytes: usize) {
        if self.staging().is_some() && !self.has_logged_wait.swap(true, Ordering::Relaxed) {
            info!("device {}: {bytes} bytes at once, the caller waits", self.ordinal);
        }
    }

    /// Locks the order: no other thread then enqueues for the communicator.
    pub fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the order within `patience`. `None`: the thread that enqueues is blocked in the
    /// driver.
    fn lock_within(&self, patience: Duration) -> Option<MutexGuard<'_, Order>> {
        let until = Instant::now() + patience;
        loop {
            match self.order.try_lock() {
                Ok(order) => return Some(order),
                Err(TryLockError::Poisoned(order)) => return Some(order.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL),
            }
        }
    }

    /// Ends a series of enqueued steps: the device will signal when it has executed all of them.
    pub fn end_series(&self, order: &mut Order, entered: &EnteredContext<'_>) -> Result<()> {
        if let (Some(staging), Some(stream)) = (self.staging(), order.open_stream()) {
            staging.retire(|semaphore, value| entered.write_value(semaphore, value, stream))?;
        }
        order.end_series(entered)
    }

    /// Ends a series of which a step could not be enqueued. If the signal cannot be enqueued
    /// either, no thread can ever know when the device stops using the memory: the memory is lost.
    pub fn end_failed_series(&self, order: &mut Order, device: &Device) {
        let ended = device.enter().and_then(|entered| self.end_series(order, &entered));
        if let (Err(_), Some(staging)) = (ended, self.staging()) {
            staging.mark_lost();
        }
    }

    /// Releases the device: it continues with everything that was enqueued.
    pub fn release(&self) {
        if let Some(staging) = self.staging() {
            staging.release();
        }
    }

    /// Why its device executes nothing any more, if it has broken and the order can be locked now.
    pub fn why_broken(&self) -> Option<Error> {
        let order = self.lock_within(Duration::ZERO)?;
        why_broken(&*self.device().ok()?, &order)
    }

    /// Ends the use of the device, after every operation has completed: waits until the device has
    /// executed its part, and releases everything.
    pub fn close(&self, ending: Ending) {
        self.worker.close();
        let mut device_use = self.device_use();
        if let DeviceUse::Open(device) = &*device_use {
            *device_use = DeviceUse::Ending(Arc::clone(device), ending);
        }
        drop(device_use);
        self.release_if_ended(ending.patience());
    }

    /// Releases everything if the communicator has ended. If a call is blocked in the driver, that
    /// call does it when it continues.
    pub fn release_if_ended(&self, patience: Duration) {
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
                pinned_pool::add(Arc::clone(staging), Arc::clone(&device));
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

/// Allocates the pinned memory of a communicator. The inner `None`: streams of this device cannot
/// wait on memory. The outer `None`: memory cannot be allocated now, because a stream of this
/// process stays inside a call.
fn staging_for(device: &Arc<Device>, patience: Patience) -> Result<Option<Option<Arc<Staging>>>> {
    let (ordinal, entered) = (device.ordinal(), device.enter()?);
    let known = entered.memops_work();
    if known == Some(false) {
        return Ok(Some(None));
    }
    let allocated = match known.and_then(|_| pinned_pool::take(device)) {
        Some(pinned) => Some((pinned, None)),
        None => allocation::while_no_stream_waits(patience, || {
            let pinned = entered.allocate(Staging::bytes_of(PIECE))?;
            Ok((pinned, known.is_none().then(|| entered.trial_stream())))
        })
        .transpose()?,
    };
    let pinned = match allocated {
        None => return Ok(None),
        Some((pinned, None)) => pinned,
        // Outside the exclusive section: the device may be busy for seconds.
        Some((pinned, Some(stream))) => match entered.try_memops(stream, pinned) {
            (true, Some(pinned)) => pinned,
            (true, None) => return Ok(None),
            (false, unused) => {
                if let Some(unused) = unused {
                    pinned_pool::add(Staging::new(unused, PIECE), Arc::clone(device));
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

/// Waits until the device has executed everything that was enqueued, or never will.
fn wait_for_device(staging: &Staging, device: &Device, order: &Order, patience: Duration) {
    let ordinal = device.ordinal();
    let is_done = || staging.is_idle() || staging.is_lost();
    let until = Instant::now() + patience;
    let mut next_check = Instant::now() + DEVICE_POLL;
    while !is_done() && Instant::now() < until {
        std::thread::sleep(POLL);
        if Instant::now() >= next_check {
            next_check += DEVICE_POLL;
            if let Some(why) = why_broken(device, order) {
                warn!("device {ordinal} has broken, its pinned memory is lost: {why}");
                staging.mark_lost();
                // Nothing else ends the operations that it has not reached.
                staging.release();
            }
        }
    }
    if !is_done() {
        warn!("device {ordinal}: a stream makes no progress, its pinned memory is kept");
    }
}

/// Why the device has broken, if it has: every call of the driver then fails.
fn why_broken(device: &Device, order: &Order) -> Option<Error> {
    let event = order.event.as_ref()?;
    device.enter().and_then(|entered| entered.has_happened(event)).err()
}

/// The order in which steps were enqueued on streams.
pub struct Order {
    /// `None` when the communicator has ended.
    event: Option<Event>,
    last: Option<CudaStream>,
    /// Whether `event` was recorded behind all of them.
    is_recorded: bool,
}

impl Order {
    /// Makes the next step on `stream` wait for everything that was enqueued before.
    pub fn continue_on(&mut self, stream: CudaStream, entered: &EnteredContext<'_>) -> Result<()> {
        let Some(event) = &self.event else { return Ok(()) };
        match self.last {
            None => {}
            // Between two calls the program may have created another stream with the same handle.
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

    /// Everything that was enqueued has been executed: the next step waits for nothing.
    pub fn clear(&mut self) {
        (self.last, self.is_recorded) = (None, true);
    }

    /// The stream of the last step, if there was one since the last `end_series`.
    fn open_stream(&self) -> Option<CudaStream> {
        self.last.filter(|_| !self.is_recorded)
    }

    /// Records the event, so that the caller may destroy its streams.
    fn end_series(&mut self, entered: &EnteredContext<'_>) -> Result<()> {
        if let (Some(event), Some(last)) = (&self.event, self.open_stream()) {
            entered.record(event, last)?;
            self.is_recorded = true;
        }
        Ok(())
    }
}
