//! Version, texts of results, the last error, and logging.

use std::ffi::{c_char, c_int};

use crate::border::{border, last_error, set};
use crate::types::{ncclComm_t, ncclResult_t};

/// The version whose behaviour is matched: programs ask for it before they use what is newer.
const VERSION: c_int = 23007;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a place for an int.
    border("ncclGetVersion", || unsafe { set("version", version, VERSION) })
}

/// The words of NCCL, which programs compare and search.
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

/// One text for the whole process, as in NCCL: which communicator is asked about makes no
/// difference.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
    last_error()
}

/// Logging is set up once per process; there is nothing to read again.
#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInit() {}

#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInitInternal() {}
