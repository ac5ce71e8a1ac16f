//! Execution of operations: batches of them, polled to completion on the caller's thread or on a
//! stream's.
//!
//! Leaves to `collective` and `messaging` what is sent. Splits and operations with staged buffers
//! are executed elsewhere: they implement `Operation`. Each file uses only files further down.
//!
//! ```text
//!     batch         operations that run together
//!     watch         deadlines and straggler reports of a batch
//!     work          an operation: collective, message or other
//!     collective    a collective in the turn of its lane
//!     pieces        a collective on host memory, whole or in pieces
//!     ticket        an operation from its beginning to its completion
//!     stream        a thread that executes batches in order
//!     stream_order  the order of the operations of one communicator on its streams
//!     lane          turns of the operations that share a lane
//!     blame         texts about the ranks that are waited for
//! ```

mod batch;
mod blame;
mod collective;
mod lane;
mod pieces;
mod stream;
mod stream_order;
mod ticket;
mod watch;
mod work;

pub use stream::Stream;
pub use work::Work;

pub(super) use batch::{Batch, HostRequest, begin, run_alone, run_batch, run_begun};
pub(super) use blame::{of_message, of_straggling, of_timeout};
pub(super) use collective::{agreed, collective, in_turn};
pub(super) use lane::LaneQueues;
pub(super) use pieces::perform_in_pieces;
pub(super) use stream_order::{StreamCounts, StreamOrder, with_issue_lock};
pub(super) use ticket::Ticket;
pub(super) use work::{Operation, receive};
