//! QUIC between processes: the ranks of a communicator on one or many hosts.
//!
//! Each pair of ranks that exchanges anything has one connection, authenticated by the keys of the
//! roster. Neighbours are connected when the communicator is created and carry the control plane
//! (heartbeats, faults). Another peer is dialled by the rank that needs it first. A communicator
//! that is split off another shares its connections: each is a *context* of them. Leaves to
//! `links`, `context` and `dial` how that works. Invariants:
//! - when two ranks dial each other, the connection of the lower one stays (`dial`);
//! - contexts know nothing of each other (`links`).

pub mod beacon;
mod context;
mod context_id;
pub mod control;
mod control_messages;
mod control_plane;
mod deaths;
mod delivery;
mod dial;
mod drain;
pub mod endpoint;
mod handshakes;
mod link;
mod link_error;
mod linked_context;
mod links;
mod live_contexts;
mod message_delivery;
mod mutex;
mod neighbours;
mod opening;
mod payload_streams;
mod peer;
mod plan;
pub mod preamble;
pub mod process;
mod silence;
mod socket;
mod stream_opening;
mod stream_reader;
mod streams;
mod suspicion;
mod tls;

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::rank::Rank;

use super::key::PublicKey;
use super::lanes::{Land, Lanes};
use super::{ControlMessage, Header, Io, Lane};
use control::Frame;
use link::Link;
use neighbours::neighbours;

pub use context_id::ContextId;
pub use delivery::PublishedFaults;
pub use live_contexts::{is_delivering_faults, leave_all, on_exit};
pub use plan::{Member, Plan};

pub(super) use context::Context;

/// One rank's links to the other processes of a communicator.
pub struct Quic {
    pub(super) context: Arc<Context>,
    pub(super) runtime: Handle,
}

impl Quic {
    /// Registers this rank so that peers can connect. Must be called inside the runtime.
    pub fn open(plan: Plan) -> Arc<Self> {
        let (id, members) = (ContextId(plan.nonce), (0..plan.roster.len()).map(Rank).collect());
        Self::new(Context::new(id, opening::open(plan), members), Handle::current())
    }

    fn new(context: Arc<Context>, runtime: Handle) -> Arc<Self> {
        live_contexts::add(&context);
        Arc::new(Self { context, runtime })
    }

    /// The links of a communicator that call number `seq` splits off this one. It has `members`.
    pub fn split(&self, seq: u64, color: u32, members: &[Rank]) -> Arc<Self> {
        let members = members.iter().map(|rank| self.context.in_roster(*rank)).collect();
        let id = self.context.id.of_split(seq, color);
        let _inside = self.runtime.enter();
        let context = Context::new(id, Arc::clone(&self.context.links), members);
        Self::new(context, self.runtime.clone())
    }

    /// This rank will never create the part with `color` of call number `seq`, because of a fault.
    pub fn renounce(&self, seq: u64, color: u32, fault: Error) {
        let id = self.context.id.of_split(seq, color);
        self.context.links.renounce(id, self.context.members(), fault);
    }

