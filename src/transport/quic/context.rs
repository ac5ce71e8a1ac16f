//! A context: one communicator over links that others may share.
//!
//! Knows its members by their ranks in the roster, and what has become of the communicator. Leaves
//! to `links` which peers are connected, to `streams` the streams, and to `delivery` how long a
//! fault is on its way. Invariants:
//! - the first fault that this rank learns of is sent once to every member it is connected to;
//! - of several disagreements that ranks find at once, one member chooses the one that all report;
//! - a context that was left has no streams in any link.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::info;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Rank, RankOf};
use crate::transport::call_table::CallTable;
use crate::transport::recent_calls::RecentCalls;
use crate::transport::{Absent, ControlMessage, LANES, MessageQueues, Missing};

use super::beacon;
use super::context_id::ContextId;
use super::control::Frame;
use super::delivery::{FaultDelivery, PublishedFaults};
use super::drain::while_bytes_flow;
use super::link::Link;
use super::link_error::LinkError;
use super::linked_context::LinkedContext;
use super::links::Links;
use super::message_delivery::deliver_all;
use super::mutex::lock;
use super::peer::Peer;

/// How long a disagreement waits for the member that chooses the fault, besides the time of a few
/// packets.
const PATIENCE_WITH_SPOKESMAN: Duration = Duration::from_millis(50);

pub(in crate::transport) struct Context {
    pub id: ContextId,
    pub(super) links: Arc<Links>,
    pub me: RankOf,
    /// The members by their ranks in the roster.
    members: Vec<Rank>,
    pub message_queues: Arc<MessageQueues>,
    /// The calls of this rank.
    pub recent_calls: Arc<RecentCalls>,
    calls: Mutex<Calls>,
    fault: OnceLock<Error>,
    delivery: FaultDelivery,
    failed: Notify,
    /// The first disagreement that this rank has learned of. The fault may name another one.
    disagreement: OnceLock<Error>,
    has_left: AtomicBool,
    /// Set when the leave is complete.
    is_gone: watch::Sender<bool>,
}

/// The calls that ranks have entered.
struct Calls {
    call_table: CallTable,
    /// One more than the number of the latest call of this rank that is in the table.
    posted: u64,
}

impl Context {
    /// `members` by rank; this process is one of them.
    pub(super) fn new(id: ContextId, links: Arc<Links>, members: Vec<Rank>) -> Arc<Self> {
        let me = members.iter().position(|member| *member == links.me.rank);
        let me = RankOf::new(Rank(me.expect("this process is a member")), members.len());
        let context = Arc::new(Self {
            id,
            links,
            me,
            message_queues: Arc::new(MessageQueues::new(me)),
            recent_calls: Arc::default(),
            calls: Mutex::new(Calls { call_table: CallTable::new(members.len()), posted: 0 }),
            members,
            fault: OnceLock::new(),
            delivery: FaultDelivery::new(id),
            failed: Notify::new(),
            disagreement: OnceLock::new(),
            has_left: AtomicBool::new(false),
            is_gone: watch::Sender::new(false),
        });
        let linked = Arc::clone(&context) as Arc<dyn LinkedContext>;
        context.links.open(&linked);
        deliver_all(&context.links, &linked);
        context
    }

    /// The rank of a member in the roster.
    pub fn in_roster(&self, rank: Rank) -> Rank {
        self.members[rank.0]
    }

    pub fn members(&self) -> &[Rank] {
        &self.members
    }

    /// The rank in this context of a rank of the roster, if that is a member.
    fn rank_of(&self, member: Rank) -> Option<Rank> {
        self.members.iter().position(|one| *one == member).map(Rank)
    }

    /// The host that each rank names, if any. Ranks that name the same host may share memory.
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

    /// Enters the recent calls of this rank into the call table. `Err` if another rank has entered
    /// another call under the same number.
    pub fn post(&self) -> Result<()> {
        let mut calls = lock(&self.calls);
        let mut posted = Ok(());
        for (seq, call) in self.recent_calls.since(calls.posted) {
            posted = posted.and(calls.call_table.enter(self.me.rank, seq, call));
            calls.posted = seq + 1;
        }
        posted
    }

    /// As `post`, but proposes a mismatch as the fault. Must be called inside the runtime.
    fn post_all(self: &Arc<Self>) {
        if let Err(mismatch) = self.post() {
            self.propose(mismatch);
        }
    }

