//! nexar: collective communication behind a C ABI.
//!
//! The product is `libnexar.so` and `include/nexar.h`. A few Rust modules are public for the
//! stand-ins of this repository; their API is not stable. The feature `testing` makes the others
//! public for the tests. ARCHITECTURE.md describes the modules.

// Ranks exchange elements in the byte order of their memory.
#[cfg(target_endian = "big")]
compile_error!("nexar exchanges little-endian data and does not swap bytes");
// A handle is a 64-bit table key stored in a C pointer.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("nexar needs 64-bit pointers");
// Reductions set the floating-point environment, which is in a register of the architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("nexar knows the floating-point environment of x86-64 and aarch64 only");

#[cfg(not(feature = "testing"))]
mod arena;
#[cfg(feature = "testing")]
pub mod arena;
#[cfg(not(feature = "testing"))]
mod blocks;
#[cfg(feature = "testing")]
pub mod blocks;
#[cfg(not(feature = "testing"))]
mod bootstrap;
#[cfg(feature = "testing")]
pub mod bootstrap;
#[cfg(not(feature = "testing"))]
mod buffer;
#[cfg(feature = "testing")]
pub mod buffer;
pub mod capi;
#[cfg(not(feature = "testing"))]
mod collective;
#[cfg(feature = "testing")]
pub mod collective;
#[cfg(not(feature = "testing"))]
mod comm;
#[cfg(feature = "testing")]
pub mod comm;
pub mod config;
#[cfg(not(feature = "testing"))]
mod cut;
#[cfg(feature = "testing")]
pub mod cut;
pub mod device;
pub mod dtype;
pub mod error;
#[cfg(not(feature = "testing"))]
mod kept;
#[cfg(feature = "testing")]
pub mod kept;
#[cfg(not(feature = "testing"))]
mod log;
#[cfg(feature = "testing")]
pub mod log;
#[cfg(not(feature = "testing"))]
mod matching;
#[cfg(feature = "testing")]
pub mod matching;
#[cfg(not(feature = "testing"))]
mod memory;
#[cfg(feature = "testing")]
pub mod memory;
#[cfg(not(feature = "testing"))]
mod message;
#[cfg(feature = "testing")]
pub mod message;
#[cfg(not(feature = "testing"))]
mod messaging;
#[cfg(feature = "testing")]
pub mod messaging;
pub mod op;
#[cfg(not(feature = "testing"))]
mod parker;
#[cfg(feature = "testing")]
pub mod parker;
#[cfg(not(feature = "testing"))]
mod rank;
#[cfg(feature = "testing")]
pub mod rank;
pub mod reduce;
#[cfg(not(feature = "testing"))]
mod runtime;
#[cfg(feature = "testing")]
pub mod runtime;
#[cfg(not(feature = "testing"))]
mod sync;
#[cfg(feature = "testing")]
pub mod sync;
#[cfg(not(feature = "testing"))]
mod transport;
#[cfg(feature = "testing")]
pub mod transport;
