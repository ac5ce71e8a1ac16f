//! A peer from which nothing is received for its timeout is lost.
//!
//! Silence is measured in the time in which this process ran. A process that was stopped, suspended
//! or starved has received nothing, which is no evidence against a peer: a tick of its clock counts
//! as one tick, however late it is. QUIC's own idle timeout is off for the same reason.
//!
//! Leaves to `suspicion` a peer whose host reports its port closed, and to `links` what follows.
//! Invariant: only packets that the peer itself has sent count.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use crate::rank::Rank;

use super::link::{LEFT, Link};
use super::links::Links;
use super::peer::Peer;

/// A timeout is this many ticks, but a tick is at most `LONGEST_TICK`.
const TICKS: u32 = 10;
const LONGEST_TICK: Duration = Duration::from_millis(250);

/// What was received from a peer, and the ticks since.
struct Silence {
    link: Weak<Link>,
    heard: u64,
    ticks: u32,
}

/// Watches all linked peers for as long as there are links.
pub(super) async fn watch(links: Weak<Links>, peer_timeout: Duration) {
    let tick = (peer_timeout / TICKS).clamp(Duration::from_millis(1), LONGEST_TICK);
    let most = peer_timeout.as_nanos().div_ceil(tick.as_nanos()) as u32;
    let mut clock = interval(tick);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silences: HashMap<Rank, Silence> = HashMap::new();
    loop {
        clock.tick().await;
        let Some(links) = links.upgrade() else { return };
        let linked = links.peers.iter().map(Peer::link).enumerate();
        for (rank, link) in linked.filter_map(|(rank, link)| Some((Rank(rank), link?))) {
            let silence = silences.entry(rank).or_insert_with(|| Silence::new(&link));
            if silence.after_a_tick(&link) > most {
                links.give_up_silent(rank, &link, peer_timeout);
            }
        }
    }
}

impl Silence {
    fn new(link: &Arc<Link>) -> Self {
        Self { link: Arc::downgrade(link), heard: link.heard(), ticks: 0 }
    }

    /// The number of ticks without a packet of the peer.
    fn after_a_tick(&mut self, link: &Arc<Link>) -> u32 {
        let heard = link.heard();
        if heard != self.heard || self.link.as_ptr() != Arc::as_ptr(link) {
            *self = Self::new(link);
        }
        self.ticks += 1;
        self.ticks
    }
}

impl Links {
    fn give_up_silent(&self, peer: Rank, link: &Link, peer_timeout: Duration) {
        let how = format!("was not heard from for {} ms", peer_timeout.as_millis());
        debug!("{peer} of the roster {how}");
        match link.has_said_bye() || self.is_closing() {
            true => self.end(peer),
            false => self.lose(peer, &how),
        }
        // If the peer lives, it learns from the fault why it is no longer a member.
        link.connection.close(LEFT, &self.close_faults(peer));
        self.forget(peer);
    }
}
