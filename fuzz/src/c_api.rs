//! Checks of codes and texts of the C API, a function for operators, and a choice of objects.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use nexar::capi::version::nexarGetLastError;
use nexar::dtype::DataType;
use nexar::error::Code;

/// Asserts that the library did not panic.
pub fn no_panic(code: Code) -> Code {
    if code == Code::InternalError {
        panic!("{}", text(nexarGetLastError(null_mut())));
    }
    code
}

pub fn text(text: *const c_char) -> String {
    assert!(!text.is_null());
    // SAFETY: the library returns a C string.
    unsafe { CStr::from_ptr(text) }.to_str().expect("in UTF-8").to_owned()
}

pub unsafe extern "C" fn keep_left(
    left: *const c_void,
    right: *mut c_void,
    count: usize,
    datatype: c_int,
    _: *mut c_void,
) {
    let size = DataType::from_code(datatype).expect("a type").size();
    // SAFETY: both have `count` elements and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(left.cast::<u8>(), right.cast(), count * size) };
}

/// One of the objects that were created, selected by `which`.
pub fn created<T: Copy>(all: &[T], which: u8) -> Option<T> {
    all.get(usize::from(which) % all.len().max(1)).copied()
}
