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
mod diary;
pub mod endpoint;
mod handshakes;
pub mod key;
mod link;
mod links;
mod notes;
mod peer;
pub mod preamble;
pub mod process;
mod reader;
mod sharing;
mod silence;
mod socket;
mod spine;
mod suspicion;
mod tls;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Place, Rank};

use super::mem::bodies::Key;
use super::shm::{Host, MOST_SHOWN};
use super::wire::call_words;
use super::{HAS_LEFT, Header, Hosts, Inbox, Label, Lane, Mesh, Missing, Note, Readers, Split};
use context::Context;
use endpoint::Endpoint;
use key::{Identity, PublicKey, Secret};
use link::Link;
use links::{EXITING, Links};
use process::Process;

pub use context::ContextId;
pub use delivery::is_delivering_faults;
pub use sharing::{Opened, host_of_this};

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

/// One rank's end of a mesh of processes.
pub struct QuicMesh {
    context: Arc<Context>,
    runtime: tokio::runtime::Handle,
    hosts: Hosts,
    /// What this rank shares with the others of its host, if there are any.
    host: Option<Arc<Host>>,
}

/// What a peer is that the system does not read the memory of any more.
const UNREADABLE: &str = "no longer lets this process read its memory";

/// The name of a rank's service.
fn service_name(nonce: u64, rank: Rank) -> String {
    format!("r{}.{nonce:016x}.nexar", rank.0)
}

impl QuicMesh {
    /// Registers this rank so that peers can connect. Must be called inside the runtime.
    pub fn open(plan: Plan) -> Self {
        let (id, members) = (ContextId(plan.nonce), (0..plan.roster.len()).map(Rank).collect());
        Self::new(Context::new(id, Links::new(plan), members), tokio::runtime::Handle::current())
    }

