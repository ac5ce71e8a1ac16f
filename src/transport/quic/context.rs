//! A context: one communicator over links that others may share.
//!
//! Knows its members by their ranks in the roster, and what has become of the communicator. Leaves
//! to `links` who is connected and to `link` the streams. Invariants:
//! - the first fault this rank learns of is passed on to every member it is connected to, once;
//! - of several disagreements that ranks find at once, one member chooses what all are told;
//! - a context that is left has nothing of its own in any link any more.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::info;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Place, Rank};
use crate::transport::board::Board;
use crate::transport::recent_calls::RecentCalls;
use crate::transport::{Absent, HAS_LEFT, Inbox, LANES, Missing};

use super::control::Frame;
use super::delivery::PublishedFaults;
use super::link::{Link, LinkError, Streams};
use super::links::Links;
use super::peer::Peer;
use super::{beacon, lock};

/// How long a disagreement waits for the one who chooses its words, besides the time of a few packets.
const PATIENCE_WITH_SPOKESMAN: Duration = Duration::from_millis(50);

/// A number that the members of a communicator, and no others over the same links, know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextId(pub u64);

pub(in crate::transport) struct Context {
    pub id: ContextId,
    pub(super) links: Arc<Links>,
    pub place: Place,
    /// Ranks of the roster.
    members: Vec<Rank>,
    pub inbox: Inbox,
    /// The calls of this rank.
    pub recent_calls: Arc<RecentCalls>,
    calls: Mutex<Calls>,
    fault: OnceLock<Error>,
    /// When the fault was learned.
    pub(super) failed_at: OnceLock<Instant>,
    /// Members of the roster that have said that they know of a fault.
    pub(super) informed: Mutex<HashSet<Rank>>,
    /// Where faults are published to the ranks of this host, once they share memory.
    pub(super) published: OnceLock<Box<dyn PublishedFaults>>,
    failed: Notify,
    /// The first disagreement this rank has heard of, which may not be the one that is told.
    disagreement: OnceLock<Error>,
    has_left: AtomicBool,
    /// Set when the leave is complete.
    is_gone: watch::Sender<bool>,
}

/// Which calls were made.
struct Calls {
    board: Board,
    /// One more than the number of the latest call of this rank that is on the board.
    posted: u64,
}

impl Context {
    /// `members` by rank; this process is one of them.
    pub(super) fn new(id: ContextId, links: Arc<Links>, members: Vec<Rank>) -> Arc<Self> {
        let me = members.iter().position(|member| *member == links.place.rank);
        let place = Place::new(Rank(me.expect("this process is a member")), members.len());
        let context = Arc::new(Self {
            id,
            links,
            place,
            inbox: Inbox::new(place),
            recent_calls: Arc::default(),
            calls: Mutex::new(Calls { board: Board::new(members.len()), posted: 0 }),
            members,
            fault: OnceLock::new(),
            failed_at: OnceLock::new(),
            informed: Mutex::default(),
            published: OnceLock::new(),
            failed: Notify::new(),
            disagreement: OnceLock::new(),
            has_left: AtomicBool::new(false),
            is_gone: watch::Sender::new(false),
        });
        context.links.open(&context);
        context
    }

    /// The rank in the roster of a member.
    pub fn in_roster(&self, rank: Rank) -> Rank {
        self.members[rank.0]
    }

    pub fn members(&self) -> &[Rank] {
        &self.members
    }

    /// The rank here of one of the roster, if it is a member.
    pub fn rank_of(&self, member: Rank) -> Option<Rank> {
        self.members.iter().position(|one| *one == member).map(Rank)
    }

    /// The host that each rank names, if it does: ranks that name the same may share memory.
    pub fn hosts(&self) -> Vec<Option<[u8; 16]>> {
        self.members.iter().map(|member| self.links.member(*member).host).collect()
    }

    /// Whether some rank has CUDA devices.
    pub fn has_cuda(&self) -> bool {
        self.members.iter().any(|member| self.links.member(*member).cuda)
    }

    pub(super) fn peer(&self, rank: Rank) -> &Peer {
        &self.links.peers[self.in_roster(rank).0]
    }

    /// The links to members.
    fn member_links(&self) -> Vec<Arc<Link>> {
        self.members.iter().filter_map(|member| self.links.peers[member.0].link()).collect()
    }

