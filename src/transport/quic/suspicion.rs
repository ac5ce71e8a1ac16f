//! From a hint that a peer is gone to certainty: it is asked until it answers, or does not.
//!
//! Leaves to `socket` where hints come from, and to `links` what follows. Invariant: only silence,
//! while this process was awake to hear, is held against a peer; a hint alone never is.

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

/// How often a suspect is asked.
const STEP: Duration = Duration::from_millis(40);
/// How long it must be silent after several hints, and after one.
const SILENCE: Duration = Duration::from_millis(400);
const LONGER_SILENCE: Duration = Duration::from_millis(600);
/// What comes so soon after the first hint may have been sent before, and have waited in our
/// socket.
const STALE: Duration = Duration::from_millis(120);
/// A step that came so late was slept through.
const LATE: Duration = Duration::from_millis(150);

struct Suspicion {
    link: Arc<Link>,
    hints: usize,
    first_hint: Instant,
    /// What had come from it, and since when nothing has.
    heard: u64,
    silent_since: Instant,
}

/// Heeds hints for as long as there are links.
pub(super) async fn heed(links: Weak<Links>, mut hints: Receiver<SocketAddr>) {
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
                suspects.retain(|peer, suspicion| links.judge(*peer, suspicion, now));
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

    /// Whether the suspicion stays.
    fn judge(&self, peer: Rank, suspicion: &mut Suspicion, now: Instant) -> bool {
        if self.peers[peer.0].has_ended() || self.is_closing() {
            return false;
        }
        let heard = suspicion.link.heard();
        if heard > suspicion.heard {
            (suspicion.heard, suspicion.silent_since) = (heard, now);
            // A host says only a few such words: who is dead will not be hinted at again soon.
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

    /// What came while this process slept is yet to be heard.
    fn begin_again(&mut self, now: Instant) {
        (self.first_hint, self.silent_since) = (now, now);
    }
}
