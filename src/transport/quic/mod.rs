//! QUIC between processes: the ranks of a communicator on one or many hosts.
//!
//! Each pair of ranks that has something to say to each other has one connection, authenticated by
//! the keys of the roster. Neighbours are connected when the communicator is made and carry the
//! control spine (heartbeats, faults); others are dialled by whoever needs them first. A communicator
//! that is split off another shares its connections: each is a *context* of them. Invariants:
//! - when two ranks dial each other, the lower one's connection stays; that is decided by the
//!   accepting side before its first word, and no stream is opened before that word;
//! - contexts know nothing of each other: a fault of one is none of another, the loss of a peer is
//!   one of all that it is a member of.

pub mod beacon;
mod bodies;
mod context;
pub mod control;
mod delivery;
pub mod endpoint;
mod handshakes;
mod link;
mod links;
mod notes;
mod peer;
pub mod preamble;
pub mod process;
mod reader;
mod silence;
mod socket;
mod spine;
mod suspicion;
mod tls;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::rank::{Place, Rank};

use super::key::{Identity, PublicKey, Secret};
use super::lanes::{Land, Lanes};
use super::{Header, Io, Lane, Note};
use control::Frame;
use endpoint::Endpoint;
use link::Link;
use links::{EXITING, Links};
use process::Process;

pub use context::ContextId;
pub use delivery::{PublishedFaults, is_delivering_faults};

pub(super) use context::Context;

/// One rank as all others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub key: PublicKey,
    /// Where it can be reached, best first.
    pub addresses: Vec<SocketAddr>,
    /// For those on its host.
    pub process: Option<Process>,
    /// Ranks that name the same may share memory; one without does not.
    pub host: Option<[u8; 16]>,
    /// Whether it has CUDA devices: then all ranks cut large calls alike.
    pub cuda: bool,
}

/// What a mesh is made of, once all ranks are known.
pub struct Plan {
    pub endpoint: Arc<Endpoint>,
    pub me: Identity,
    pub rank: Rank,
    pub roster: Vec<Member>,
    /// Public number of the communicator: its ranks are services named after it.
    pub nonce: u64,
    /// Known to the ranks alone.
    pub secret: Secret,
    pub peer_timeout: Duration,
    /// How long to try to reach a peer.
    pub dial_timeout: Duration,
}

/// One rank's links to the other processes of a communicator.
pub struct Quic {
    pub(super) context: Arc<Context>,
    pub(super) runtime: Handle,
}

/// The name of a rank's service.
fn service_name(nonce: u64, rank: Rank) -> String {
    format!("r{}.{nonce:016x}.nexar", rank.0)
}

impl Quic {
    /// Registers this rank so that peers can connect. Must be called inside the runtime.
    pub fn open(plan: Plan) -> Arc<Self> {
        let (id, members) = (ContextId(plan.nonce), (0..plan.roster.len()).map(Rank).collect());
        Self::new(Context::new(id, Links::new(plan), members), Handle::current())
    }

    fn new(context: Arc<Context>, runtime: Handle) -> Arc<Self> {
        live().push(Arc::downgrade(&context));
        Arc::new(Self { context, runtime })
    }

    /// The links of a communicator that is split off this one: call number `seq` has told `members`.
    pub fn split(&self, seq: u64, color: u32, members: &[Rank]) -> Arc<Self> {
        let members = members.iter().map(|rank| self.context.in_roster(*rank)).collect();
        let id = split_id(self.context.id, seq, color);
        let _inside = self.runtime.enter();
        let context = Context::new(id, Arc::clone(&self.context.links), members);
        Self::new(context, self.runtime.clone())
    }

    /// This rank will not be a member of that communicator, because of a fault.
    pub fn renounce(&self, seq: u64, color: u32, fault: Error) {
        let id = split_id(self.context.id, seq, color);
        self.context.links.renounce(id, self.context.members(), fault);
    }

