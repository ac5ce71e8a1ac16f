//! Operations on the memory of a CUDA device: staged through pinned host memory, in the order of the
//! caller's CUDA streams.
//!
//! ```text
//!     attach       the device of a communicator          state        what it has for that device
//!     enqueue      puts operations on CUDA streams       staged       executes them in host memory
//!     layout       where their buffers are staged        allocation   when memory may be allocated
//!     pinned_pool  pinned memory between its users
//! ```

mod allocation;
mod attach;
mod enqueue;
mod layout;
mod pinned_pool;
mod staged;
mod state;

pub(super) use allocation::release_all;
pub use attach::OnCuda;
pub(super) use attach::Prepared;
pub(super) use enqueue::run_together;
pub(super) use staged::{Staged, perform_cut};
pub(super) use state::{Cuda, DEVICE_LOOK, Ending};
