//! Version, names of codes and texts of errors.

use std::ffi::{c_char, c_int};

use crate::error::Code;

use super::arguments::Out;
use super::boundary::{self, boundary};
use super::types::{ResultCode, nexarComm_t};

/// Writes the version of the library to version, as NEXAR_VERSION(major, minor, patch). Compare it
/// with NEXAR_VERSION_CODE, the version of this header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarGetVersion(version: *mut c_int) -> Code {
    boundary("nexarGetVersion", || {
        // SAFETY: the caller passes NULL or a pointer to an int.
        let version = unsafe { Out::new("version", version) }?;
        version.set(version_code());
        Ok(())
    })
}

/// Returns a short sentence for a result, for any int. The text lives as long as the library. It
/// never fails. nexarGetLastError has the details.
#[unsafe(no_mangle)]
pub extern "C" fn nexarGetErrorString(result: ResultCode) -> *const c_char {
    let code = Code::ALL.into_iter().find(|code| *code as c_int == result);
    let text = match code {
        Some(Code::Success) => c"no error",
        Some(Code::UnhandledCudaError) => c"a call of the CUDA driver failed",
        Some(Code::SystemError) => c"sockets, memory or files of this host failed",
        Some(Code::InternalError) => c"internal error of nexar",
        Some(Code::InvalidArgument) => c"invalid argument",
        Some(Code::InvalidUsage) => c"invalid usage",
        Some(Code::RemoteError) => c"another rank failed or was lost",
        Some(Code::InProgress) => c"operation in progress",
        Some(Code::Timeout) => c"timeout",
        None => c"not a result of nexar",
    };
    text.as_ptr()
}

/// Returns the text of the last error: the function, the cause and the rank to blame. With comm,
/// the last error of a call on comm, or the failure of comm if that is newer; with NULL, the last
/// error of any call of this thread. An empty text means that there was none. The text is never
/// NULL and stays valid until this thread calls nexarGetLastError again. A success does not clear
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn nexarGetLastError(comm: nexarComm_t) -> *const c_char {
    boundary::last_error(comm)
}

fn version_code() -> c_int {
    let part = |text: &str| text.parse::<c_int>().expect("cargo versions are numbers");
    10_000 * part(env!("CARGO_PKG_VERSION_MAJOR"))
        + 100 * part(env!("CARGO_PKG_VERSION_MINOR"))
        + part(env!("CARGO_PKG_VERSION_PATCH"))
}
