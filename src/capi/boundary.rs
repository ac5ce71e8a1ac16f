//! The wrapper around the body of every exported function, and the texts of the last errors.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::warn;

use crate::comm::{Communicator, deliver_faults};
use crate::error::{Code, Error, Result};

use super::types::nexarComm_t;
use super::{communicators, process};

thread_local! {
    /// The text of the last error of a call of this thread.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    /// The text that nexarGetLastError has returned to this thread, kept alive for the caller.
    static RETURNED: RefCell<CString> = RefCell::new(CString::default());
}

/// Executes the body of an exported function: refuses a forked child, delays pthread_cancel,
/// catches a panic, records the text of an error and returns its code.
pub(super) fn boundary(function: &'static str, body: impl FnOnce() -> Result<()>) -> Code {
    thin_boundary(function, || process::without_cancellation(body))
}

/// As `boundary`, for a body that has no cancellation point or disables cancellation itself.
#[inline]
pub(super) fn thin_boundary(function: &'static str, body: impl FnOnce() -> Result<()>) -> Code {
    let result = guarded(|from_callback| {
        process::prepare();
        if process::is_forked_child() {
            return Err(Error::Forked);
        }
        if from_callback {
            let what = "called from inside a function given to nexarRedOpCreate";
            return Err(Error::Usage(what.to_owned()));
        }
        body()
    });
    match result {
        Ok(()) => Code::Success,
        Err(Error::InProgress) => Code::InProgress,
        Err(error) => process::without_cancellation(|| record(function, error)),
    }
}

/// Records the text of an error as this thread's last, and returns its code.
#[cold]
fn record(function: &'static str, error: Error) -> Code {
    let recorded = guarded(|_| {
        let text = format!("{function}: {error}");
        // In a forked child the log's lock may be held by a thread that exists only in the parent.
        if !process::is_forked_child() {
            warn!("{text}");
            deliver_faults();
        }
        // The thread local may be gone in a thread that is ending.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
        Ok(())
    });
    recorded.map_or(Code::InternalError, |()| error.code())
}

/// Records and returns an error of a stand-in's function, as for a function of nexar.
pub fn refuse(function: &'static str, error: Error) -> Code {
    boundary(function, || Err(error))
}

/// As `boundary`, for a call on a communicator, which also records the error.
pub(super) fn on_communicator(
    function: &'static str,
    comm: nexarComm_t,
    body: impl FnOnce(Arc<Communicator>) -> Result<()>,
) -> Code {
    boundary(function, || with_communicator(function, comm, body))
}

/// Calls `body` with a communicator, which records the error. Used inside `boundary`.
pub(super) fn with_communicator(
    function: &'static str,
    comm: nexarComm_t,
    body: impl FnOnce(Arc<Communicator>) -> Result<()>,
) -> Result<()> {
    let communicator = communicators::find(comm)?;
    recording(function, comm, || body(communicator))
}

/// Records the error of `body` in a communicator. Used inside `boundary`.
pub(super) fn recording(
    function: &'static str,
    comm: nexarComm_t,
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let result = caught(body);
    // The communicator may have been destroyed meanwhile; then its text cannot be read.
    if let Err(error) = &result
        && let Ok(communicator) = communicators::find(comm)
    {
        communicator.remember(format!("{function}: {error}"));
    }
    result
}

/// The text of the last error of `comm`, or of this thread's calls if `comm` is NULL. Valid until
/// this thread calls it again.
pub(super) fn last_error(comm: nexarComm_t) -> *const c_char {
    let mut returned = c"".as_ptr();
    let _ = guarded(|_| {
        // Locks may be held for ever in a forked child; the thread's own text needs none.
        let text = if comm.is_null() || process::is_forked_child() {
            LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
        } else {
            match communicators::find(comm) {
                Ok(communicator) => communicator.last_error().unwrap_or_default(),
                Err(error) => error.to_string(),
            }
        };
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        let _ = RETURNED.try_with(|kept| {
            *kept.borrow_mut() = text;
            returned = kept.borrow().as_ptr();
        });
        Ok(())
    });
    returned
}

#[inline]
fn guarded(body: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    caught(|| process::inside(body))
}

#[inline]
fn caught(body: impl FnOnce() -> Result<()>) -> Result<()> {
    let caught = catch_unwind(AssertUnwindSafe(body));
    caught.unwrap_or_else(|panic| Err(Error::from_panic(&*panic)))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        let text = last_error(std::ptr::null_mut());
        // SAFETY: last_error returns a string that lives until this thread calls it again.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_internal_error_with_its_message() {
        assert_eq!(boundary("nexarTest", || panic!("lost my {}", "way")), Code::InternalError);
        assert_eq!(last(), "nexarTest: a panic inside nexar: lost my way");
        assert_eq!(boundary("nexarTest", || std::panic::panic_any(7)), Code::InternalError);
        assert_eq!(last(), "nexarTest: a panic inside nexar: no message");
    }

    #[test]
    fn a_success_keeps_the_last_error_of_its_own_thread() {
        let fail = || boundary("nexarTest", || Err(Error::Usage("not now".to_owned())));
        assert_eq!(fail(), Code::InvalidUsage);
        assert_eq!(boundary("nexarTest", || Ok(())), Code::Success);
        assert_eq!(last(), "nexarTest: not now");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
    }
}
