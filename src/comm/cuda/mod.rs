//! Operations on the memory of a CUDA device: staged through pinned host memory, in the order of
//! the caller's CUDA streams.
//!
//! Leaves to `device` the driver. No call on host memory enters a file of this folder, but for the
//! question where its buffers are if a driver is loaded. Each file uses only files further down.
//!
//! ```text
//!     enqueue      puts operations on CUDA streams
//!     staged       executes a staged operation in host memory
//!     attach       the device of a communicator, and which buffers are on it
//!     layout       where the buffers of an operation are staged
//!     state        what a communicator has for its device
//!     pinned_pool  pinned memory of communicators that have ended
//!     allocation   when pinned memory may be allocated and freed
//! ```

mod allocation;
mod attach;
mod enqueue;
mod layout;
mod pinned_pool;
mod staged;
mod state;

pub use crate::device::{CudaStream, MemoryKind, kind_of as memory_kind};
pub use attach::{CurrentDevice, OnCuda, current_device};

pub(super) use allocation::release_all;
pub(super) use attach::Prepared;
pub(super) use enqueue::enqueue_all;
pub(super) use state::{CudaState, DEVICE_POLL, Ending, has_driver};
