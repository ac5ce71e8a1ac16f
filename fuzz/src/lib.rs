//! What the targets share: how a decoder is watched, and how texts of others are compared.
//!
//! Invariant: a decoder that allocates more than `LARGEST` at once is a finding, whatever it was
//! given.

pub mod arena;
pub mod replay;

#[cfg(fuzzing)]
pub use libfuzzer_sys::fuzz_target;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nexar::error::Code;

/// No input of a target comes near it.
const LARGEST: usize = 1 << 20;

/// The system's allocator, with an eye on the largest piece that was asked for.
struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

fn record(bytes: usize) {
    let _ = ASKED.try_with(|asked| asked.set(asked.get().max(bytes)));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: as for this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: as for this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        record(bytes);
        // SAFETY: as for this function.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for this function.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs a decoder, and fails if it asks for too much memory.
pub fn watched<T>(decode: impl FnOnce() -> T) -> T {
    ASKED.set(0);
    let decoded = decode();
    let asked = ASKED.get();
    assert!(asked <= LARGEST, "{asked} bytes were allocated at once");
    decoded
}

/// What decodes must encode to the bytes it came from.
pub fn same_bytes(encoded: &[u8], bytes: &[u8]) {
    assert_eq!(encoded, bytes, "what was decoded encodes otherwise");
}

/// Whether bytes hold a character that a decoder of texts replaces by a space.
pub fn has_control_characters(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).chars().any(char::is_control)
}

/// Whether a call that ends with this code has failed.
pub fn is_failure(code: Code) -> bool {
    !matches!(code, Code::Success | Code::InProgress)
}
