//! From a hint that a peer is dead to certainty: it is sent heartbeats until it answers, or is
//! silent for too long.
//!
//! Leaves to `socket` the source of hints, and to `links` what follows. Invariant: a hint alone is
//! no evidence against a peer; only silence is, while this process runs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::{Instant, sleep_until};

use crate::rank::Rank;

use super::control::Frame;
use super::link::Link;
use super::links::Links;
use super::peer::Peer;
use super::socket::canonical;

/// The interval of heartbeats to a suspect.
const STEP: Duration = Duration::from_millis(40);
/// The silence that proves the death of a suspect after several hints, and after one.
const SILENCE: Duration = Duration::from_millis(400);
const LONGER_SILENCE: Duration = Duration::from_millis(600);
/// A packet that arrives so soon after the first hint may have been sent before the hint, and have
/// waited in the socket.
const STALE: Duration = Duration::from_millis(120);
/// If a step is this late, the process did not run meanwhile.
const LATE: Duration = Duration::from_millis(150);

struct Suspicion {
    link: Arc<Link>,
    hints: usize,
    first_hint: Instant,
    /// The peer's counter of received packets, and since when it has not grown.
    heard: u64,
    silent_since: Instant,
}

/// Receives hints for as long as there are links.
pub(super) async fn watch_hints(links: Weak<Links>, mut hints: Receiver<SocketAddr>) {
    let mut suspects: HashMap<Rank, Suspicion> = HashMap::new();
    let mut step = Instant::now();
    loop {
        let hint = tokio::select! {
            hint = hints.recv() => Some(hint),
            () = sleep_until(step), if !suspects.is_empty() => None,
        };
        let Some(links) = links.upgrade() else { return };
        match hint {
            Some(Ok(address)) => {
                if suspects.is_empty() {
                    step = Instant::now();
                }
                links.suspect(address, &mut suspects);
            }
            Some(Err(RecvError::Lagged(_))) => {}
            Some(Err(RecvError::Closed)) => return,
            None => {
                let now = Instant::now();
                if now - step > LATE {
                    suspects.values_mut().for_each(|suspicion| suspicion.begin_again(now));
                }
                suspects.retain(|peer, suspicion| links.is_suspect(*peer, suspicion, now));
                step = now + STEP;
            }
        }
    }
}

impl Links {
    fn suspect(&self, address: SocketAddr, suspects: &mut HashMap<Rank, Suspicion>) {
        let links = self.peers.iter().map(Peer::link).enumerate();
        for (rank, link) in links.filter_map(|(rank, link)| Some((Rank(rank), link?))) {
            if canonical(link.connection.remote_address()) == canonical(address) {
                let new = || Suspicion::new(link);
                suspects.entry(rank).or_insert_with(new).hints += 1;
            }
        }
    }

    /// Whether the peer is still a suspect. Declares it dead if it has been silent for too long,
    /// else sends it a heartbeat.
    fn is_suspect(&self, peer: Rank, suspicion: &mut Suspicion, now: Instant) -> bool {
        if self.peers[peer.0].has_ended() || self.is_closing() {
            return false;
        }
        let heard = suspicion.link.heard();
        if heard > suspicion.heard {
            (suspicion.heard, suspicion.silent_since) = (heard, now);
            // A host limits its ICMP errors, so a dead peer may cause no further hint soon.
            return now - suspicion.first_hint < STALE;
        }
        let limit = if suspicion.hints > 1 { SILENCE } else { LONGER_SILENCE };
        if now - suspicion.silent_since >= limit {
            self.declare_dead(peer, &suspicion.link);
            return false;
        }
        let _ = suspicion.link.control.send(Frame::Heartbeat(Vec::new()));
        true
    }
}

impl Suspicion {
    fn new(link: Arc<Link>) -> Self {
        let now = Instant::now();
        Self { heard: link.heard(), link, hints: 0, first_hint: now, silent_since: now }
    }

    /// Packets that arrived while this process did not run are still in the socket.
    fn begin_again(&mut self, now: Instant) {
        (self.first_hint, self.silent_since) = (now, now);
    }
}
