//! Compiles the fake CUDA driver (`capi-tests/cuda`) and allocates device memory with it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;

/// The directory of the compiled driver, for LD_LIBRARY_PATH.
pub const DIRECTORY: &str = env!("CARGO_TARGET_TMPDIR");

pub fn compile() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("capi-tests/cuda");
    let parts = std::fs::read_dir(sources.join("fake")).unwrap().map(|part| part.unwrap().path());
    let parts = parts.filter(|part| part.extension().is_some_and(|end| end == "c"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-D_GNU_SOURCE=", "-fvisibility=hidden", "-pthread"])
        .args(["-Wl,-z,nodelete", "-Wl,-Bsymbolic-functions", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(Path::new(DIRECTORY).join("libcuda.so.1"))
        .arg(sources.join("fake_libcuda.c"))
        .args(parts)
        .status();
    assert!(compiled.unwrap().success(), "the fake driver does not compile");
}

/// The functions of the driver that a rank calls.
pub struct Driver(*mut c_void);

impl Driver {
    /// Loads the driver and makes the context of the first device current.
    pub fn open() -> Self {
        // SAFETY: the name is a C string.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "the fake driver is not found");
        let driver = Self(library);
        let mut context: *mut c_void = null_mut();
        driver.call(c"cuInit", |function: extern "C" fn(c_uint) -> c_int| function(0));
        driver.call(
            c"cuDevicePrimaryCtxRetain",
            |function: extern "C" fn(*mut *mut c_void, c_int) -> c_int| {
                function(&raw mut context, 0)
            },
        );
        driver.call(c"cuCtxSetCurrent", |function: extern "C" fn(*mut c_void) -> c_int| {
            function(context)
        });
        driver
    }

    pub fn allocate(&self, bytes: usize) -> *mut c_void {
        let mut address = 0_u64;
        self.call(c"cuMemAlloc_v2", |function: extern "C" fn(*mut u64, usize) -> c_int| {
            function(&raw mut address, bytes)
        });
        std::ptr::with_exposed_provenance_mut(address as usize)
    }

    pub fn synchronize(&self) {
        self.call(c"cuStreamSynchronize", |function: extern "C" fn(*mut c_void) -> c_int| {
            function(null_mut())
        });
    }

    fn call<F>(&self, name: &CStr, body: impl FnOnce(F) -> c_int) {
        let text: *const c_char = name.as_ptr();
        // SAFETY: the library stays open and the name is a C string.
        let address = unsafe { libc::dlsym(self.0, text) };
        assert!(!address.is_null(), "{name:?}");
        // SAFETY: the caller passes the type that the driver's header gives the function.
        let function = unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) };
        assert_eq!(body(function), 0, "{name:?}");
    }
}
