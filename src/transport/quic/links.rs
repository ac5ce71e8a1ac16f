//! The links of this process to the others of a roster, and the contexts that share them: a
//! communicator and all that were split off it.
//!
//! Leaves to `peer` how a link comes up and ends. Invariants:
//! - a peer's rank follows from the key it proved to own, never from what it says;
//! - links stay until the last context has left;
//! - a peer hears once of each context that this rank has left and it has not.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use quinn::{Connection, ConnectionError};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::error::Error;
use crate::rank::{Place, Rank};
use crate::transport::HAS_LEFT;

use super::context::{Context, ContextId};
use super::control::Frame;
use super::endpoint::Service;
use super::link::{Link, LinkError};
use super::peer::{self, Peer};
use super::reader::StreamReader;
use super::suspicion::heed;
use super::{Member, Plan, lock, notes, service_name, silence};
use crate::transport::key::PublicKey;

/// How long a rank that leaves waits for a peer that takes nothing of its last bytes: while the
/// process lives on, when it ends, and after a failure.
const PATIENCE: Duration = Duration::from_secs(60);
const EXIT_PATIENCE: Duration = Duration::from_secs(2);
const FAILED_PATIENCE: Duration = Duration::from_millis(200);

/// What flows may belong to others: not longer than this in any case.
const LONGEST_LEAVE: Duration = Duration::from_secs(600);

/// How often it looks.
const LEAVE_TICK: Duration = Duration::from_millis(200);

/// A link over which nothing but heartbeats and their acknowledgements goes sends less in a tick.
const HEARTBEAT_BYTES: u64 = 1000;

/// What a peer sent before it died is taken in: how often it is looked for, how many looks in a row must
/// find nothing new, and how many there are at most.
const LAST_TICK: Duration = Duration::from_millis(4);
const LAST_SILENCE: usize = 4;
const MOST_LAST_TICKS: usize = 50;

/// What others know of the end of a peer without a link arrives within this time.
const LAST_NEWS: Duration = Duration::from_millis(50);

const HAS_DIED: &str = "has died";
/// Of a process with which this one was not connected: it may have left in good order.
pub(super) const HAS_ENDED: &str = "has ended";

/// Bytes of the faults that go with the end of a connection: they must fit into one packet.
const MOST_LAST_WORDS: usize = 1000;
/// Of each, so that the longest fits.
const MOST_LAST_CHARS: usize = 240;

/// Faults that are kept of contexts which this rank has yet to make.
const MOST_EARLY_FAULTS: usize = 1024;

/// The process ends.
pub(super) static EXITING: AtomicBool = AtomicBool::new(false);

pub(super) struct Links {
    pub plan: Plan,
    /// In the roster.
    pub place: Place,
    pub peers: Vec<Peer>,
    ranks: HashMap<PublicKey, Rank>,
    contexts: Mutex<Contexts>,
    is_closing: AtomicBool,
    /// The last context to leave had failed: nobody is waited for long.
    is_hurried: AtomicBool,
    /// The tasks that take the connections of peers and watch their processes.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Contexts {
    open: HashMap<ContextId, Weak<Context>>,
    /// Those that this rank has left and others may not have.
    left: HashMap<ContextId, Left>,
    early_faults: HashMap<ContextId, Error>,
}

struct Left {
    /// Who has not left, as far as is known.
    members: Vec<Rank>,
    fault: Option<Error>,
}

impl Links {
    /// Registers this rank so that peers can connect. Must be called inside the runtime.
    pub fn new(plan: Plan) -> Arc<Self> {
        let place = Place::new(plan.rank, plan.roster.len());
        let ranks: HashMap<_, _> =
            plan.roster.iter().enumerate().map(|(rank, member)| (member.key, Rank(rank))).collect();
        let expected: HashSet<_> = ranks.keys().copied().collect();
        let service = plan.endpoint.serve(service_name(plan.nonce, plan.rank), &plan.me, expected);
        let links = Arc::new(Self {
            place,
            ranks,
            peers: (0..place.size).map(|_| Peer::default()).collect(),
            contexts: Mutex::default(),
            is_closing: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
            tasks: Mutex::default(),
            plan,
        });
        let accepting = tokio::spawn(accept(Arc::clone(&links), service));
        let heeding = tokio::spawn(heed(Arc::downgrade(&links), links.plan.endpoint.hints()));
        let peer_timeout = links.plan.peer_timeout;
        let listening = tokio::spawn(silence::watch(Arc::downgrade(&links), peer_timeout));
        let watching = (0..place.size).map(Rank).filter_map(|peer| links.watch(peer));
        *lock(&links.tasks) = watching.chain([accepting, heeding, listening]).collect();
        links
    }