    /// Connects to this rank's neighbours: the one that comes first in the roster dials.
    pub async fn connect_neighbours(&self) -> Result<()> {
        let Context { links, place, .. } = &*self.context;
        for peer in neighbours(*place) {
            let peer = self.context.in_roster(peer);
            if peer > links.place.rank {
                links.begin_dial(peer, &self.runtime);
            }
        }
        for peer in neighbours(*place) {
            // One that is fast may have done all it came for and left; what it sent is there.
            self.context.met(peer).await?;
        }
        self.context.fault().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// The neighbours that cannot be reached yet.
    pub fn unreached(&self) -> Vec<Rank> {
        let is_unmet = |peer: &Rank| self.context.peer(*peer).readable().is_none();
        neighbours(self.context.place).into_iter().filter(is_unmet).collect()
    }

    /// The link to read from: also one that has ended.
    async fn readable(&self, peer: Rank) -> Result<Arc<Link>> {
        match self.context.peer(peer).readable() {
            Some(link) => Ok(link),
            None => self.link(peer).await,
        }
    }

    async fn link(&self, peer: Rank) -> Result<Arc<Link>> {
        if let Some(link) = self.context.peer(peer).link() {
            return Ok(link);
        }
        self.context.links.begin_dial(self.context.in_roster(peer), &self.runtime);
        Box::pin(self.context.linked(peer)).await
    }

    /// Connects to a peer, unless that has been done.
    pub fn connect(&self, peer: Rank) {
        if peer != self.context.place.rank {
            self.context.links.begin_dial(self.context.in_roster(peer), &self.runtime);
        }
    }

    /// What the links were made of.
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

    /// Waits until one of these ranks says that it cannot share memory, and returns that one.
    pub async fn memory_refused(&self, ranks: &[Rank]) -> Rank {
        let context = &self.context;
        let refusal = |rank: &Rank| {
            let (rank, peer) = (*rank, context.peer(*rank));
            async move {
                match peer.linked().await {
                    Ok(link) => link.streams(context.id).memory_refused().await,
                    // Its end is another's to tell.
                    Err(_) => std::future::pending().await,
                }
                rank
            }
        };
        let mut refusals: FuturesUnordered<_> = ranks.iter().map(refusal).collect();
        refusals.next().await.unwrap_or(context.place.rank)
    }

    /// Sends a control message of `Messages` to another rank.
    pub async fn send_control(&self, to: Rank, note: Note) -> Result<()> {
        let (context, link) = (&self.context, self.link(to).await?);
        let streams = link.streams(context.id);
        let written = streams.notes.write(&link.connection, context.id, &note);
        context.on_link(to, context.while_there(to, written)).await
    }

    /// Sends the payload of message `id` to another rank.
    pub async fn send_payload(&self, to: Rank, id: u64, bytes: &[u8]) -> Result<()> {
        let (context, link) = (&self.context, self.link(to).await?);
        let streams = link.streams(context.id);
        let written = streams.bodies.write(&link.connection, context.id, id, bytes);
        context.on_link(to, context.while_there(to, written)).await
    }

    /// Receives the payload of message `id` from another rank.
    pub async fn recv_payload(&self, from: Rank, id: u64, into: &mut [u8]) -> Result<()> {
        let context = &self.context;
        let streams = self.readable(from).await?.streams(context.id);
        let waiting = async { Ok(streams.bodies.reader(id).await) };
        let mut reader = context.on_link(from, context.while_there(from, waiting)).await?;
        context.on_link(from, reader.land(into, <[u8]>::copy_from_slice)).await?;
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
            header.check(context.place.rank, from, &arrived)?;
            context.on_link(from, reader.land(into, land)).await?;
            streams.put_reader(lane, reader);
            Ok(())
        })
    }
}

/// The ranks at distance 1, 2, 4, ... round the ring, both ways: enough that any single loss leaves
/// the others connected, few enough for a thousand ranks.
fn neighbours(place: Place) -> Vec<Rank> {
    let mut ranks: Vec<_> = (0..usize::BITS)
        .map(|bit| 1_usize << bit)
        .take_while(|distance| *distance < place.size)
        .flat_map(|distance| [place.after(distance), place.before(distance)])
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// A number that follows from what all members know, so that they need not agree on it, and that no
/// other split over the same links has.
fn split_id(parent: ContextId, seq: u64, color: u32) -> ContextId {
    let known = [parent.0, seq, color as u64].map(u64::to_le_bytes);
    let hash = ring::digest::digest(&ring::digest::SHA256, known.as_flattened());
    let (first, _) = hash.as_ref().split_first_chunk().expect("8 of 32 bytes");
    ContextId(u64::from_le_bytes(*first))
}

/// Contexts of this process that have not left.
fn live() -> MutexGuard<'static, Vec<Weak<Context>>> {
    static LIVE: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());
    let mut live = lock(&LIVE);
    live.retain(|context| context.strong_count() > 0);
    live
}

/// Lets every mesh of the process leave, and waits until all have: for a process that ends.
pub async fn leave_all() {
    EXITING.store(true, Ordering::Relaxed);
    let contexts: Vec<_> = live().iter().filter_map(Weak::upgrade).collect();
    let leaving = contexts.into_iter().map(|context| {
        tokio::spawn(async move {
            Arc::clone(&context).leave().await;
            context.left().await;
        })
    });
    for one in leaving.collect::<Vec<_>>() {
        let _ = one.await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual_and_keep_everybody_connected_without_any_one_rank() {
        for size in 1..70 {
            let of = |rank| neighbours(Place::new(Rank(rank), size));
            for rank in 0..size {
                assert!(of(rank).iter().all(|peer| of(peer.0).contains(&Rank(rank))));
                assert!(!of(rank).contains(&Rank(rank)));
            }
            for lost in 0..size {
                let start = usize::from(lost == 0) % size;
                let mut reached = vec![false; size];
                let mut open = vec![start];
                while let Some(rank) = open.pop() {
                    if rank != lost && !std::mem::replace(&mut reached[rank], true) {
                        open.extend(of(rank).iter().map(|peer| peer.0));
                    }
                }
                let others = (0..size).filter(|rank| *rank != lost && *rank != start);
                assert!(others.into_iter().all(|rank| reached[rank]), "{size} without {lost}");
            }
        }
    }
}
