//! Loads the CUDA driver's library, looks up its functions and initializes it.
//!
//! Leaves to `calls` the arguments of the functions. Invariants: the library is never closed, so
//! its functions stay valid; a driver that lacks a function counts as none, except for the memory
//! operations, which older drivers lack and for which there is a fallback. Codes are numbers, never
//! an enum: a driver may be newer than this file.
#![expect(unsafe_code, reason = "a library is opened, and addresses in it become functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUresult, CUstream,
};

/// Declares a table of functions of the driver: the name and the argument types of each.
macro_rules! functions {
    ($table:ident: $($name:ident($($argument:ty),*);)*) => {
        #[expect(non_snake_case, reason = "the driver's own names")]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl $table {
            /// Fails with the name of the first function that is missing.
            fn find(library: Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let found = library.find(name).ok_or(stringify!($name))?;
                        type Function = unsafe extern "C" fn($($argument),*) -> u32;
                        // SAFETY: the driver exports under this name a function with these
                        // arguments, which returns a 32-bit code.
                        unsafe { transmute::<NonNull<c_void>, Function>(found) }
                    },)*
                })
            }
        }
    };
}

functions! { Functions:
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(u32, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDevicePrimaryCtxGetState(CUdevice, *mut c_uint, *mut c_int);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxGetCurrent(*mut CUcontext);
    cuCtxGetDevice(*mut CUdevice);
    cuCtxPushCurrent_v2(CUcontext);
    cuCtxPopCurrent_v2(*mut CUcontext);
    cuThreadExchangeStreamCaptureMode(*mut u32);
    cuPointerGetAttributes(c_uint, *mut u32, *mut *mut c_void, CUdeviceptr);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
    cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamSynchronize(CUstream);
    cuStreamQuery(CUstream);
    cuStreamIsCapturing(CUstream, *mut u32);
    cuStreamWaitEvent(CUstream, CUevent, c_uint);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventQuery(CUevent);
}

// Drivers before 515 lack these.
functions! { MemoryOperations:
    cuStreamWriteValue32_v2(CUstream, CUdeviceptr, u32, c_uint);
    cuStreamWaitValue32_v2(CUstream, CUdeviceptr, u32, c_uint);
}

pub struct Driver {
    pub(super) functions: Functions,
    pub(super) memory_operations: Option<MemoryOperations>,
    /// Whether streams can write and await values, by device; empty until it was tried.
    pub(super) memops_work: Vec<OnceLock<bool>>,
    version: c_int,
}

impl Driver {
    /// Fails with the reason.
    pub(super) fn load() -> Result<Self, String> {
        let library = Library::open()?;
        let functions = Functions::find(library)
            .map_err(|missing| format!("the driver's library has no {missing}"))?;
        // SAFETY: this call has no precondition.
        let code = unsafe { (functions.cuInit)(0) };
        if code != SUCCESS {
            return Err(why_not_initialized(&functions, code));
        }
        let (mut count, mut version) = (0, 0);
        // SAFETY: writes the one number.
        let code = unsafe { (functions.cuDeviceGetCount)(&raw mut count) };
        if code != SUCCESS {
            return Err(DriverError::new(&functions, "cuDeviceGetCount", code).to_string());
        }
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err("there is no device".to_owned());
        }
        // SAFETY: as above. If the call fails, the version stays 0; only the log uses it.
        let _ = unsafe { (functions.cuDriverGetVersion)(&raw mut version) };
        let memory_operations = MemoryOperations::find(library).ok();
        let memops_work = (0..count).map(|_| OnceLock::new()).collect();
        Ok(Self { functions, memory_operations, memops_work, version })
    }

    pub fn device_count(&self) -> usize {
        self.memops_work.len()
    }

    /// Whether the driver has functions by which a stream writes and awaits values. Whether they
    /// work on a device: see `EnteredContext::memops_work`.
    pub fn has_memops(&self) -> bool {
        self.memory_operations.is_some()
    }

    /// Converts the code that a call returned into a result.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), DriverError> {
        if code == SUCCESS { Ok(()) } else { Err(DriverError::new(&self.functions, call, code)) }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.version / 1000, self.version % 1000 / 10);
        write!(f, "CUDA {major}.{minor}, devices: {}", self.device_count())?;
        if self.has_memops() { Ok(()) } else { write!(f, ", no memory operations of streams") }
    }
}