    /// A process on this host is seen to die.
    fn watch(self: &Arc<Self>, peer: Rank) -> Option<JoinHandle<()>> {
        if peer == self.place.rank {
            return None;
        }
        let watched = self.member(peer).process?.watch()?;
        let links = Arc::downgrade(self);
        Some(tokio::spawn(async move {
            watched.died().await;
            if let Some(links) = links.upgrade() {
                links.died(peer).await;
            }
        }))
    }

    /// The process of a peer is no more.
    async fn died(&self, peer: Rank) {
        let Some(link) = self.peers[peer.0].link() else {
            // If it went because of a fault, that may be on its way through others.
            sleep(LAST_NEWS).await;
            // It may have left in good order, without a word to those it never spoke with: only who
            // waits for it has lost something.
            return self.gone(peer, HAS_ENDED);
        };
        // What it sent before may lie in our socket, also that it leaves: that is taken in first.
        let heard = || link.connection.stats().udp_rx.datagrams;
        let (mut before, mut silent) = (heard(), 0);
        for _ in 0..MOST_LAST_TICKS {
            sleep(LAST_TICK).await;
            silent = if heard() == before { silent + 1 } else { 0 };
            before = heard();
            if silent == LAST_SILENCE || self.peers[peer.0].has_ended() {
                break;
            }
        }
        match self.peers[peer.0].has_ended() {
            true => {}
            false if self.is_closing() => link.connection.close(peer::LEFT, b""),
            false => self.declare_dead(peer, &link),
        }
    }

    /// A peer that was not heard to leave is no more.
    pub fn declare_dead(&self, peer: Rank, link: &Link) {
        debug!("{peer} of the roster {HAS_DIED}");
        self.lose(peer, HAS_DIED);
        // It may live after all.
        link.connection.close(peer::LEFT, &self.last_words(peer));
        self.forget(peer);
    }

