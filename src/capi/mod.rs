//! The C border: C arguments into values of this crate, `Result` into a code.
//!
//! The only exported symbols are here, one file per family of functions. Each function is an
//! `extern "C" fn` in plain sight whose body runs inside `boundary`. Invariants: no panic crosses
//! the border, an out-parameter is written only on success, no handle is ever dereferenced, and a
//! C enum is received as an integer.
#![expect(unsafe_code, reason = "the border deals in C pointers and exported symbols")]
#![allow(clippy::missing_safety_doc, reason = "the conventions stand at the head of nexar.h")]
#![allow(non_snake_case, reason = "parameter names as in the header")]

mod arguments;
mod boundary;
pub mod collective;
pub mod comm;
mod communicators;
pub mod group;
mod handle;
pub mod memory;
pub mod message;
mod operators;
mod process;
pub mod redop;
pub mod split;
pub mod stream;
mod submit;
pub mod types;
pub mod varying;
pub mod version;

pub use boundary::refuse;
