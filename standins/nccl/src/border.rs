//! What surrounds the body of every function: the text of the last error, and panics.

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

/// As in NCCL: one text for the process, of at most this many bytes, never cleared.
const LONGEST: usize = 1024;
static LAST: [AtomicU8; LONGEST] = [const { AtomicU8::new(0) }; LONGEST];

/// Why a function fails: a call of nexar has failed, or was not even made.
pub(crate) enum Failure {
    OfNexar(Code),
    Here(Error),
}

pub(crate) type Answer = Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Here(error)
    }
}

pub(crate) fn wrong_argument(what: impl Into<String>) -> Failure {
    Failure::Here(Error::Argument(what.into()))
}

pub(crate) fn wrong_usage(what: impl Into<String>) -> Failure {
    Failure::Here(Error::Usage(what.into()))
}

/// What a call of nexar has returned.
pub(crate) fn answer(code: Code) -> Answer {
    match code {
        Code::Success => Ok(()),
        code => Err(Failure::OfNexar(code)),
    }
}

/// Runs the body of a function of NCCL.
pub(crate) fn border(function: &'static str, body: impl FnOnce() -> Answer) -> Code {
    surround(function, body, refuse)
}

/// As `border`, for one that a group takes in: if it fails, the group does.
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
    static BEGUN: Once = Once::new();
    BEGUN.call_once(nexar::config::let_nccl_names_count);
    let panicked = |panic: Box<_>| Err(Failure::Here(Error::from_panic(&*panic)));
    let code = match catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(panicked) {
        Ok(()) => Code::Success,
        Err(Failure::OfNexar(code)) => code,
        Err(Failure::Here(error)) => refuse(function, error),
    };
    if !matches!(code, Code::Success | Code::InProgress) {
        remember(function, null_mut());
    }
    code
}

/// Makes nexar's last error on a communicator, or of this thread's calls if `comm` is NULL, that of
/// `function`.
pub(crate) fn remember(function: &str, comm: nexarComm_t) {
    // SAFETY: nexar returns a string that lives until this thread asks again.
    let text = unsafe { CStr::from_ptr(nexarGetLastError(comm)) }.to_string_lossy();
    // It begins with the function of nexar that failed, which the program has never called.
    let what = text.split_once(": ").map_or(&*text, |(_, what)| what);
    write(&in_nccls_words(&format!("{function}: {what}")));
}

pub(crate) fn last_error() -> *const c_char {
    LAST.as_ptr().cast()
}

/// The last byte stays 0. A reader may see parts of two texts while another thread writes, as in
/// NCCL.
fn write(text: &str) {
    let mut length = text.len().min(LONGEST - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    let bytes = text[..length].bytes().chain(std::iter::repeat(0));
    for (place, byte) in LAST[..LONGEST - 1].iter().zip(bytes) {
        place.store(byte, Ordering::Relaxed);
    }
}

/// A program that was written for NCCL knows ncclAllReduce, not nexarAllReduce.
fn in_nccls_words(text: &str) -> String {
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

/// The stream of a call of nexar: the program's own, or none where there is no CUDA, so that the
/// call waits for its result. There the program's is one of a foreign or fake runtime, which
/// nothing can be queued on.
pub(crate) fn stream_of(stream: cudaStream_t) -> nexarStream_t {
    if device::driver().is_some() { stream } else { null_mut() }
}

/// A place for a result.
///
/// # Safety
/// `place` is NULL or can be written.
pub(crate) unsafe fn set<T>(name: &str, place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(wrong_argument(format!("{name} is NULL")));
    }
    // SAFETY: the caller vouches for the place; C may not have aligned it.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_types_get_nccls_names_and_nothing_else_does() {
        assert_eq!(in_nccls_words("nexarAllReduce: op 9 is not a nexarRedOp_t"), {
            "ncclAllReduce: op 9 is not a ncclRedOp_t"
        });
        assert_eq!(in_nccls_words("nexarAllToAllV: a panic inside nexar"), {
            "ncclAlltoAllV: a panic inside nexar"
        });
        assert_eq!(in_nccls_words("nexar"), "nexar");
        assert_eq!(in_nccls_words(""), "");
    }

    #[test]
    fn a_long_text_is_cut_and_a_shorter_one_replaces_it_whole() {
        // SAFETY: the last byte is always 0.
        let shown = || unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap().to_owned();
        write(&"x".repeat(5000));
        assert_eq!(shown(), "x".repeat(LONGEST - 1));
        write(&"ä".repeat(5000));
        assert_eq!(shown(), "ä".repeat((LONGEST - 1) / 2));
        write("short");
        assert_eq!(shown(), "short");
    }
}
