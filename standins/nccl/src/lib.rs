//! The functions of `libnccl.so.2`, implemented by those of nexar.
//!
//! Defines every function of NCCL 2.32, one file per family. Each is a plain `extern "C" fn` that
//! passes its arguments to the corresponding function of nexar. Leaves everything else to nexar.
//! Invariants: a failure stores its text for ncclGetLastError, no panic reaches the C caller, and a
//! function that needs a GPU kernel is refused.
#![expect(unsafe_code, reason = "the API has C pointers and exported symbols")]
#![allow(clippy::missing_safety_doc, reason = "the conventions are those of nccl.h")]
#![allow(clippy::too_many_arguments, reason = "the parameters are NCCL's")]
#![allow(non_camel_case_types, non_snake_case, reason = "names as in nccl.h")]

mod boundary;
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
