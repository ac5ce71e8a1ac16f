//! nexar: collective communication behind a C ABI.
//!
//! The product is `libnexar.so` and `include/nexar.h`. The Rust modules are public for this
//! repository's tests and tools only and promise no stable API; ARCHITECTURE.md is their map.

// Buffers are host memory in the machine's own byte order, and so is the data between ranks.
#[cfg(target_endian = "big")]
compile_error!("nexar exchanges little-endian data and has not been taught to swap bytes");
// A handle is a 64-bit table key carried in a C pointer.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("nexar needs 64-bit pointers");
// Reductions set the floating-point environment, which each architecture has in another register.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("nexar knows the floating-point environment of x86-64 and aarch64 alone");

pub mod arena;
pub mod blocks;
pub mod bootstrap;
pub mod buffer;
pub mod capi;
pub mod collective;
pub mod comm;
pub mod config;
pub mod cut;
pub mod device;
pub mod dtype;
pub mod error;
pub mod kept;
pub mod log;
pub mod matching;
pub mod memory;
pub mod message;
pub mod messaging;
pub mod op;
pub mod parker;
pub mod rank;
pub mod reduce;
pub mod runtime;
pub mod sync;
pub mod transport;
