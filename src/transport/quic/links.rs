//! The links of this process to the others of a roster, and the contexts that share them: a
//! communicator and all that were split off it.
//!
//! Leaves to `dial` how a link is established, to `control_plane` its frames, and to each context
//! what follows from a report. Invariants:
//! - links stay until the last context has left;
//! - a peer hears once of each context that this rank has left and the peer has not;
//! - a fault of one context is none of another; the loss of a peer is one of all contexts of which
//!   it is a member.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use quinn::{Connection, ConnectionError};
use tokio::task::JoinHandle;
use tracing::debug;

use crate::error::Error;
use crate::rank::{Rank, RankOf};
use crate::transport::HAS_LEFT;

use super::beacon::FaultsOfLinks;
use super::context_id::ContextId;
use super::control::Frame;
use super::drain::while_bytes_flow;
use super::link::{LEFT, Link, VIOLATION};
use super::link_error::LinkError;
use super::linked_context::LinkedContext;
use super::mutex::lock;
use super::peer::Peer;
use super::plan::{Member, Plan};
use super::stream_reader::StreamReader;

const HAS_DIED: &str = "has died";

/// The most bytes of faults in the close frame of a connection, which must fit into one packet.
const MOST_CLOSE_BYTES: usize = 1000;
/// The most characters of each fault, so that the longest fits.
const MOST_CLOSE_CHARS: usize = 240;

/// The most faults that are kept of contexts which this rank has yet to create.
const MOST_EARLY_FAULTS: usize = 1024;

pub(super) struct Links {
    pub plan: Plan,
    /// This rank in the roster.
    pub me: RankOf,
    pub peers: Vec<Peer>,
    contexts: Mutex<Contexts>,
    is_closing: AtomicBool,
    /// The last context to leave had failed, so this rank does not wait long for a peer.
    is_hurried: AtomicBool,
    /// The tasks that accept the connections of peers and watch them.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Contexts {
    open: HashMap<ContextId, Weak<dyn LinkedContext>>,
    /// Contexts that this rank has left and others may not have.
    left: HashMap<ContextId, LeftContext>,
    /// Faults of contexts that this rank has yet to create.
    early_faults: HashMap<ContextId, Error>,
}

struct LeftContext {
    /// Members that have not left, as far as is known.
    members: Vec<Rank>,
    fault: Option<Error>,
}

impl Links {
    /// Links without any connection yet.
    pub fn new(plan: Plan) -> Arc<Self> {
        let me = RankOf::new(plan.rank, plan.roster.len());
        Arc::new(Self {
            me,
            peers: (0..me.size).map(|_| Peer::default()).collect(),
            contexts: Mutex::default(),
            is_closing: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
            tasks: Mutex::default(),
            plan,
        })
    }

    /// Keeps tasks, which end with the links.
    pub fn keep(&self, tasks: Vec<JoinHandle<()>>) {
        *lock(&self.tasks) = tasks;
    }

    /// A peer has died without leaving.
    pub fn declare_dead(&self, peer: Rank, link: &Link) {
        debug!("{peer} of the roster {HAS_DIED}");
        self.lose(peer, HAS_DIED);
        // If the peer lives after all, it learns why it is no longer a member.
        link.connection.close(LEFT, &self.close_faults(peer));
        self.forget(peer);
    }

