//! The pinned memory of communicators that have ended, until giving it back makes nobody wait.
//!
//! A driver may wait for all streams of the process before it frees memory, and a stream may be inside a call
//! of another communicator, which waits for ranks that wait for this one, or is held. Then the memory stays
//! here, and the next communicator to end tries again. Invariants: memory is freed by threads of the program
//! alone, when neither a stream nor this process uses it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::device::Device;
use crate::device::staging::Staging;

use super::cuda;

/// A communicator that is destroyed rather waits than that more of them leave their memory.
const MOST: usize = 4;

struct Leftover {
    staging: Arc<Staging>,
    device: Arc<Device>,
}

static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

/// A communicator that used this has ended; `may_wait`: its caller may.
pub(super) fn give_back(staging: Arc<Staging>, device: Arc<Device>, may_wait: bool) {
    let mut leftovers = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    leftovers.push(Leftover { staging, device });
    let is_quiet = !cuda::some_stream_waits() && leftovers.iter().all(|one| one.staging.is_idle());
    let is_full = may_wait && leftovers.len() > MOST;
    if !(is_quiet || is_full) {
        return;
    }
    let idle: Vec<_> = leftovers.extract_if(.., |one| one.staging.is_idle()).collect();
    drop(leftovers); // what is freed may wait
    idle.iter().for_each(|one| one.staging.free(&one.device));
}
