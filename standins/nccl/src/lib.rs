//! NCCL's names for what nexar does: the inside of a `libnccl.so.2`.
//!
//! Every function of NCCL 2.32 is here, one file per family, each an `extern "C" fn` in plain sight
//! that hands its arguments to the function of nexar that does the same. Leaves everything else to
//! nexar. Invariants: a failure leaves its text for ncclGetLastError, no panic crosses the border,
//! and what needs a GPU says so instead of pretending.
#![expect(unsafe_code, reason = "the border deals in C pointers and exported symbols")]
#![allow(clippy::missing_safety_doc, reason = "the conventions are those of nccl.h")]
#![allow(clippy::too_many_arguments, reason = "the parameters are NCCL's")]
#![allow(non_camel_case_types, non_snake_case, reason = "names as in nccl.h")]

mod border;
pub mod collective;
pub mod comm;
mod config;
pub mod device;
pub mod encryption;
pub mod group;
pub mod memory;
pub mod parameter;
pub mod redop;
pub mod types;
pub mod version;
