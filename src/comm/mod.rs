//! A communicator from creation to destruction: operations in order, in groups and on streams;
//! failure and abort.
//!
//! ```text
//!     communicator  the struct: its sequence numbers, its failure, its end
//!     create  making  split  hosts    how a communicator comes into being
//!     fast_path     a short call of one host, completed under the communicator's lock
//!     run           everything else: batches of operations, polled to completion
//!     cuda          buffers in the memory of a CUDA device, staged through host memory
//! ```

mod communicator;
mod create;
mod cuda;
mod fast_path;
mod hosts;
mod making;
mod run;
mod split;

pub use communicator::{Communicator, deliver_faults, leave_all};
pub use create::{create_in_process, create_on, create_over, join, join_environment};
pub use cuda::OnCuda;
pub use fast_path::{Begun, Tried};
pub use making::{Making, Queued};
pub use run::{Request, Stream, Work, run_together};
pub use split::{SplitRequest, Wish, split};