    pub fn member(&self, peer: Rank) -> &Member {
        &self.plan.roster[peer.0]
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Adds a new context. Reports to it at once lost members and faults that arrived before.
    pub fn open(&self, context: &Arc<dyn LinkedContext>) {
        let id = context.id();
        let early = {
            let mut contexts = lock(&self.contexts);
            contexts.open.insert(id, Arc::downgrade(context));
            contexts.early_faults.remove(&id)
        };
        for member in context.members() {
            let peer = &self.peers[member.0];
            if let Some(link) = peer.readable() {
                link.allow(self.contexts_with(*member).len());
            }
            if peer.readable().is_some_and(|link| link.has_left(id)) {
                continue;
            }
            if let Some(how) = peer.lost() {
                context.peer_lost(*member, &how);
            }
        }
        if let Some(fault) = early {
            context.fail(fault);
        }
    }

    /// An open context.
    pub fn context(&self, id: ContextId) -> Option<Arc<dyn LinkedContext>> {
        lock(&self.contexts).open.get(&id).and_then(Weak::upgrade)
    }

    /// The contexts of which `peer` is a member.
    pub fn contexts_with(&self, peer: Rank) -> Vec<Arc<dyn LinkedContext>> {
        let open: Vec<_> = lock(&self.contexts).open.values().filter_map(Weak::upgrade).collect();
        open.into_iter().filter(|context| context.has_member(peer)).collect()
    }

    /// Frames for a new link to `peer`: faults and leaves of contexts while there was no link.
    pub fn news_for(&self, peer: Rank) -> Vec<Frame> {
        let mut news = Vec::new();
        for context in self.contexts_with(peer) {
            news.extend(context.fault().map(|fault| Frame::fault(context.id(), fault)));
        }
        let contexts = lock(&self.contexts);
        for (id, left) in contexts.left.iter().filter(|(_, left)| left.members.contains(&peer)) {
            news.extend(left.fault.as_ref().map(|fault| Frame::fault(*id, fault)));
            news.push(Frame::Leave(*id));
        }
        news
    }

    /// The faults that `peer` must learn of, encoded for the close frame of its connection.
    pub fn close_faults(&self, peer: Rank) -> Vec<u8> {
        let mut faults = Vec::new();
        for fault in self.short_faults_for(peer) {
            let encoded = fault.encode();
            if faults.len() + encoded.len() <= MOST_CLOSE_BYTES {
                faults.extend(encoded);
            }
        }
        faults
    }

    /// Reports the faults with which a peer has closed its connection.
    pub fn report_close_faults(&self, peer: Rank, connection: &Connection) {
        if let Some(ConnectionError::ApplicationClosed(close)) = connection.close_reason() {
            let mut faults = &close.reason[..];
            while let Some((Frame::Fault { context, code, text }, rest)) = Frame::first_of(faults) {
                self.report_fault(peer, context, Error::Reported { code, text });
                faults = rest;
            }
        }
    }

    /// Whether this rank has left a context, so that it needs no stream of it.
    pub fn has_left(&self, id: ContextId) -> bool {
        lock(&self.contexts).left.contains_key(&id)
    }

    /// Accepts the stream of a payload that `peer` has opened.
    pub fn take_payload(
        &self,
        peer: Rank,
        link: &Link,
        id: ContextId,
        message: u64,
        reader: StreamReader,
    ) -> Result<(), LinkError> {
        // Dropping the reader tells the peer not to send more.
        let Some(context) = self.context(id).filter(|context| context.fault().is_none()) else {
            return Ok(());
        };
        match context.expects_payload(peer, message) {
            true => link.streams(id).payloads.add(message, reader),
            false => Err(LinkError::Protocol(format!("sent message {message} without a CTS"))),
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

    /// This rank will never create a context, because of a fault. Reports that to the connected
    /// members of its parent, and to those that connect later.
    pub fn renounce(&self, id: ContextId, parents: &[Rank], fault: Error) {
        let others = parents.iter().copied().filter(|member| *member != self.me.rank);
        let members: Vec<_> = others.filter(|member| !self.peers[member.0].has_ended()).collect();
        for link in members.iter().filter_map(|member| self.peers[member.0].link()) {
            let _ = link.control.send(Frame::fault(id, &fault));
        }
        lock(&self.contexts).left.insert(id, LeftContext { members, fault: Some(fault) });
    }

    /// The connection to `peer` is lost, so every context that it has not left fails.
    pub fn lose(&self, peer: Rank, how: &str) {
        // Before the contexts are listed: a context that is opened later sees it.
        self.peers[peer.0].end(how.to_owned());
        let link = self.peers[peer.0].readable();
        for context in self.contexts_with(peer) {
            if !link.as_ref().is_some_and(|link| link.has_left(context.id())) {
                context.peer_lost(peer, how);
            }
        }
    }

    /// The connection to `peer` has ended, so it will not report which contexts it leaves.
    pub fn forget(&self, peer: Rank) {
        lock(&self.contexts).left.retain(|_, left| {
            left.members.retain(|member| *member != peer);
            !left.members.is_empty()
        });
    }

    /// This rank leaves a context in which all that it sent has arrived. `failed`: the context has
    /// failed.
    pub async fn leave(&self, context: &dyn LinkedContext, failed: bool) {
        let id = context.id();
        let is_last = {
            let mut contexts = lock(&self.contexts);
            contexts.open.remove(&id);
            let stays = |member: &&Rank| {
                let peer = &self.peers[member.0];
                **member != self.me.rank
                    && !peer.has_ended()
                    && !peer.link().is_some_and(|link| link.has_left(id))
            };
            let members: Vec<_> = context.members().iter().filter(stays).copied().collect();
            if !members.is_empty() {
                let fault = context.fault().cloned();
                contexts.left.insert(id, LeftContext { members, fault });
            }
            contexts.open.is_empty()
        };
        for member in context.members() {
            if let Some(link) = self.peers[member.0].link() {
                let _ = link.control.send(Frame::Leave(id));
                link.forget(id);
            }
        }
        if is_last {
            self.is_hurried.store(failed, Ordering::Relaxed);
            self.close().await;
        }
    }

    /// Sends `Bye` to all peers, behind all earlier frames, and ends the connections.
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
        if !while_bytes_flow(&links, self.is_hurried(), closed).await {
            debug!("{} leaves without its peers' acknowledgement", self.me.rank);
        }
        // Until now these tasks have reported dead peers, so that no wait above was for those.
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            task.abort();
            // The task's descriptors are closed only when it has ended.
            let _ = task.await;
        }
        for (rank, peer) in self.peers.iter().enumerate() {
            if let Some(link) = peer.link() {
                link.connection.close(LEFT, &self.close_faults(Rank(rank)));
            }
            peer.end("is no longer connected".to_owned());
        }
    }

    pub fn is_hurried(&self) -> bool {
        self.is_hurried.load(Ordering::Relaxed)
    }

    /// A peer that has left all contexts, as it has reported, is gone.
    pub fn end(&self, peer: Rank) {
        self.gone(peer, HAS_LEFT);
    }

    /// A peer sends nothing more, which alone is no failure.
    pub fn gone(&self, peer: Rank, how: &str) {
        self.forget(peer);
        for context in self.contexts_with(peer) {
            context.peer_gone(peer);
        }
        self.peers[peer.0].end(how.to_owned());
        if self.peers[peer.0].readable().is_none() {
            for context in self.contexts_with(peer) {
                context.no_more_messages(peer, how);
            }
        }
    }

    /// A peer has broken the protocol: fails its communicators and closes its connection.
    pub fn expel(&self, peer: Rank, link: &Link, what: &str) {
        for context in self.contexts_with(peer) {
            context.peer_violated(peer, what);
        }
        link.connection.close(VIOLATION, b"");
    }
}

impl FaultsOfLinks for Links {
    fn short_faults_for(&self, peer: Rank) -> Vec<Frame> {
        let short = |frame| match frame {
            Frame::Fault { context, code, text } => {
                let text = text.chars().take(MOST_CLOSE_CHARS).collect();
                Some(Frame::Fault { context, code, text })
            }
            _ => None,
        };
        self.news_for(peer).into_iter().filter_map(short).collect()
    }

    /// Only a report of a member counts. The members of a context that this rank has yet to create
    /// are not known, so such a fault is kept.
    fn report_fault(&self, peer: Rank, id: ContextId, fault: Error) {
        let mut contexts = lock(&self.contexts);
        if let Some(context) = contexts.open.get(&id).and_then(Weak::upgrade) {
            drop(contexts);
            context.fault_reported(peer, fault);
            return;
        }
        if !contexts.left.contains_key(&id) && contexts.early_faults.len() < MOST_EARLY_FAULTS {
            contexts.early_faults.entry(id).or_insert(fault);
        }
    }
}
