//! Replaces `src/runtime.rs`, as far as the device poller needs it: starts a thread of the library,
//! which the model can end.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use loom::thread::{JoinHandle, spawn};

/// The panic payload with which a started thread ends when its scenario is over.
pub struct Ended;

loom::lazy_static! {
    static ref STARTED: Mutex<Vec<JoinHandle<()>>> = Mutex::default();
}

loom::thread_local! {
    static IS_STARTED: Cell<bool> = Cell::new(false);
}

pub fn is_started_thread() -> bool {
    IS_STARTED.with(Cell::get)
}

pub fn start_thread(_: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = spawn(|| {
        IS_STARTED.with(|is_started| is_started.set(true));
        match catch_unwind(AssertUnwindSafe(body)) {
            Err(panic) if !panic.is::<Ended>() => resume_unwind(panic),
            _ => {}
        }
    });
    STARTED.lock().unwrap().push(thread);
    Ok(())
}

/// Waits until all started threads have ended.
pub fn join_started() {
    let started = std::mem::take(&mut *STARTED.lock().unwrap());
    started.into_iter().for_each(|thread| thread.join().unwrap());
}
