//! Version, texts of results, the last error, and logging.

use std::ffi::{c_char, c_int};

use crate::boundary::{boundary, last_error, set};
use crate::types::{ncclComm_t, ncclResult_t};

/// The version of NCCL whose behaviour the stand-in matches. Programs query it before they use
/// newer functions.
const VERSION: c_int = 23007;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a pointer to an int.
    boundary("ncclGetVersion", || unsafe { set("version", version, VERSION) })
}

/// Returns NCCL's texts, which programs compare and search.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        8 => c"timeout",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// Returns the one text of the process, as in NCCL. The communicator is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
    last_error()
}

/// Has no effect: the log is configured once per process.
#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInit() {}

#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInitInternal() {}