pub(super) const SUCCESS: u32 = CUresult::CUDA_SUCCESS as u32;

/// A call of the driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DriverError {
    pub(super) call: &'static str,
    pub(super) code: u32,
    /// `None` if the driver does not know the code either.
    name: Option<&'static CStr>,
}

impl DriverError {
    #[cold]
    fn new(functions: &Functions, call: &'static str, code: u32) -> Self {
        Self { call, code, name: name_of(functions, code) }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (call, code) = (self.call, self.code);
        match self.name.and_then(|name| name.to_str().ok()) {
            Some(name) => write!(f, "{call} failed: {name} ({code})"),
            None => write!(f, "{call} failed: CUDA error {code}"),
        }
    }
}

fn name_of(functions: &Functions, code: u32) -> Option<&'static CStr> {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: writes the one pointer, whatever the code is.
    let known = unsafe { (functions.cuGetErrorName)(code, &raw mut name) };
    if known != SUCCESS || name.is_null() {
        return None;
    }
    // SAFETY: a text in the driver's library, which is never closed.
    Some(unsafe { CStr::from_ptr(name) })
}

fn why_not_initialized(functions: &Functions, code: u32) -> String {
    const NO_DEVICE: u32 = CUresult::CUDA_ERROR_NO_DEVICE as u32;
    const STUB: u32 = CUresult::CUDA_ERROR_STUB_LIBRARY as u32;
    match code {
        NO_DEVICE => "there is no device".to_owned(),
        STUB => "the libcuda that was found is the toolkit's stub, not a driver".to_owned(),
        code => DriverError::new(functions, "cuInit", code).to_string(),
    }
}

/// The library, which is never closed.
#[derive(Clone, Copy)]
struct Library(NonNull<c_void>);

impl Library {
    /// The toolkit and some containers have only the second name. If neither can be opened, the
    /// error is that of the first.
    fn open() -> Result<Self, String> {
        Self::open_as(c"libcuda.so.1").or_else(|why| Self::open_as(c"libcuda.so").map_err(|_| why))
    }

    fn open_as(name: &CStr) -> Result<Self, String> {
        // SAFETY: executes the library's initializers; a driver may be loaded at any time.
        let opened = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(opened).map(Self).ok_or_else(|| why_not_opened(name))
    }

    /// `name` ends with a zero byte.
    fn find(self, name: &'static str) -> Option<NonNull<c_void>> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
        // SAFETY: the library is open and the name a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// The loader's error text, or a short one if the file does not exist.
fn why_not_opened(name: &CStr) -> String {
    let name = name.to_string_lossy();
    // SAFETY: the loader's own text about this thread's last call, or NULL.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{name} cannot be loaded");
    }
    // SAFETY: a C string, which stays until this thread calls the loader again.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let is_missing = text.contains(&*name) && text.contains("No such file");
    if is_missing { format!("{name} was not found") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_has_a_short_error_text() {
        let why = Library::open_as(c"libnexar-does-not-exist.so.1").err().unwrap();
        assert_eq!(why, "libnexar-does-not-exist.so.1 was not found");
    }

    #[test]
    fn a_library_without_the_functions_is_no_driver() {
        let library = Library::open_as(c"libc.so.6").unwrap();
        assert!(library.find("malloc\0").is_some());
        assert_eq!(Functions::find(library).err(), Some("cuInit"));
        assert_eq!(MemoryOperations::find(library).err(), Some("cuStreamWriteValue32_v2"));
    }

    #[test]
    fn a_failed_call_is_reported_by_name_and_number() {
        let name = Some(c"CUDA_ERROR_ILLEGAL_ADDRESS");
        let error = DriverError { call: "cuMemcpyAsync", code: 700, name };
        let text = "cuMemcpyAsync failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)";
        assert_eq!(error.to_string(), text);
        let error = DriverError { call: "cuMemcpyAsync", code: 12345, name: None };
        assert_eq!(error.to_string(), "cuMemcpyAsync failed: CUDA error 12345");
    }
}
