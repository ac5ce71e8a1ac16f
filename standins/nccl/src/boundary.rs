//! The wrapper around the body of every function: catches panics, keeps the text of the last error.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use nexar::capi::group::refuse_operation;
use nexar::capi::refuse;
use nexar::capi::types::{nexarComm_t, nexarStream_t};
use nexar::capi::version::nexarGetLastError;
use nexar::device;
use nexar::error::{Code, Error};

use crate::types::cudaStream_t;

/// The size of the text of the last error. As in NCCL, the process has one, which is never cleared.
const TEXT_BYTES: usize = 1024;
static LAST: [AtomicU8; TEXT_BYTES] = [const { AtomicU8::new(0) }; TEXT_BYTES];

/// Why a function of NCCL fails.
pub(crate) enum Failure {
    /// The function of nexar has failed.
    OfNexar(Code),
    /// The stand-in has refused the call.
    Refused(Error),
}

pub(crate) type Answer = Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

pub(crate) fn wrong_argument(what: impl Into<String>) -> Failure {
    Failure::Refused(Error::Argument(what.into()))
}

pub(crate) fn wrong_usage(what: impl Into<String>) -> Failure {
    Failure::Refused(Error::Usage(what.into()))
}

/// The result of a function of nexar.
pub(crate) fn answer(code: Code) -> Answer {
    match code {
        Code::Success => Ok(()),
        code => Err(Failure::OfNexar(code)),
    }
}

/// Executes the body of a function of NCCL.
pub(crate) fn boundary(function: &'static str, body: impl FnOnce() -> Answer) -> Code {
    surround(function, body, refuse)
}

/// As `boundary`, for a function that a group includes: if it fails, the group fails.
#[inline]
pub(crate) fn operation(function: &'static str, body: impl FnOnce() -> Answer) -> Code {
    surround(function, body, refuse_operation)
}

#[inline]
fn surround(
    function: &'static str,
    body: impl FnOnce() -> Answer,
    refuse: impl FnOnce(&'static str, Error) -> Code,
) -> Code {
    static STARTED: Once = Once::new();
    STARTED.call_once(nexar::config::enable_nccl_names);
    let panicked = |panic: Box<_>| Err(Failure::Refused(Error::from_panic(&*panic)));
    let code = match catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(panicked) {
        Ok(()) => Code::Success,
        Err(Failure::OfNexar(code)) => code,
        Err(Failure::Refused(error)) => refuse(function, error),
    };
    if !matches!(code, Code::Success | Code::InProgress) {
        record_error(function, null_mut());
    }
    code
}

/// Records nexar's last error of a communicator, or of this thread's calls if `comm` is NULL, as
/// the last error, of `function`.
pub(crate) fn record_error(function: &str, comm: nexarComm_t) {
    // SAFETY: nexar returns a string that lives until this thread's next call of the function.
    let text = unsafe { CStr::from_ptr(nexarGetLastError(comm)) }.to_string_lossy();
    // It begins with the name of nexar's function, which the program has not called.
    let what = text.split_once(": ").map_or(&*text, |(_, what)| what);
    write(&with_nccl_names(&format!("{function}: {what}")));
}

pub(crate) fn last_error() -> *const c_char {
    LAST.as_ptr().cast()
}

/// Replaces the text of the last error. The last byte stays 0. As in NCCL, a reader may get parts
/// of two texts while another thread writes.
fn write(text: &str) {
    let mut length = text.len().min(TEXT_BYTES - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    let bytes = text[..length].bytes().chain(std::iter::repeat(0));
    for (stored, byte) in LAST[..TEXT_BYTES - 1].iter().zip(bytes) {
        stored.store(byte, Ordering::Relaxed);
    }
}

/// Replaces nexar's names of functions and types by NCCL's, which the program knows.
fn with_nccl_names(text: &str) -> String {
    let text = text.replace("nexarAllToAll", "ncclAlltoAll");
    let mut parts = text.split("nexar");
    let mut translated = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name = part.starts_with(|first: char| first.is_ascii_uppercase());
        translated.push_str(if is_name { "nccl" } else { "nexar" });
        translated.push_str(part);
    }
    translated
}

/// The stream for a function of nexar: with CUDA, the program's; else NULL, so that the call waits
/// for its result. Without CUDA the program's stream is of a foreign or fake runtime, on which
/// nexar cannot queue operations.
pub(crate) fn stream_of(stream: cudaStream_t) -> nexarStream_t {
    if device::driver().is_some() { stream } else { null_mut() }
}

/// Writes an out-parameter. Fails if it is NULL.
///
/// # Safety
/// `out` is NULL or can be written.
pub(crate) unsafe fn set<T>(name: &str, out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(wrong_argument(format!("{name} is NULL")));
    }
    // SAFETY: the caller vouches for the pointer, which may be unaligned.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_types_get_nccls_names_and_nothing_else_does() {
        assert_eq!(with_nccl_names("nexarAllReduce: op 9 is not a nexarRedOp_t"), {
            "ncclAllReduce: op 9 is not a ncclRedOp_t"
        });
        assert_eq!(with_nccl_names("nexarAllToAllV: a panic inside nexar"), {
            "ncclAlltoAllV: a panic inside nexar"
        });
        assert_eq!(with_nccl_names("nexar"), "nexar");
        assert_eq!(with_nccl_names(""), "");
    }

    #[test]
    fn a_long_text_is_truncated_and_a_shorter_one_replaces_all_of_it() {
        // SAFETY: the last byte is always 0.
        let text = || unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap().to_owned();
        write(&"x".repeat(5000));
        assert_eq!(text(), "x".repeat(TEXT_BYTES - 1));
        write(&"ä".repeat(5000));
        assert_eq!(text(), "ä".repeat((TEXT_BYTES - 1) / 2));
        write("short");
        assert_eq!(text(), "short");
    }
}
