//! Shared code of the targets: a limit on the allocations of decoders, and comparisons of
//! encodings.
//!
//! Invariant: an allocation of a decoder above `LARGEST` bytes is a finding, whatever its input.

pub mod arena;
pub mod c_api;
pub mod replay;

#[cfg(fuzzing)]
pub use libfuzzer_sys::fuzz_target;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nexar::error::Code;

/// The maximum size of one allocation. Inputs are far smaller.
const LARGEST: usize = 1 << 20;

/// The system's allocator. It records the largest allocation of each thread.
struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

thread_local! {
    static LARGEST_REQUEST: Cell<usize> = const { Cell::new(0) };
}

fn record(bytes: usize) {
    let _ = LARGEST_REQUEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        record(bytes);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs a decoder. Panics if it allocates more than `LARGEST` bytes at once.
pub fn watched<T>(decode: impl FnOnce() -> T) -> T {
    LARGEST_REQUEST.set(0);
    let decoded = decode();
    let largest = LARGEST_REQUEST.get();
    assert!(largest <= LARGEST, "{largest} bytes were allocated at once");
    decoded
}

/// Asserts that a decoded value encodes to the bytes that it was decoded from.
pub fn same_bytes(encoded: &[u8], bytes: &[u8]) {
    assert_eq!(encoded, bytes, "the decoded value has another encoding");
}

/// Whether bytes contain a character that the decoders of texts replace by a space.
pub fn has_control_characters(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).chars().any(char::is_control)
}

/// Whether a call that returns this code has failed.
pub fn is_failure(code: Code) -> bool {
    !matches!(code, Code::Success | Code::InProgress)
}
