//! What a process does before it ends, or before it reports an error that may end it: lets its last
//! messages and its faults arrive.
//!
//! Leaves to `communicator` the end of a single communicator. Invariant: every wait is bounded.

use std::time::{Duration, Instant};

use crate::bootstrap;
use crate::runtime;
use crate::transport;

use super::cuda;

/// How often a call that reports a failure checks whether the peers have received the fault.
pub(super) const DELIVERY_POLL: Duration = Duration::from_micros(500);

/// The longest that a process which ends waits for its last messages, even if they flow.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Delivers what completed operations have sent, in a process that ends without destroying its
/// communicators. `inside_a_call`: the process exits inside a call. This thread may then hold the
/// locks of that call, so the wait is short.
pub fn leave_all(inside_a_call: bool) {
    if inside_a_call {
        runtime::announce_exit();
    } else if let Some(io) = runtime::io_if_started() {
        let leaving = io.spawn(async {
            transport::leave_all().await;
            bootstrap::leave().await;
        });
        if !runtime::wait_while_driven(leaving, Instant::now() + LEAVE_TIMEOUT) {
            runtime::announce_exit();
        }
    }
    cuda::release_all();
}

/// Waits, for a bounded time, until the peers have received every fault of this process's
/// communicators. A program may exit as soon as it has seen an error, and the peers must not blame
/// that exit.
pub fn deliver_faults() {
    if transport::is_delivering_faults() {
        // Hand the network to another thread: the thread that drives it now may be stopped by the
        // program.
        runtime::hand_over();
        while transport::is_delivering_faults() {
            std::thread::sleep(DELIVERY_POLL);
        }
    }
}