    fn new(context: Arc<Context>, runtime: tokio::runtime::Handle) -> Self {
        live().push(Arc::downgrade(&context));
        let hosts = Hosts::apart(context.place.size, context.place.rank);
        Self { context, runtime, hosts, host: None }
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

    /// Runs something until it ends. `None` if it takes longer than `limit`, an error if this communicator
    /// fails before.
    pub async fn within<T>(
        &self,
        limit: Duration,
        io: impl Future<Output = T>,
    ) -> Result<Option<T>> {
        let bounded = {
            let _inside = self.runtime.enter();
            tokio::time::timeout(limit, io)
        };
        self.context.or_fault(bounded).await.map(|ended| ended.ok())
    }

    /// Why a communicator is not complete in time.
    pub fn why_incomplete(&self) -> String {
        let neighbours = neighbours(self.context.place).into_iter();
        let unmet = neighbours.filter(|peer| self.context.peer(*peer).readable().is_none());
        let names: Vec<_> = unmet.map(|peer| peer.to_string()).collect();
        match names.is_empty() {
            true => "a rank has not told whether it shares memory".to_owned(),
            false => format!("{} cannot be reached", names.join(", ")),
        }
    }

    /// The link to read from: also one that has ended.
    async fn readable(&self, peer: Rank) -> Result<Arc<Link>> {
        match self.context.peer(peer).readable() {
            Some(link) => Ok(link),
            None => self.link(peer).await,
        }
    }

    async fn send_on_stream(
        &self,
        lane: Lane,
        to: Rank,
        header: &Header,
        bytes: &[u8],
    ) -> Result<()> {
        let streams = self.link(to).await?.streams(self.context.id);
        let sent = self.context.while_there(to, streams.send(lane, header, bytes));
        self.context.on_link(to, sent).await
    }

    async fn recv_on_stream(
        &self,
        lane: Lane,
        from: Rank,
        header: &Header,
        into: &mut [u8],
        land: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<()> {
        let context = &self.context;
        let streams = self.readable(from).await?.streams(context.id);
        let waiting = async { Ok(streams.take_reader(lane).await) };
        let mut reader = context.on_link(from, context.while_there(from, waiting)).await?;
        let arrived = context.on_link(from, reader.header()).await?;
        header.check(context.place.rank, from, &arrived)?;
        context.on_link(from, reader.land(into, land)).await?;
        streams.put_reader(lane, reader);
        Ok(())
    }

    async fn link(&self, peer: Rank) -> Result<Arc<Link>> {
        if let Some(link) = self.context.peer(peer).link() {
            return Ok(link);
        }
        self.context.links.begin_dial(self.context.in_roster(peer), &self.runtime);
        Box::pin(self.context.linked(peer)).await
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

impl Mesh for QuicMesh {
    fn place(&self) -> Place {
        self.context.place
    }

    async fn send(&self, lane: Lane, to: Rank, header: &Header, bytes: &[u8]) -> Result<()> {
        // What waits for the network is in a box, here and below. Its future is large, and otherwise
        // so would be those of calls that need no network.
        Box::pin(self.send_on_stream(lane, to, header, bytes)).await
    }

    async fn recv(
        &self,
        lane: Lane,
        from: Rank,
        header: &Header,
        into: &mut [u8],
        land: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<()> {
        Box::pin(self.recv_on_stream(lane, from, header, into, land)).await
    }

    type Sight<'a> = &'a [u8];

    fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    fn begin_rounds(&self, lane: Lane, count: u64) -> u64 {
        self.shared().begin_rounds(lane, count)
    }

    async fn lay(
        &self,
        lane: Lane,
        round: u64,
        label: &Label,
        fill: impl FnOnce(&mut [u8], Readers),
    ) -> Result<()> {
        self.room(lane, round, self.shared().most_ahead(label.bytes())).await?;
        let readers = self.shared().readers();
        self.shared().lay(lane, round, label, |slot| fill(slot, readers));
        Ok(())
    }

    /// Nothing is taken back: readers have mapped the memory themselves.
    type Shown<'a> = ();

    async fn show<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        label: &Label,
        bytes: &'a [u8],
    ) -> Result<Option<()>> {
        let Some(place) = self.shared().place_of(bytes) else { return Ok(None) };
        self.room(lane, round, MOST_SHOWN).await?;
        self.shared().show(lane, round, label, place);
        Ok(Some(()))
    }

    async fn look<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        at: Rank,
        label: &Label,
    ) -> Result<&'a [u8]> {
        let (host, index) = (self.shared(), self.index_of(at));
        self.seen(index, || host.has(lane, round, index)).await?;
        let found = host.find(lane, round, index, label);
        found.map_err(|theirs| self.unexpected(at, &label.header(), theirs))
    }

    async fn passed(&self, lane: Lane, round: u64) -> Result<()> {
        let host = self.shared();
        for index in (0..self.hosts.mine().len()).filter(|index| *index != host.me()) {
            let waited = self.seen(index, || host.has_passed(lane, index, round)).await;
            // Before what was shown can become something else.
            waited.inspect_err(|_| host.give_up())?;
        }
        Ok(())
    }

    async fn expose(&self, lane: Lane, round: u64, label: &Label, bytes: &[u8]) -> Result<bool> {
        if !self.shared().can_expose(bytes) {
            return Ok(false);
        }
        self.room(lane, round, MOST_SHOWN).await?;
        self.shared().expose(lane, round, label, bytes);
        Ok(true)
    }

    async fn fetch(
        &self,
        lane: Lane,
        round: u64,
        from: Rank,
        label: &Label,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let (host, index) = (self.shared(), self.index_of(from));
        self.seen(index, || host.has(lane, round, index)).await?;
        let exposed = host.exposed(lane, round, index, label);
        let address = exposed.map_err(|theirs| self.unexpected(from, &label.header(), theirs))?;
        match host.read(lane, index, address.saturating_add(offset as u64), into) {
            true => Ok(()),
            // It may have ended just now.
            false => Err(self.why_gone(from, UNREADABLE).await),
        }
    }

    async fn confirm(&self, lane: Lane) -> Result<()> {
        match self.host.as_ref().and_then(|host| host.who_gave_up(lane)) {
            None => Ok(()),
            Some(index) => Err(Box::pin(self.why_gone(self.hosts.mine()[index], HAS_LEFT)).await),
        }
    }

    fn pass(&self, lane: Lane, round: u64) {
        self.shared().pass(lane, round);
    }

    fn inbox(&self) -> &Inbox {
        &self.context.inbox
    }

    fn connect(&self, peer: Rank) {
        if peer != self.context.place.rank {
            self.context.links.begin_dial(self.context.in_roster(peer), &self.runtime);
        }
    }

    async fn send_note(&self, to: Rank, note: Note) -> Result<()> {
        let context = &self.context;
        if to == context.place.rank {
            let broken = |what| Error::Protocol { peer: to, what };
            return context.inbox.deliver(to, note).map_err(broken);
        }
        let link = self.link(to).await?;
        let streams = link.streams(context.id);
        let written = streams.notes.write(&link.connection, context.id, &note);
        Box::pin(context.on_link(to, context.while_there(to, written))).await
    }

    async fn send_body(&self, to: Rank, id: u64, bytes: &[u8]) -> Result<()> {
        let context = &self.context;
        if to == context.place.rank {
            let key = Key { from: to, to, id };
            return context.own_bodies.send(key, &context.inbox, bytes, || 0).await;
        }
        let link = self.link(to).await?;
        let streams = link.streams(context.id);
        let written = streams.bodies.write(&link.connection, context.id, id, bytes);
        Box::pin(context.on_link(to, context.while_there(to, written))).await
    }

    async fn recv_body(&self, from: Rank, id: u64, into: &mut [u8]) -> Result<()> {
        let context = &self.context;
        if from == context.place.rank {
            let key = Key { from, to: from, id };
            return context.own_bodies.recv(key, &context.inbox, into).await;
        }
        let streams = self.readable(from).await?.streams(context.id);
        let waiting = async { Ok(streams.bodies.reader(id).await) };
        let taking = context.on_link(from, context.while_there(from, waiting));
        let mut reader = Box::pin(taking).await?;
        Box::pin(context.on_link(from, reader.land(into, <[u8]>::copy_from_slice))).await?;
        Box::pin(context.on_link(from, reader.end())).await
    }

    async fn split(&self, split: Split) -> Result<Self> {
        let members = split.members.iter().map(|rank| self.context.in_roster(*rank)).collect();
        let id = split_id(self.context.id, split.seq, split.color);
        let _inside = self.runtime.enter();
        let context = Context::new(id, Arc::clone(&self.context.links), members);
        Ok(Self::new(context, self.runtime.clone()))
    }

    fn renounce(&self, seq: u64, color: u32, fault: Error) {
        let id = split_id(self.context.id, seq, color);
        self.context.links.renounce(id, self.context.members(), fault);
    }

    fn announce(&self, seq: u64, call: Call) {
        self.context.diary.note(seq, call_words(&call));
        if let Err(mismatch) = self.context.post() {
            let _inside = self.runtime.enter();
            self.context.propose(mismatch);
        }
    }

    async fn agree(&self, disagreement: Error) -> Error {
        {
            let _inside = self.runtime.enter();
            self.context.propose(disagreement);
        }
        Box::pin(self.context.failed()).await
    }

    async fn settled_fault(&self) -> Option<Error> {
        match self.context.is_disputed() {
            true => Some(Box::pin(self.context.failed()).await),
            false => self.fault(),
        }
    }

    fn missing(&self, seq: u64) -> Missing {
        let _inside = self.runtime.enter();
        self.context.missing(seq)
    }

    fn fail(&self, fault: Error) -> Error {
        if let Some(host) = &self.host {
            host.give_up();
        }
        self.context.learn(fault)
    }

    fn fault(&self) -> Option<Error> {
        self.context.fault().cloned()
    }

    fn leave(&self) {
        if let Some(host) = &self.host {
            host.leave();
        }
        self.runtime.spawn(Arc::clone(&self.context).leave());
    }
}

impl Drop for QuicMesh {
    fn drop(&mut self) {
        self.leave();
    }
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