    pub fn member(&self, peer: Rank) -> &Member {
        &self.plan.roster[peer.0]
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// A context begins.
    pub fn open(self: &Arc<Self>, context: &Arc<Context>) {
        let early = {
            let mut contexts = lock(&self.contexts);
            contexts.open.insert(context.id, Arc::downgrade(context));
            contexts.early_faults.remove(&context.id)
        };
        for (rank, member) in context.members().iter().enumerate() {
            let peer = &self.peers[member.0];
            // One that is gone may have sent something before.
            if let Some(link) = peer.readable() {
                link.allow(self.contexts_with(*member).len());
                notes::watch(self, context, *member, &link);
            }
            let has_left = |link: Arc<Link>| link.has_left(context.id);
            if peer.readable().is_some_and(has_left) {
                continue;
            }
            if let Some(how) = peer.lost() {
                context.learn(Error::PeerLost { peer: Rank(rank), how });
            }
        }
        if let Some(fault) = early {
            context.learn(fault);
        }
    }

    pub fn context(&self, id: ContextId) -> Option<Arc<Context>> {
        lock(&self.contexts).open.get(&id).and_then(Weak::upgrade)
    }

    /// The contexts of which `peer` is a member.
    pub fn contexts_with(&self, peer: Rank) -> Vec<Arc<Context>> {
        let open: Vec<_> = lock(&self.contexts).open.values().filter_map(Weak::upgrade).collect();
        open.into_iter().filter(|context| context.rank_of(peer).is_some()).collect()
    }

    /// What a new link must be told: what became of contexts while there was none.
    pub fn news_for(&self, peer: Rank) -> Vec<Frame> {
        let fault = |context: &Arc<Context>| Some(Frame::fault(context.id, context.fault()?));
        let mut news: Vec<_> = self.contexts_with(peer).iter().filter_map(fault).collect();
        let contexts = lock(&self.contexts);
        for (id, left) in contexts.left.iter().filter(|(_, left)| left.members.contains(&peer)) {
            news.extend(left.fault.as_ref().map(|fault| Frame::fault(*id, fault)));
            news.push(Frame::Leave(*id));
        }
        news
    }

    /// The faults among them, each short enough for one packet.
    pub fn short_faults_for(&self, peer: Rank) -> Vec<Frame> {
        let short = |frame| match frame {
            Frame::Fault { context, code, text } => {
                let text = text.chars().take(MOST_LAST_CHARS).collect();
                Some(Frame::Fault { context, code, text })
            }
            _ => None,
        };
        self.news_for(peer).into_iter().filter_map(short).collect()
    }

    /// The same as bytes, for a peer to whom there will be no link.
    pub fn last_words(&self, peer: Rank) -> Vec<u8> {
        let mut words = Vec::new();
        for fault in self.short_faults_for(peer) {
            let encoded = fault.encode();
            if words.len() + encoded.len() <= MOST_LAST_WORDS {
                words.extend(encoded);
            }
        }
        words
    }

    /// What a peer said when it closed its connection.
    pub fn heed_last_words(&self, peer: Rank, connection: &Connection) {
        if let Some(ConnectionError::ApplicationClosed(close)) = connection.close_reason() {
            let mut words = &close.reason[..];
            while let Some((Frame::Fault { context, code, text }, rest)) = Frame::first_of(words) {
                self.told(peer, context, Error::Told { code, text });
                words = rest;
            }
        }
    }

    /// `peer` tells of a context that has failed on it. Only a member is believed; who is one of a
    /// context that is yet to be made cannot be known.
    pub fn told(&self, peer: Rank, id: ContextId, fault: Error) {
        let mut contexts = lock(&self.contexts);
        if let Some(context) = contexts.open.get(&id).and_then(Weak::upgrade) {
            drop(contexts);
            if context.rank_of(peer).is_some() {
                context.note_informed(peer);
                context.learn(fault);
            }
            return;
        }
        if !contexts.left.contains_key(&id) && contexts.early_faults.len() < MOST_EARLY_FAULTS {
            contexts.early_faults.entry(id).or_insert(fault);
        }
    }

    /// Whether what a peer opens in a context is of no use any more.
    pub fn has_left(&self, id: ContextId) -> bool {
        lock(&self.contexts).left.contains_key(&id)
    }

    /// `peer` has opened a stream for the bytes of a message.
    pub fn take_body(
        &self,
        peer: Rank,
        link: &Link,
        id: ContextId,
        message: u64,
        reader: StreamReader,
    ) -> Result<(), LinkError> {
        // Dropping it tells the peer not to send more.
        let Some(context) = self.context(id).filter(|context| context.fault().is_none()) else {
            return Ok(());
        };
        let from = context.rank_of(peer);
        match from.is_some_and(|from| context.inbox.expects(from, message)) {
            true => link.streams(id).bodies.add(message, reader),
            false => Err(LinkError::Protocol(format!("sent message {message} unasked"))),
        }
    }

    /// `peer` has left a context.
    pub fn peer_left(&self, peer: Rank, link: &Link, id: ContextId) -> Result<(), LinkError> {
        let mut contexts = lock(&self.contexts);
        match contexts.left.get_mut(&id) {
            Some(left) => {
                left.members.retain(|member| *member != peer);
                if left.members.is_empty() {
                    contexts.left.remove(&id);
                }
            }
            None => link.streams_of_peer(id)?.leave(),
        }
        Ok(())
    }

    /// A context that this rank will never make: whoever is in it is told, and told to whoever of its
    /// parent's members is connected later.
    pub fn renounce(&self, id: ContextId, parents: &[Rank], fault: Error) {
        let others = parents.iter().copied().filter(|member| *member != self.place.rank);
        let members: Vec<_> = others.filter(|member| !self.peers[member.0].has_ended()).collect();
        for link in members.iter().filter_map(|member| self.peers[member.0].link()) {
            let _ = link.control.send(Frame::fault(id, &fault));
        }
        lock(&self.contexts).left.insert(id, Left { members, fault: Some(fault) });
    }

    /// The connection to `peer` is lost: every context that needs it has failed.
    pub fn lose(&self, peer: Rank, how: &str) {
        // Before the contexts are looked through: one that is opened later sees it.
        self.peers[peer.0].end(how.to_owned());
        let link = self.peers[peer.0].readable();
        for context in self.contexts_with(peer) {
            let has_left = |link: &Arc<Link>| link.has_left(context.id);
            let rank = context.rank_of(peer).expect("asked for contexts with it");
            if !link.as_ref().is_some_and(has_left) {
                context.learn(context.lost(rank, how.to_owned()));
            }
        }
    }

    /// The connection to `peer` has ended: it will not say which contexts it leaves.
    pub fn forget(&self, peer: Rank) {
        lock(&self.contexts).left.retain(|_, left| {
            left.members.retain(|member| *member != peer);
            !left.members.is_empty()
        });
    }

    /// A context has ended here, and all that was sent in it has arrived.
    pub async fn leave(self: &Arc<Self>, context: &Context, failed: bool) {
        let is_last = {
            let mut contexts = lock(&self.contexts);
            contexts.open.remove(&context.id);
            let stays = |member: &&Rank| {
                let peer = &self.peers[member.0];
                let has_left = |link: &Arc<Link>| link.has_left(context.id);
                **member != self.place.rank
                    && !peer.has_ended()
                    && !peer.link().as_ref().is_some_and(has_left)
            };
            let members: Vec<_> = context.members().iter().filter(stays).copied().collect();
            if !members.is_empty() {
                let fault = context.fault().cloned();
                contexts.left.insert(context.id, Left { members, fault });
            }
            contexts.open.is_empty()
        };
        for member in context.members() {
            if let Some(link) = self.peers[member.0].link() {
                let _ = link.control.send(Frame::Leave(context.id));
                link.forget(context.id);
            }
        }
        if is_last {
            self.is_hurried.store(failed, Ordering::Relaxed);
            self.close().await;
        }
    }

    /// Tells all peers, behind all that they were told before, and ends the connections.
    async fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        let links: Vec<_> = self.peers.iter().filter_map(Peer::link).collect();
        for link in &links {
            let _ = link.control.send(Frame::Bye);
        }
        // The writer of each control stream closes the connection behind its last frame.
        let closed = async {
            for link in &links {
                link.connection.closed().await;
            }
        };
        if !self.while_it_flows(&links, self.is_hurried(), closed).await {
            debug!("{} leaves without its peers' acknowledgement", self.place.rank);
        }
        // Until now they have seen peers die, for which nobody need wait any more.
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            task.abort();
            // Only then is closed what it had open.
            let _ = task.await;
        }
        for (rank, peer) in self.peers.iter().enumerate() {
            if let Some(link) = peer.link() {
                link.connection.close(peer::LEFT, &self.last_words(Rank(rank)));
            }
            peer.end("is not connected any more".to_owned());
        }
    }

    pub fn is_hurried(&self) -> bool {
        self.is_hurried.load(Ordering::Relaxed)
    }

    /// Waits for something that comes with the last bytes of some links, as long as bytes flow over
    /// them, and a while longer. False if it gave up.
    pub async fn while_it_flows<T>(
        &self,
        links: &[Arc<Link>],
        failed: bool,
        io: impl Future<Output = T>,
    ) -> bool {
        let sent =
            || -> u64 { links.iter().map(|link| link.connection.stats().udp_tx.bytes).sum() };
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

    /// Notes that a peer which left all contexts, as it said, is gone.
    pub fn end(&self, peer: Rank) {
        self.gone(peer, HAS_LEFT);
    }

    /// Nothing more comes from a peer, which alone is no failure.
    fn gone(&self, peer: Rank, how: &str) {
        self.forget(peer);
        for context in self.contexts_with(peer) {
            let rank = context.rank_of(peer).expect("asked for contexts with it");
            if let Some(fault) = context.published_by(rank) {
                context.learn(fault);
            }
        }
        self.peers[peer.0].end(how.to_owned());
        if self.peers[peer.0].readable().is_none() {
            for context in self.contexts_with(peer) {
                let rank = context.rank_of(peer).expect("asked for contexts with it");
                context.inbox.gone(rank, how);
            }
        }
    }
}

fn patience(failed: bool) -> Duration {
    match failed {
        true => FAILED_PATIENCE,
        false if EXITING.load(Ordering::Relaxed) => EXIT_PATIENCE,
        false => PATIENCE,
    }
}

/// Takes the connections of peers that dialled this rank.
async fn accept(links: Arc<Links>, mut service: Service) {
    while let Some(arrival) = service.arrivals.recv().await {
        let Some(rank) = links.ranks.get(&arrival.key).copied() else { continue };
        links.accepted(rank, arrival.connection);
    }
}