    /// Connects to the neighbours of this rank. The first of two neighbours in the roster dials.
    pub async fn connect_neighbours(&self) -> Result<()> {
        let Context { links, me, .. } = &*self.context;
        for peer in neighbours(*me) {
            let peer = self.context.in_roster(peer);
            if peer > links.me.rank {
                dial::begin(links, peer, &self.runtime);
            }
        }
        for peer in neighbours(*me) {
            // A fast neighbour may have left already. What it sent has arrived.
            self.context.was_linked(peer).await?;
        }
        self.context.fault().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// The neighbours to which there is and was no link.
    pub fn unreached(&self) -> Vec<Rank> {
        let is_unreached = |peer: &Rank| self.context.peer(*peer).readable().is_none();
        neighbours(self.context.me).into_iter().filter(is_unreached).collect()
    }

    /// The link to read from, which may have ended.
    async fn readable(&self, peer: Rank) -> Result<Arc<Link>> {
        match self.context.peer(peer).readable() {
            Some(link) => Ok(link),
            None => self.link(peer).await,
        }
    }

    /// The link to write to. Dials the peer if there is none.
    async fn link(&self, peer: Rank) -> Result<Arc<Link>> {
        if let Some(link) = self.context.peer(peer).link() {
            return Ok(link);
        }
        self.dial(peer);
        Box::pin(self.context.linked(peer)).await
    }

    /// Connects to a peer, unless this rank has begun to.
    pub fn connect(&self, peer: Rank) {
        if peer != self.context.me.rank {
            self.dial(peer);
        }
    }

    fn dial(&self, peer: Rank) {
        dial::begin(&self.context.links, self.context.in_roster(peer), &self.runtime);
    }

    /// The plan with which the links were opened.
    pub fn plan(&self) -> &Plan {
        &self.context.links.plan
    }

    /// The key of a rank.
    pub fn key_of(&self, rank: Rank) -> PublicKey {
        self.context.links.member(self.context.in_roster(rank)).key
    }

    /// Tells ranks that this one cannot share memory with them.
    pub fn refuse_memory(&self, ranks: &[Rank]) {
        for rank in ranks.iter().copied() {
            self.connect(rank);
            let context = Arc::clone(&self.context);
            self.runtime.spawn(async move {
                if let Ok(link) = context.linked(rank).await {
                    let _ = link.control.send(Frame::SharesNoMemory(context.id));
                }
            });
        }
    }

    /// Asks a rank to deliver what this one has written to shared memory.
    pub fn ask_to_deliver(&self, to: Rank) {
        self.connect(to);
        let context = Arc::clone(&self.context);
        self.runtime.spawn(async move {
            if let Ok(link) = context.linked(to).await {
                let _ = link.control.send(Frame::DeliverMessages(context.id));
            }
        });
    }

    /// Waits until one of these ranks says that it cannot share memory, and returns that one.
    pub async fn memory_refused(&self, ranks: &[Rank]) -> Rank {
        let context = &self.context;
        let refusal = |rank: &Rank| {
            let (rank, peer) = (*rank, context.peer(*rank));
            async move {
                match peer.linked().await {
                    Ok(link) => link.streams(context.id).memory_refused().await,
                    // The caller learns otherwise that the peer is lost.
                    Err(_) => std::future::pending().await,
                }
                rank
            }
        };
        let mut refusals: FuturesUnordered<_> = ranks.iter().map(refusal).collect();
        refusals.next().await.unwrap_or(context.me.rank)
    }

    /// Sends a control message of `Messages` to another rank.
    pub async fn send_control(&self, to: Rank, message: ControlMessage) -> Result<()> {
        let (context, link) = (&self.context, self.link(to).await?);
        let streams = link.streams(context.id);
        let written = streams.control_messages.write(&link.connection, context.id, &message);
        context.on_link(to, context.while_there(to, written)).await
    }

    /// Sends the payload of message `id` to another rank.
    pub async fn send_payload(&self, to: Rank, id: u64, bytes: &[u8]) -> Result<()> {
        let (context, link) = (&self.context, self.link(to).await?);
        let streams = link.streams(context.id);
        let written = streams.payloads.write(&link.connection, context.id, id, bytes);
        context.on_link(to, context.while_there(to, written)).await
    }

    /// Receives the payload of message `id` from another rank.
    pub async fn recv_payload(&self, from: Rank, id: u64, into: &mut [u8]) -> Result<()> {
        let context = &self.context;
        let streams = self.readable(from).await?.streams(context.id);
        let waiting = async { Ok(streams.payloads.reader(id).await) };
        let mut reader = context.on_link(from, context.while_there(from, waiting)).await?;
        context.on_link(from, reader.land(into, 1, <[u8]>::copy_from_slice)).await?;
        context.on_link(from, reader.end()).await
    }
}

impl Lanes for Quic {
    fn send<'a>(
        &'a self,
        lane: Lane,
        to: Rank,
        header: &'a Header,
        bytes: &'a [u8],
    ) -> Io<'a, Result<()>> {
        Box::pin(async move {
            let streams = self.link(to).await?.streams(self.context.id);
            let sent = self.context.while_there(to, streams.send(lane, header, bytes));
            self.context.on_link(to, sent).await
        })
    }

    fn recv<'a>(
        &'a self,
        lane: Lane,
        from: Rank,
        header: &'a Header,
        into: &'a mut [u8],
        land: &'a mut Land<'_>,
    ) -> Io<'a, Result<()>> {
        Box::pin(async move {
            let context = &self.context;
            let streams = self.readable(from).await?.streams(context.id);
            let waiting = async { Ok(streams.take_reader(lane).await) };
            let mut reader = context.on_link(from, context.while_there(from, waiting)).await?;
            let arrived = context.on_link(from, reader.header()).await?;
            header.check(context.me.rank, from, &arrived)?;
            let reduction = header.call.reduction();
            let element = reduction.map_or(1, |reduction| reduction.dtype.size());
            context.on_link(from, reader.land(into, element, land)).await?;
            streams.put_reader(lane, reader);
            Ok(())
        })
    }
}
