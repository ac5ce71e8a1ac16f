//! Execution of operations: batches of them, polled to completion on the caller's thread or on a
//! stream's.
//!
//! ```text
//!     batch         operations that run together         work    what an operation does
//!     ticket        an operation from begin to end       lane    turns of one lane
//!     stream        a thread with a queue of batches     stream_order  batches of one communicator
//!     watch         deadlines and straggler reports      blame   who is waited for, in words
//! ```

mod batch;
mod blame;
mod lane;
mod stream;
mod stream_order;
mod ticket;
mod watch;
mod work;

pub use batch::{Request, run_together};
pub(super) use batch::{Batch, begin, run_alone, run_begun, while_nobody_issues};
pub(super) use blame::{of_message, of_straggling, of_timeout};
pub(super) use lane::Lanes;
pub use stream::Stream;
pub(super) use stream_order::Backlog;
pub(super) use ticket::Ticket;
pub use work::Work;
pub(super) use work::{collective, receive};
