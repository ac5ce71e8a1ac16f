//! The pinned memory of communicators that have ended, until it is freed or the next one takes it.
//!
//! A driver may wait for all streams of the process before it frees memory. One of them may be inside a call of
//! another communicator, which waits for ranks that wait for this one, or is held; and who aborts waits for
//! nobody's work. So memory stays here, and a communicator that is destroyed frees what it can. Invariants: memory
//! is freed by threads of the program alone, when neither a stream nor this process uses it; what is taken again
//! is of the same context and is still there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::device::staging::Staging;
use crate::device::{Device, Pinned};

use super::allocation::{Patience, while_no_stream_waits};

const PATIENCE: Patience =
    Patience { streams: Duration::from_millis(20), allocations: Duration::from_millis(250) };

struct Leftover {
    staging: Arc<Staging>,
    device: Arc<Device>,
}

impl Leftover {
    /// The program may have reset the device, and then nothing may look at it any more.
    fn is_there(&self) -> bool {
        self.staging.is_there(|pinned| self.device.still_has(pinned))
    }
}

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A communicator that used this has ended.
pub fn keep(staging: Arc<Staging>, device: Arc<Device>) {
    leftovers().push(Leftover { staging, device });
}

/// Frees all, unless a stream is inside a call.
pub fn free() {
    while_no_stream_waits(PATIENCE, || {
        let mut leftovers = leftovers();
        leftovers.retain(Leftover::is_there);
        if leftovers.iter().any(|one| !one.staging.is_idle()) {
            return;
        }
        let idle = std::mem::take(&mut *leftovers);
        drop(leftovers); // what is freed may wait
        for Leftover { staging, device } in idle {
            if let Some(pinned) = staging.take() {
                device.free(pinned);
            }
        }
    });
}

/// Memory that another communicator on this device had.
pub fn take(device: &Device) -> Option<Pinned> {
    let mut leftovers = leftovers();
    leftovers.retain(Leftover::is_there);
    let can_be_taken = |one: &Leftover| one.device.is_same(device) && one.staging.is_idle();
    let index = leftovers.iter().position(can_be_taken)?;
    leftovers.swap_remove(index).staging.take()
}
