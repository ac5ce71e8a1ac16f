//! Pool of pinned memory of communicators that have ended: it is freed, or the next communicator
//! takes it.
//!
//! A driver may wait for all streams of the process before it frees memory. A stream may be inside
//! a call of another communicator whose ranks wait for this one, or it may be held; and an abort
//! must not wait for other work. So the memory stays here, and a communicator that is destroyed
//! frees what it can. Leaves to `allocation` when memory may be freed. Invariants: memory is freed
//! by threads of the program alone, when neither a stream nor this process uses it; memory that is
//! taken again belongs to the same CUDA context, and still exists.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::device::staging::Staging;
use crate::device::{Device, Pinned};

use super::allocation::{Patience, while_no_stream_waits};

const PATIENCE: Patience =
    Patience { streams: Duration::from_millis(20), allocations: Duration::from_millis(250) };

struct Pooled {
    staging: Arc<Staging>,
    device: Arc<Device>,
}

impl Pooled {
    /// Whether the memory still exists. If the program has reset the device, nothing may read it.
    fn exists(&self) -> bool {
        self.staging.holds_memory(|pinned| self.device.still_owns(pinned))
    }
}

fn pool() -> MutexGuard<'static, Vec<Pooled>> {
    static POOL: Mutex<Vec<Pooled>> = Mutex::new(Vec::new());
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the memory of a communicator that has ended.
pub fn add(staging: Arc<Staging>, device: Arc<Device>) {
    pool().push(Pooled { staging, device });
}

/// Frees the whole pool, unless a stream is inside a call.
pub fn free() {
    while_no_stream_waits(PATIENCE, || {
        let mut pool = pool();
        pool.retain(Pooled::exists);
        if pool.iter().any(|one| !one.staging.is_idle()) {
            return;
        }
        let idle = std::mem::take(&mut *pool);
        drop(pool); // the driver may wait before it frees
        for Pooled { staging, device } in idle {
            if let Some(pinned) = staging.take() {
                device.free(pinned);
            }
        }
    });
}

/// Takes memory out that another communicator of this device had.
pub fn take(device: &Device) -> Option<Pinned> {
    let mut pool = pool();
    pool.retain(Pooled::exists);
    let can_be_taken = |one: &Pooled| one.device.is_same(device) && one.staging.is_idle();
    let index = pool.iter().position(can_be_taken)?;
    pool.swap_remove(index).staging.take()
}
