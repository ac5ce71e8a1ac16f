//! Handles the death of the process of a peer on this host.
//!
//! Leaves to `process` how a death is detected, and to `links` what follows. Invariant: what the
//! peer sent before it died is processed first, because it may have left in good order.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::rank::Rank;

use super::link::LEFT;
use super::links::Links;
use super::peer::HAS_ENDED;

/// The wait for the last packets of a peer that has died: its interval, how many intervals in a row
/// must be silent, and how many there are at most.
const LAST_TICK: Duration = Duration::from_millis(4);
const LAST_SILENCE: usize = 4;
const MOST_LAST_TICKS: usize = 50;

/// A fault that other ranks report of a peer without a link arrives within this time.
const LAST_NEWS: Duration = Duration::from_millis(50);

/// Starts a task that watches the process of a peer. `None` if that is this rank itself, or a
/// process that cannot be watched from here. Must be called inside the runtime.
pub(super) fn watch(links: &Arc<Links>, peer: Rank) -> Option<JoinHandle<()>> {
    if peer == links.me.rank {
        return None;
    }
    let watched = links.member(peer).process?.watch()?;
    let links = Arc::downgrade(links);
    Some(tokio::spawn(async move {
        watched.died().await;
        if let Some(links) = links.upgrade() {
            died(&links, peer).await;
        }
    }))
}

/// The process of a peer has died.
async fn died(links: &Links, peer: Rank) {
    let Some(link) = links.peers[peer.0].link() else {
        // If it died because of a fault, other ranks may be about to report that.
        sleep(LAST_NEWS).await;
        // It may have left in good order, which it reports only to ranks that it is connected to.
        // So this is a failure only for an operation that waits for it.
        return links.gone(peer, HAS_ENDED);
    };
    // Its last packets may still be in the socket, among them its `Leave`.
    let heard = || link.connection.stats().udp_rx.datagrams;
    let (mut before, mut silent) = (heard(), 0);
    for _ in 0..MOST_LAST_TICKS {
        sleep(LAST_TICK).await;
        silent = if heard() == before { silent + 1 } else { 0 };
        before = heard();
        if silent == LAST_SILENCE || links.peers[peer.0].has_ended() {
            break;
        }
    }
    match links.peers[peer.0].has_ended() {
        true => {}
        false if links.is_closing() => link.connection.close(LEFT, b""),
        false => links.declare_dead(peer, &link),
    }
}
