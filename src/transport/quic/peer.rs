//! One peer of the roster: not connected, being dialled, connected, or gone.
//!
//! Leaves to `dial` how a connection is established, and to `links` what follows from its end.
//! Invariant: at most one connection to a peer becomes the link, and once it has ended there is no
//! other.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::transport::HAS_LEFT;

use super::link::Link;
use super::mutex::lock;
use super::streams::Streams;

/// The reason that is given for a peer whose process has ended without a link to this rank: it may
/// have left in good order.
pub const HAS_ENDED: &str = "has ended";

/// Whether a connection that a peer has dialled becomes the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalVerdict {
    Stays,
    /// There is another connection to the peer, or this rank's own dial takes precedence.
    Duplicate,
    /// This rank has recorded the end of the peer.
    TooLate,
}

/// The connection to one rank of the roster, from before it is dialled until it has ended.
#[derive(Default)]
pub struct Peer {
    state: Mutex<PeerState>,
    changed: Notify,
}

#[derive(Default)]
enum PeerState {
    #[default]
    Absent,
    Dialling,
    /// A connection of the peer was accepted, and this rank sends its welcome.
    Welcoming,
    Linked(Arc<Link>),
    /// The text says how. What the peer had sent before can still be read.
    Ended(String, Option<Arc<Link>>),
}

impl Peer {
    /// The connection, if there is one.
    pub fn link(&self) -> Option<Arc<Link>> {
        match &*self.lock() {
            PeerState::Linked(link) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// The connection to read from, which may have ended.
    pub fn readable(&self) -> Option<Arc<Link>> {
        match &*self.lock() {
            PeerState::Linked(link) | PeerState::Ended(_, Some(link)) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// Waits for the connection. The error says why there will be none.
    pub async fn linked(&self) -> Result<Arc<Link>, String> {
        self.wait(|state| match state {
            PeerState::Linked(link) => Some(Ok(Arc::clone(link))),
            PeerState::Ended(how, _) => Some(Err(how.clone())),
            _ => None,
        })
        .await
    }

    /// Waits until there is or was a connection. The error says why there will be none.
    pub async fn was_linked(&self) -> Result<(), String> {
        self.wait(|state| match state {
            PeerState::Linked(_) | PeerState::Ended(_, Some(_)) => Some(Ok(())),
            PeerState::Ended(how, None) => Some(Err(how.clone())),
            _ => None,
        })
        .await
    }

    /// Waits for the end of the connection, and returns how it ended.
    pub async fn ended(&self) -> String {
        self.wait(|state| match state {
            PeerState::Ended(how, _) => Some(how.clone()),
            _ => None,
        })
        .await
    }

    /// Records the end. The first reason stays.
    pub fn end(&self, how: String) {
        let mut state = self.lock();
        *state = match std::mem::take(&mut *state) {
            PeerState::Linked(link) => PeerState::Ended(how, Some(link)),
            PeerState::Ended(how, link) => PeerState::Ended(how, link),
            PeerState::Absent | PeerState::Dialling | PeerState::Welcoming => {
                PeerState::Ended(how, None)
            }
        };
        drop(state);
        self.changed.notify_waiters();
    }

    /// How the peer was lost. `None` if it was not, or has left in good order.
    pub fn lost(&self) -> Option<String> {
        match &*self.lock() {
            PeerState::Ended(how, _) if how != HAS_LEFT && how != HAS_ENDED => Some(how.clone()),
            _ => None,
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(*self.lock(), PeerState::Ended(..))
    }

    /// Waits until the peer has left the context of these streams or its connection has ended, and
    /// returns how.
    pub async fn gone_from(&self, streams: &Streams) -> String {
        tokio::select! {
            biased;
            () = streams.left() => HAS_LEFT.to_owned(),
            how = self.ended() => how,
        }
    }

    /// True if the peer is absent: then the caller must dial it.
    pub fn begin_dial(&self) -> bool {
        let mut state = self.lock();
        let is_absent = matches!(*state, PeerState::Absent);
        if is_absent {
            *state = PeerState::Dialling;
        }
        is_absent
    }

    pub fn is_dialled(&self) -> bool {
        matches!(*self.lock(), PeerState::Dialling)
    }

    /// The peer has dialled this rank. If this rank dials the peer as well, `precedes` says whether
    /// the connection of the peer is the one that stays.
    pub fn take_arrival(&self, precedes: bool) -> ArrivalVerdict {
        let mut state = self.lock();
        let verdict = match *state {
            PeerState::Absent => ArrivalVerdict::Stays,
            PeerState::Dialling if precedes => ArrivalVerdict::Stays,
            PeerState::Dialling | PeerState::Welcoming | PeerState::Linked(_) => {
                ArrivalVerdict::Duplicate
            }
            PeerState::Ended(..) => ArrivalVerdict::TooLate,
        };
        if verdict == ArrivalVerdict::Stays {
            *state = PeerState::Welcoming;
        }
        verdict
    }

    /// The connection has ended before the welcome was sent. The peer may dial again.
    pub fn forget_arrival(&self) {
        let mut state = self.lock();
        if matches!(*state, PeerState::Welcoming) {
            *state = PeerState::Absent;
        }
    }

    /// The connection is established. False if it is no longer expected, or `is_wanted`, which is
    /// called under the lock, returns false.
    pub fn connected(&self, link: &Arc<Link>, is_wanted: impl FnOnce() -> bool) -> bool {
        let mut state = self.lock();
        let is_awaited = matches!(*state, PeerState::Dialling | PeerState::Welcoming);
        if !is_awaited || !is_wanted() {
            return false;
        }
        *state = PeerState::Linked(Arc::clone(link));
        drop(state);
        self.changed.notify_waiters();
        true
    }

    async fn wait<T>(&self, check: impl Fn(&PeerState) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = check(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, PeerState> {
        lock(&self.state)
    }
}
