//! The C API: turns C arguments into values of this crate, and `Result` into a code.
//!
//! Only this folder exports symbols, one file per family of functions. Each function is a plain
//! `extern "C" fn`, not a macro, and its body is executed inside `boundary`. Invariants: no panic
//! reaches the C caller, an out-parameter is written only on success, no handle is dereferenced,
//! and a C enum is received as an integer.
#![allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::invalid_html_tags,
    reason = "doc comments here are text of the C header, where brackets index arrays"
)]
#![expect(unsafe_code, reason = "the C API has C pointers and exported symbols")]
#![allow(clippy::missing_safety_doc, reason = "the head of nexar.h has the conventions")]
#![allow(non_snake_case, reason = "parameter names as in the header")]

mod arguments;
mod boundary;
pub mod collective;
pub mod comm;
mod communicators;
mod created;
pub mod datatype;
mod datatypes;
pub mod group;
mod handle;
pub mod memory;
pub mod message;
mod operators;
mod process;
pub mod redop;
pub mod request;
pub mod split;
mod status;
pub mod stream;
mod submit;
pub mod types;
pub mod varying;
pub mod version;

pub use boundary::refuse;