    /// Puts the calls of this rank on the board. `Err` if another rank made another under one number.
    pub fn post(&self) -> Result<()> {
        let mut calls = lock(&self.calls);
        let mut posted = Ok(());
        for (seq, call) in self.recent_calls.since(calls.posted) {
            posted = posted.and(calls.board.enter(self.place.rank, seq, call));
            calls.posted = seq + 1;
        }
        posted
    }

    /// As `post`, for who does not make a call himself. Must be called inside the runtime.
    fn post_all(self: &Arc<Self>) {
        if let Err(mismatch) = self.post() {
            self.propose(mismatch);
        }
    }

    /// A member has made a call. Must be called inside the runtime.
    pub fn entered(self: &Arc<Self>, rank: Rank, seq: u64, call: Call) {
        self.post_all();
        let noted = lock(&self.calls).board.enter(rank, seq, call);
        if let Err(mismatch) = noted {
            self.propose(mismatch);
        }
    }

    /// Ranks disagree, as this one has found or was told. The spokesman takes the first such word for the
    /// fault; others pass theirs on until it comes to the spokesman, and wait for the fault. Must be called
    /// inside the runtime.
    pub fn propose(self: &Arc<Self>, disagreement: Error) {
        if self.spokesman() == self.place.rank {
            self.learn(disagreement);
            return;
        }
        if self.fault().is_some() || self.disagreement.set(disagreement.clone()).is_err() {
            return;
        }
        for link in self.member_links() {
            let _ = link.control.send(Frame::disagreement(self.id, &disagreement));
        }
        let slowest = self.member_links().iter().map(|link| link.connection.rtt()).max();
        let patience = PATIENCE_WITH_SPOKESMAN + 4 * slowest.unwrap_or_default();
        let context = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(patience).await;
            if let Some(context) = context.upgrade() {
                context.learn(disagreement);
            }
        });
    }

    /// The first member that is still there.
    fn spokesman(&self) -> Rank {
        let is_there = |rank: &Rank| {
            let peer = self.peer(*rank);
            let has_left = |link: Arc<Link>| link.has_left(self.id);
            *rank == self.place.rank || !peer.has_ended() && !peer.link().is_some_and(has_left)
        };
        (0..self.place.size).map(Rank).find(is_there).unwrap_or(self.place.rank)
    }

    /// Whether ranks are known to disagree and the fault is yet to come.
    pub fn is_disputed(&self) -> bool {
        self.disagreement.get().is_some()
    }

    /// This rank's latest calls, newest first. Must be called inside the runtime.
    pub fn latest(self: &Arc<Self>) -> Vec<(u64, Call)> {
        self.post_all();
        let begin = self.recent_calls.end().saturating_sub(LANES as u64);
        let mut latest: Vec<_> = self.recent_calls.since(begin).collect();
        latest.reverse();
        latest
    }

    /// Must be called inside the runtime.
    pub fn missing(self: &Arc<Self>, seq: u64) -> Missing {
        self.post_all();
        let missing = lock(&self.calls).board.missing(seq);
        // Heartbeats come over links.
        let has_link = |absent: &Absent| self.peer(absent.rank).link().is_some();
        let (absent, unknown): (_, Vec<_>) = missing.into_iter().partition(has_link);
        Missing { absent, unknown: unknown.into_iter().map(|absent| absent.rank).collect() }
    }

    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// The first fault is the communicator's: it ends every wait here and is passed on.
    pub fn learn(&self, fault: Error) -> Error {
        let mut first = false;
        let fault = self.fault.get_or_init(|| {
            first = true;
            // Before the fault can be seen: a call that reports it waits for its delivery.
            let _ = self.failed_at.set(Instant::now());
            fault
        });
        if first {
            beacon::note_fault();
            self.publish(fault);
            self.failed.notify_waiters();
            self.inbox.fail(fault.clone());
            for link in self.member_links() {
                let _ = link.control.send(Frame::fault(self.id, fault));
            }
        }
        fault.clone()
    }

    /// Runs something that waits for a peer until it ends or the communicator fails.
    pub async fn on_link<T>(
        &self,
        peer: Rank,
        io: impl Future<Output = std::result::Result<T, LinkError>>,
    ) -> Result<T> {
        match self.or_fault(io).await? {
            Ok(value) => Ok(value),
            Err(LinkError::Protocol(what)) => Err(Error::Protocol { peer, what }),
            // Why it was lost is known when the connection's own task has seen its end.
            Err(LinkError::Lost) => Err(self
                .or_fault(self.gone(peer))
                .await
                .map_or_else(|fault| fault, |how| self.lost(peer, how))),
        }
    }

    /// Waits for the fault.
    pub async fn failed(&self) -> Error {
        self.or_fault(std::future::pending::<Infallible>())
            .await
            .map_or_else(|fault| fault, |no| match no {})
    }

    /// Runs something until it ends or the communicator fails.
    pub async fn or_fault<T>(&self, io: impl Future<Output = T>) -> Result<T> {
        let failed = self.failed.notified();
        tokio::pin!(failed);
        failed.as_mut().enable();
        let fault = async {
            // A fault ends a wait; what is there already is still taken.
            if self.fault.get().is_none() {
                failed.await;
            }
            self.fault.get().expect("notified after it was set").clone()
        };
        tokio::select! {
            biased;
            value = io => Ok(value),
            fault = fault => Err(fault),
        }
    }

    /// A wait for something that a peer which is gone will never bring.
    pub async fn while_there<T>(
        &self,
        peer: Rank,
        io: impl Future<Output = std::result::Result<T, LinkError>>,
    ) -> std::result::Result<T, LinkError> {
        before(io, self.gone(peer)).await.unwrap_or(Err(LinkError::Lost))
    }

    /// Waits until a peer has left the communicator or its connection has ended, and says how.
    pub async fn gone(&self, peer: Rank) -> String {
        let peer = self.peer(peer);
        match peer.readable() {
            Some(link) => gone_from(&link.streams(self.id), peer).await,
            None => peer.ended().await,
        }
    }

    /// Why a peer is not there: it may have gone because of a fault, which it has published.
    pub fn lost(&self, peer: Rank, how: String) -> Error {
        let published = || self.published_by(peer).map(|fault| self.learn(fault));
        let known = self.fault().cloned().or_else(published);
        known.unwrap_or(Error::PeerLost { peer, how })
    }

    pub(super) async fn linked(&self, peer: Rank) -> Result<Arc<Link>> {
        match self.or_fault(self.peer(peer).linked()).await? {
            Ok(link) => Ok(link),
            Err(how) => Err(self.lost(peer, how)),
        }
    }

    pub async fn met(&self, peer: Rank) -> Result<()> {
        match self.or_fault(self.peer(peer).met()).await? {
            Ok(()) => Ok(()),
            Err(how) => Err(self.lost(peer, how)),
        }
    }

    /// Leaves in good order: what was sent is acknowledged, then the members are told. The last
    /// context to leave closes the links.
    pub async fn leave(self: Arc<Self>) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        let rank = self.place.rank;
        let links = self.member_links();
        let streams = links.iter().flat_map(|link| link.streams(self.id).take_senders());
        let mut streams: Vec<_> = streams.collect();
        streams.iter_mut().for_each(|stream| drop(stream.finish()));
        let acknowledged = async {
            for stream in &mut streams {
                let _ = stream.stopped().await;
            }
        };
        let failed = self.fault.get().is_some();
        if !self.links.while_it_flows(&links, failed, acknowledged).await {
            info!(rank = rank.0 as u64, "{rank} leaves; a peer has not acknowledged its last data");
        }
        self.links.leave(&self, failed).await;
        self.is_gone.send_replace(true);
    }

    /// Waits until a leave that has begun is complete.
    pub async fn left(&self) {
        let _ = self.is_gone.subscribe().wait_for(|gone| *gone).await;
    }
}

/// Waits until a peer has left the context of these streams or its connection has ended, and says how.
pub(super) async fn gone_from(streams: &Streams, peer: &Peer) -> String {
    tokio::select! {
        biased;
        () = streams.left() => HAS_LEFT.to_owned(),
        how = peer.ended() => how,
    }
}

/// What comes of a wait before its end, which another thread may bring between two looks: so what is there when
/// the end has come is still taken.
async fn before<T>(io: impl Future<Output = T>, end: impl Future) -> Option<T> {
    let mut io = pin!(io);
    tokio::select! {
        biased;
        value = &mut io => Some(value),
        _ = end => io.now_or_never(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::task::Poll;

    use super::*;

    #[test]
    fn what_comes_between_two_looks_is_taken_before_the_end() {
        let mut looks = 0;
        let comes_at_the_second_look = poll_fn(|_| {
            looks += 1;
            if looks == 2 { Poll::Ready(7) } else { Poll::Pending }
        });
        assert_eq!(before(comes_at_the_second_look, ready(())).now_or_never(), Some(Some(7)));
        assert_eq!(before(pending::<()>(), ready(())).now_or_never(), Some(None));
        assert_eq!(before(pending::<()>(), pending::<()>()).now_or_never(), None);
    }
}
