//! How long a rank that leaves waits for peers to acknowledge its last bytes.
//!
//! Leaves to `links` and `context` what is awaited. Invariant: every such wait is bounded.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::link::Link;

/// How long to wait for a peer that acknowledges nothing: while the process lives on, when it
/// exits, and after a failure.
const PATIENCE: Duration = Duration::from_secs(60);
const EXIT_PATIENCE: Duration = Duration::from_secs(2);
const FAILED_PATIENCE: Duration = Duration::from_millis(200);

/// The longest wait. The bytes that flow may belong to another communicator.
const LONGEST_LEAVE: Duration = Duration::from_secs(600);

/// Interval at which the traffic of the links is compared.
const LEAVE_TICK: Duration = Duration::from_millis(200);

/// A link that carries only heartbeats and their acknowledgements sends fewer bytes in a tick.
const HEARTBEAT_BYTES: u64 = 1000;

/// Whether the process exits.
static IS_EXITING: AtomicBool = AtomicBool::new(false);

/// The process exits: from now on no wait is long.
pub(super) fn hurry() {
    IS_EXITING.store(true, Ordering::Relaxed);
}

/// Waits for `io`, which completes after the last bytes of some links: as long as bytes flow over
/// them, and a while longer. `failed`: the communicator has failed. Returns false if it stopped
/// waiting.
pub(super) async fn while_bytes_flow<T>(
    links: &[Arc<Link>],
    failed: bool,
    io: impl Future<Output = T>,
) -> bool {
    let sent = || -> u64 { links.iter().map(|link| link.connection.stats().udp_tx.bytes).sum() };
    tokio::pin!(io);
    let (mut before, mut still) = (sent(), Duration::ZERO);
    let last = Instant::now() + LONGEST_LEAVE;
    while timeout(LEAVE_TICK, &mut io).await.is_err() {
        let now = sent();
        // Heartbeats do not count.
        let flows = now - before > HEARTBEAT_BYTES * links.len() as u64;
        still = if flows { Duration::ZERO } else { still + LEAVE_TICK };
        before = now;
        if still >= patience(failed) || Instant::now() >= last {
            return false;
        }
    }
    true
}

fn patience(failed: bool) -> Duration {
    match failed {
        true => FAILED_PATIENCE,
        false if IS_EXITING.load(Ordering::Relaxed) => EXIT_PATIENCE,
        false => PATIENCE,
    }
}
