//! One peer of a mesh: not connected, being dialled, connected, or gone.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::Error;
use crate::rank::Rank;
use crate::transport::HAS_LEFT;

use super::beacon::Beacon;
use super::control::Frame;
use super::endpoint::DialError;
use super::link::{Link, LinkError, Opened, open_control, opened, read_frame};
use super::links::{HAS_ENDED, Links};
use super::spine::{attend, speak};
use super::{Plan, lock, notes, service_name};

/// Why a connection is closed.
pub const LEFT: VarInt = VarInt::from_u32(1);
const DUPLICATE: VarInt = VarInt::from_u32(2);
const VIOLATION: VarInt = VarInt::from_u32(3);

/// Time for the accepting side's first word.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// In which a rank that knows all others makes itself known to them.
const OPENING_TIME: Duration = Duration::from_secs(5);
/// Pause before another try to reach a peer.
const RETRY: Duration = Duration::from_millis(50);

#[derive(Default)]
pub struct Peer {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
enum State {
    #[default]
    Absent,
    Dialling,
    /// A connection of the peer's was taken; the first word is on its way.
    Welcoming,
    Linked(Arc<Link>),
    /// With a sentence that says how. What the peer had sent before can still be read.
    Ended(String, Option<Arc<Link>>),
}

impl Peer {
    pub fn link(&self) -> Option<Arc<Link>> {
        match &*self.lock() {
            State::Linked(link) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// The connection to read from: also one that has ended.
    pub fn readable(&self) -> Option<Arc<Link>> {
        match &*self.lock() {
            State::Linked(link) | State::Ended(_, Some(link)) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// Waits for the connection, or for the news that there will be none.
    pub async fn linked(&self) -> Result<Arc<Link>, String> {
        self.wait(|state| match state {
            State::Linked(link) => Some(Ok(Arc::clone(link))),
            State::Ended(how, _) => Some(Err(how.clone())),
            _ => None,
        })
        .await
    }

    /// Waits until there is or was a connection, or for the news that there will be none.
    pub async fn met(&self) -> Result<(), String> {
        self.wait(|state| match state {
            State::Linked(_) | State::Ended(_, Some(_)) => Some(Ok(())),
            State::Ended(how, None) => Some(Err(how.clone())),
            _ => None,
        })
        .await
    }

    /// Waits for the end of the connection, and says how it came.
    pub async fn ended(&self) -> String {
        self.wait(|state| match state {
            State::Ended(how, _) => Some(how.clone()),
            _ => None,
        })
        .await
    }

    /// Notes the end. The first word on it stays.
    pub fn end(&self, how: String) {
        let mut state = self.lock();
        *state = match std::mem::take(&mut *state) {
            State::Linked(link) => State::Ended(how, Some(link)),
            State::Ended(how, link) => State::Ended(how, link),
            State::Absent | State::Dialling | State::Welcoming => State::Ended(how, None),
        };
        drop(state);
        self.changed.notify_waiters();
    }

    /// How it was lost, if it was: not in good order.
    pub fn lost(&self) -> Option<String> {
        match &*self.lock() {
            State::Ended(how, _) if how != HAS_LEFT && how != HAS_ENDED => Some(how.clone()),
            _ => None,
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(*self.lock(), State::Ended(..))
    }

    async fn wait<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Links {
    /// Dials a peer nobody has dialled yet.
    pub(super) fn begin_dial(self: &Arc<Self>, peer: Rank, runtime: &Handle) {
        let mut state = self.peers[peer.0].lock();
        if matches!(*state, State::Absent) {
            *state = State::Dialling;
            drop(state);
            runtime.spawn(dial(Arc::clone(self), peer));
        }
    }

    /// A peer has dialled this rank. Decides, before the first word, whether that connection stays.
    pub(super) fn accepted(self: &Arc<Self>, peer: Rank, connection: Connection) {
        let mut state = self.peers[peer.0].lock();
        let stays = match *state {
            State::Absent => true,
            State::Dialling => peer < self.place.rank,
            State::Welcoming | State::Linked(_) | State::Ended(..) => false,
        };
        if !stays {
            let gone = matches!(*state, State::Ended(..));
            drop(state);
            match gone {
                true => connection.close(LEFT, &self.last_words(peer)),
                false => connection.close(DUPLICATE, b""),
            }
            return;
        }
        *state = State::Welcoming;
        tokio::spawn(welcome(Arc::clone(self), peer, connection));
    }

    /// Sets a link's tasks to work, now that both sides know that it stays. `ours` is this side's
    /// control stream, which a peer that has left at once does not take any more; `theirs` the peer's
    /// where it has been opened already.
    fn start(
        self: &Arc<Self>,
        peer: Rank,
        connection: Connection,
        ours: Option<SendStream>,
        theirs: Option<RecvStream>,
    ) {
        let (sender, frames) = mpsc::unbounded_channel();
        let beacon = Beacon::new(self, peer, &connection);
        let link = Arc::new(Link::new(connection, sender, beacon));
        let mut state = self.peers[peer.0].lock();
        // A rank that closes its links has collected them before this one came up.
        let wanted = matches!(*state, State::Dialling | State::Welcoming);
        if !wanted || self.is_closing() {
            drop(state);
            link.connection.close(LEFT, &self.last_words(peer));
            return;
        }
        *state = State::Linked(Arc::clone(&link));
        drop(state);
        self.peers[peer.0].changed.notify_waiters();
        link.allow(self.contexts_with(peer).len());
        for context in self.contexts_with(peer) {
            notes::watch(self, &context, peer, &link);
        }
        for news in self.news_for(peer) {
            let _ = link.control.send(news);
        }
        if let Some(ours) = ours {
            tokio::spawn(speak(Arc::clone(self), peer, Arc::clone(&link), frames, ours));
        }
        tokio::spawn(attend(Arc::clone(self), peer, link, theirs));
    }

    /// A peer that breaks the protocol ends its communicators, and its connection.
    pub(super) fn expel(&self, peer: Rank, link: &Link, what: &str) {
        for context in self.contexts_with(peer) {
            let peer = context.rank_of(peer).expect("asked for contexts with it");
            context.learn(Error::Protocol { peer, what: what.to_owned() });
        }
        link.connection.close(VIOLATION, b"");
    }
}

async fn dial(links: Arc<Links>, peer: Rank) {
    let deadline = Instant::now() + links.plan.dial_timeout;
    let still_wanted = || matches!(*links.peers[peer.0].lock(), State::Dialling);
    let mut last = "has no address".to_owned();
    let mut refused_since = None;
    while still_wanted() && Instant::now() < deadline {
        for address in &links.member(peer).addresses {
            let name = service_name(links.plan.nonce, peer);
            let Plan { endpoint, me, .. } = &links.plan;
            let key = links.member(peer).key;
            // `silence` tells when it is lost.
            let dialled = endpoint.dial(*address, &name, me, key, None);
            match timeout_at(deadline, dialled).await {
                Ok(Ok(connection)) => match timeout(WELCOME_TIMEOUT, first_word(&connection)).await
                {
                    Ok(Ok((ours, theirs))) => {
                        return links.start(peer, connection, ours, Some(theirs));
                    }
                    // The peer keeps its own connection to us, which is on its way.
                    _ if closed_with(&connection, DUPLICATE) => return,
                    _ if closed_with(&connection, LEFT) => {
                        links.heed_last_words(peer, &connection);
                        return links.end(peer);
                    }
                    _ => last = format!("does not answer at {address}"),
                },
                Ok(Err(DialError::NoAnswer | DialError::Busy)) | Err(_) => {
                    last = format!("does not answer at {address}");
                }
                Ok(Err(DialError::Impostor)) => {
                    last = format!("is not the process at {address}");
                }
                Ok(Err(DialError::Refused)) => {
                    // All ranks are in: it may not have opened its service yet, or has closed it.
                    if refused_since.get_or_insert_with(Instant::now).elapsed() > OPENING_TIME {
                        return links.end(peer);
                    }
                    last = format!("refuses us at {address}");
                }
                Ok(Err(DialError::Other(why))) => {
                    last = format!("cannot be reached at {address}: {why}");
                }
            }
        }
        sleep(RETRY).await;
    }
    if still_wanted() {
        links.lose(peer, &last);
        links.forget(peer);
    }
}

/// The accepting side's first word, before anything else is sent.
async fn welcome(links: Arc<Links>, peer: Rank, connection: Connection) {
    let first = async {
        let mut control = open_control(&connection).await?;
        control.write_all(&Frame::Welcome.encode()).await?;
        Ok::<_, LinkError>(control)
    };
    match timeout(WELCOME_TIMEOUT, first).await {
        Ok(Ok(control)) => links.start(peer, connection, Some(control), None),
        // The peer has gone before it was welcomed; it may dial again.
        _ => {
            let mut state = links.peers[peer.0].lock();
            if matches!(*state, State::Welcoming) {
                *state = State::Absent;
            }
        }
    }
}

/// Waits for the accepting side to take the connection. It may have left since.
async fn first_word(
    connection: &Connection,
) -> Result<(Option<SendStream>, RecvStream), LinkError> {
    let Opened::Control(mut control) = opened(connection.accept_uni().await?).await? else {
        return Err(LinkError::Protocol("opened data before control".to_owned()));
    };
    match read_frame(&mut control).await? {
        Frame::Welcome => match open_control(connection).await {
            Ok(ours) => Ok((Some(ours), control)),
            Err(_) if closed_with(connection, LEFT) => Ok((None, control)),
            Err(error) => Err(error),
        },
        other => Err(LinkError::Protocol(format!("began with {other:?}"))),
    }
}

fn closed_with(connection: &Connection, code: VarInt) -> bool {
    matches!(
        connection.close_reason(),
        Some(ConnectionError::ApplicationClosed(close)) if close.error_code == code
    )
}
