//! A communicator from creation to destruction: operations in order, in groups and on streams;
//! failure and abort.
//!
//! ```text
//!     create  background  split  hosts    how a communicator is created
//!     submit        chooses the path of a request: one of the next three
//!     fast_path     a short collective or message of one host, completed without a ticket
//!     probe         looks for a message without receiving it
//!     nonblocking   requests, issued and waited for: message_request is one, request_set polls
//!                   those that no call waits for
//!     run           batches of operations, polled to completion
//!     cuda          operations on the memory of a CUDA device, staged through host memory
//!     request       an operation that a caller has submitted
//!     communicator  the struct: its sequence numbers, its failure and its end
//!     leave         the last messages and faults of a process that ends
//! ```

mod background;
mod communicator;
mod create;
mod cuda;
mod fast_path;
mod hosts;
mod leave;
mod message_request;
mod nonblocking;
mod probe;
mod request;
mod request_set;
mod run;
mod split;
mod submit;

pub use background::{BackgroundCreation, QueuedCreation};
pub use communicator::Communicator;
pub use create::{create_in_process, join, join_environment};
#[cfg(feature = "testing")]
pub use create::{create_on, create_over};
pub use cuda::{CurrentDevice, MemoryKind, current_device, memory_kind};
pub use fast_path::{FastPath, TryFastPath};
pub use leave::{deliver_faults, leave_all};
pub use message_request::{Cancelled, MessageRequest};
pub use nonblocking::{irecv, isend, wait_any};
pub use probe::probe;
#[cfg(feature = "testing")]
pub use probe::probe_async;
pub use request::Request;
pub use run::{Stream, Work};
pub use split::{ColorKey, SplitRequest, split};
pub use submit::{
    request, request_at_once, share_cuda_stream, submit, submit_all, try_at_once,
    try_messages_at_once,
};