    /// Ranks disagree, as this rank has found or a peer has reported. The spokesman chooses the
    /// first disagreement that it learns of as the fault. Other ranks pass theirs on, so that one
    /// reaches the spokesman, and wait for the fault. Must be called inside the runtime.
    pub fn propose(self: &Arc<Self>, disagreement: Error) {
        if self.spokesman() == self.me.rank {
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

    /// The first member that has not left.
    fn spokesman(&self) -> Rank {
        let is_there = |rank: &Rank| {
            let peer = self.peer(*rank);
            let has_left = |link: Arc<Link>| link.has_left(self.id);
            *rank == self.me.rank || !peer.has_ended() && !peer.link().is_some_and(has_left)
        };
        (0..self.me.size).map(Rank).find(is_there).unwrap_or(self.me.rank)
    }

    /// Whether ranks are known to disagree. The fault may not be known yet.
    pub fn is_disputed(&self) -> bool {
        self.disagreement.get().is_some()
    }

    /// Ranks that have not entered call number `seq`. Must be called inside the runtime.
    pub fn missing(self: &Arc<Self>, seq: u64) -> Missing {
        self.post_all();
        let missing = lock(&self.calls).call_table.missing(seq);
        // Heartbeats arrive over links.
        let has_link = |absent: &Absent| self.peer(absent.rank).link().is_some();
        let (absent, unknown): (_, Vec<_>) = missing.into_iter().partition(has_link);
        Missing { absent, unknown: unknown.into_iter().map(|absent| absent.rank).collect() }
    }

    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// Delivers the messages of a rank of this host that have arrived in shared memory.
    pub fn deliver_from_ring(&self, from: Rank) {
        if let Err(what) = self.message_queues.deliver_from_ring(from) {
            self.learn(Error::Protocol { peer: from, what });
        }
    }

    /// The context has failed. The first fault stays: it ends every wait here and is sent to the
    /// members. Returns it.
    pub fn learn(&self, fault: Error) -> Error {
        let mut first = false;
        let fault = self.fault.get_or_init(|| {
            first = true;
            self.delivery.begin();
            fault
        });
        if first {
            beacon::count_fault();
            self.delivery.publish(fault);
            self.failed.notify_waiters();
            self.message_queues.fail(fault.clone());
            for link in self.member_links() {
                let _ = link.control.send(Frame::fault(self.id, fault));
            }
        }
        fault.clone()
    }

    /// From now on faults are published to the ranks of this host. An earlier fault is published
    /// now.
    pub fn publish_faults(&self, published: impl PublishedFaults + 'static) {
        if self.delivery.publish_to(Box::new(published))
            && let Some(fault) = self.fault()
        {
            self.delivery.publish(fault);
        }
    }

    /// The fault that a rank of this host has published, if any.
    pub fn published_by(&self, rank: Rank) -> Option<Error> {
        self.delivery.published_by(rank)
    }

    /// Whether the fault is on its way to some member: one that is linked, has not reported that it
    /// knows, and is not itself the culprit.
    pub(super) fn is_delivering_fault(&self) -> bool {
        self.delivery.is_under_way(&self.members, |member| {
            // A member that broke the protocol may never answer.
            let culprit = self.fault().and_then(Error::culprit);
            let may_answer = |link: Arc<Link>| {
                !link.has_left(self.id) && link.connection.close_reason().is_none()
            };
            member != self.links.me.rank
                && culprit != Some(member)
                && self.links.peers[member.0].link().is_some_and(may_answer)
        })
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
            // The reason is known when the task of the connection has seen its end.
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
            // A fault ends a wait, but a result that is there already is still taken.
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

    /// Runs something that waits for a peer until it ends or the peer is gone.
    pub async fn while_there<T>(
        &self,
        peer: Rank,
        io: impl Future<Output = std::result::Result<T, LinkError>>,
    ) -> std::result::Result<T, LinkError> {
        before(io, self.gone(peer)).await.unwrap_or(Err(LinkError::Lost))
    }

    /// Waits until a peer has left the communicator or its connection has ended, and returns how.
    pub async fn gone(&self, peer: Rank) -> String {
        let peer = self.peer(peer);
        match peer.readable() {
            Some(link) => peer.gone_from(&link.streams(self.id)).await,
            None => peer.ended().await,
        }
    }

    /// The error of a peer that is gone. If it has published a fault, that is the reason.
    pub fn lost(&self, peer: Rank, how: String) -> Error {
        let published = || self.published_by(peer).map(|fault| self.learn(fault));
        let known = self.fault().cloned().or_else(published);
        known.unwrap_or(Error::PeerLost { peer, how })
    }

    /// Waits for the link to a peer.
    pub(super) async fn linked(&self, peer: Rank) -> Result<Arc<Link>> {
        match self.or_fault(self.peer(peer).linked()).await? {
            Ok(link) => Ok(link),
            Err(how) => Err(self.lost(peer, how)),
        }
    }

    /// Waits until there is or was a link to a peer.
    pub async fn was_linked(&self, peer: Rank) -> Result<()> {
        match self.or_fault(self.peer(peer).was_linked()).await? {
            Ok(()) => Ok(()),
            Err(how) => Err(self.lost(peer, how)),
        }
    }

    /// Leaves in good order: waits until all sent data is acknowledged, then informs the members.
    /// The last context to leave closes the links.
    pub async fn leave(self: Arc<Self>) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        let rank = self.me.rank;
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
        if !while_bytes_flow(&links, failed, acknowledged).await {
            info!(rank = rank.0 as u64, "{rank} leaves; a peer has not acknowledged its last data");
        }
        self.links.leave(&*self, failed).await;
        self.is_gone.send_replace(true);
    }

    /// Waits until a leave that has begun is complete.
    pub async fn left(&self) {
        let _ = self.is_gone.subscribe().wait_for(|gone| *gone).await;
    }
}

impl LinkedContext for Context {
    fn id(&self) -> ContextId {
        self.id
    }

    fn members(&self) -> &[Rank] {
        &self.members
    }

    fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    fn latest_calls(self: Arc<Self>) -> Vec<(u64, Call)> {
        self.post_all();
        let begin = self.recent_calls.end().saturating_sub(LANES as u64);
        let mut latest: Vec<_> = self.recent_calls.since(begin).collect();
        latest.reverse();
        latest
    }

    fn expects_payload(&self, peer: Rank, id: u64) -> bool {
        self.rank_of(peer).is_some_and(|from| self.message_queues.expects(from, id))
    }

    fn left(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::left(self))
    }

    fn peer_entered(self: Arc<Self>, peer: Rank, seq: u64, call: Call) {
        let Some(rank) = self.rank_of(peer) else { return };
        self.post_all();
        let entered = lock(&self.calls).call_table.enter(rank, seq, call);
        if let Err(mismatch) = entered {
            self.propose(mismatch);
        }
    }

    fn disagreement_reported(self: Arc<Self>, peer: Rank, disagreement: Error) {
        if self.has_member(peer) {
            self.propose(disagreement);
        }
    }

    fn fault_reported(&self, peer: Rank, fault: Error) {
        if self.has_member(peer) {
            self.delivery.add_informed(peer);
            self.learn(fault);
        }
    }

    fn fail(&self, fault: Error) {
        self.learn(fault);
    }

    fn deliver(&self, peer: Rank, message: ControlMessage) -> std::result::Result<(), String> {
        match self.rank_of(peer) {
            Some(from) => self.message_queues.deliver(from, message),
            None => Err("is not a member of the communicator".to_owned()),
        }
    }

    fn deliver_in_memory(&self, peer: Rank) {
        if let Some(rank) = self.rank_of(peer) {
            self.deliver_from_ring(rank);
        }
    }

    fn no_more_messages(&self, peer: Rank, how: &str) {
        if let Some(rank) = self.rank_of(peer) {
            // The last messages of a rank of this host.
            self.deliver_from_ring(rank);
            self.message_queues.gone(rank, how);
        }
    }

    fn peer_violated(&self, peer: Rank, what: &str) {
        if let Some(peer) = self.rank_of(peer) {
            self.learn(Error::Protocol { peer, what: what.to_owned() });
        }
    }

    fn peer_lost(&self, peer: Rank, how: &str) {
        if let Some(rank) = self.rank_of(peer) {
            self.learn(self.lost(rank, how.to_owned()));
        }
    }

    fn peer_gone(&self, peer: Rank) {
        let published = self.rank_of(peer).and_then(|rank| self.published_by(rank));
        if let Some(fault) = published {
            self.learn(fault);
        }
    }
}

/// `Some` if `io` completes before `end`. When `end` completes, `io` is polled once more, because
/// it may have completed concurrently.
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
    fn a_result_that_completes_together_with_the_end_is_taken() {
        let mut polls = 0;
        let ready_at_the_second_poll = poll_fn(|_| {
            polls += 1;
            if polls == 2 { Poll::Ready(7) } else { Poll::Pending }
        });
        assert_eq!(before(ready_at_the_second_poll, ready(())).now_or_never(), Some(Some(7)));
        assert_eq!(before(pending::<()>(), ready(())).now_or_never(), Some(None));
        assert_eq!(before(pending::<()>(), pending::<()>()).now_or_never(), None);
    }
}
