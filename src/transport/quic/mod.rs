//! QUIC between processes: the ranks of a communicator on one or many hosts.
//!
//! Each pair of ranks that has something to say to each other has one connection, authenticated by
//! the keys of the roster. Neighbours are connected when the communicator is made and carry the
//! control spine (heartbeats, faults); others are dialled by whoever needs them first. Invariants:
//! - a peer's rank follows from the key it proved to own, never from what it says;
//! - when two ranks dial each other, the lower one's connection stays; that is decided by the
//!   accepting side before its first word, and no stream is opened before that word;
//! - the first fault this rank learns of is passed on to every peer it is connected to, once.

mod control;
pub mod endpoint;
pub mod key;
mod link;
mod peer;
mod tls;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Place, Rank};

use super::board::Board;
use super::{Header, Inbox, LANES, Lane, Mesh, Missing, Note};
use control::Frame;
use endpoint::{Endpoint, Service};
use key::{Identity, PublicKey};
use link::{Link, LinkError};
use peer::Peer;

/// How long a rank that leaves waits for a peer that takes nothing of its last bytes: while the
/// process lives on, when it ends, and after a failure.
const PATIENCE: Duration = Duration::from_secs(60);
const EXIT_PATIENCE: Duration = Duration::from_secs(2);
const FAILED_PATIENCE: Duration = Duration::from_millis(200);

/// How often it looks.
const LEAVE_TICK: Duration = Duration::from_millis(200);

/// A link over which nothing but heartbeats and their acknowledgements goes sends less in a tick.
const HEARTBEAT_BYTES: u64 = 1000;

/// The process ends.
static EXITING: AtomicBool = AtomicBool::new(false);

/// One rank as all others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub key: PublicKey,
    /// Where it can be reached, best first.
    pub addresses: Vec<SocketAddr>,
}

/// What a mesh is made of, once all ranks are known.
pub struct Plan {
    pub endpoint: Arc<Endpoint>,
    pub me: Identity,
    pub rank: Rank,
    pub roster: Vec<Member>,
    /// Public number of the communicator: its ranks are services named after it.
    pub nonce: u64,
    pub peer_timeout: Duration,
    /// How long to try to reach a peer.
    pub dial_timeout: Duration,
}

/// One rank's end of a mesh of processes.
pub struct QuicMesh {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
}

pub(crate) struct Shared {
    plan: Plan,
    place: Place,
    ranks: HashMap<PublicKey, Rank>,
    peers: Vec<Peer>,
    inbox: Inbox,
    board: Mutex<Board>,
    /// The latest calls of this rank, newest first, for its heartbeats.
    latest: Mutex<Vec<(u64, Call)>>,
    fault: OnceLock<Error>,
    failed: Notify,
    left: AtomicBool,
    /// Set when the leave is complete.
    is_gone: tokio::sync::watch::Sender<bool>,
    /// The task that takes the connections of peers.
    accepting: OnceLock<tokio::task::AbortHandle>,
}

/// The name of a rank's service.
fn service_name(nonce: u64, rank: Rank) -> String {
    format!("r{}.{nonce:016x}.nexar", rank.0)
}

impl QuicMesh {
    /// Registers this rank so that peers can connect. Must be called inside the runtime.
    pub fn open(plan: Plan) -> Self {
        let place = Place::new(plan.rank, plan.roster.len());
        let ranks: HashMap<_, _> =
            plan.roster.iter().enumerate().map(|(rank, member)| (member.key, Rank(rank))).collect();
        let expected: HashSet<_> = ranks.keys().copied().collect();
        let service = plan.endpoint.serve(service_name(plan.nonce, plan.rank), &plan.me, expected);
        let shared = Arc::new(Shared {
            place,
            ranks,
            peers: (0..place.size).map(|_| Peer::default()).collect(),
            inbox: Inbox::new(place),
            board: Mutex::new(Board::new(place.size)),
            latest: Mutex::default(),
            fault: OnceLock::new(),
            failed: Notify::new(),
            left: AtomicBool::new(false),
            is_gone: tokio::sync::watch::Sender::new(false),
            accepting: OnceLock::new(),
            plan,
        });
        live().push(Arc::downgrade(&shared));
        let accepting = tokio::spawn(accept(Arc::clone(&shared), service));
        shared.accepting.get_or_init(|| accepting.abort_handle());
        Self { shared, runtime: tokio::runtime::Handle::current() }
    }

    /// Connects to this rank's neighbours: the lower rank of each pair dials.
    pub async fn connect_neighbours(&self) -> Result<()> {
        for peer in neighbours(self.shared.place) {
            if peer > self.shared.place.rank {
                self.shared.begin_dial(peer, &self.runtime);
            }
        }
        for peer in neighbours(self.shared.place) {
            // One that is fast may have done all it came for and left; what it sent is there.
            self.shared.met(peer).await?;
        }
        self.shared.fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    async fn link(&self, peer: Rank) -> Result<Arc<Link>> {
        if let Some(link) = self.shared.peers[peer.0].link() {
            return Ok(link);
        }
        self.shared.begin_dial(peer, &self.runtime);
        self.shared.linked(peer).await
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
        self.shared.place
    }

    async fn send(&self, lane: Lane, to: Rank, header: &Header, bytes: &[u8]) -> Result<()> {
        let link = self.link(to).await?;
        self.shared.on_link(to, link.send(lane, header, bytes)).await
    }

    async fn recv(
        &self,
        lane: Lane,
        from: Rank,
        header: &Header,
        into: &mut [u8],
        land: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<()> {
        let link = match self.shared.peers[from.0].readable() {
            Some(link) => link,
            None => self.link(from).await?,
        };
        let waiting = async { Ok(link.take_reader(lane).await) };
        let mut reader = self.shared.on_link(from, self.shared.while_linked(from, waiting)).await?;
        let arrived = self.shared.on_link(from, reader.header()).await?;
        header.check(self.shared.place.rank, from, &arrived)?;
        self.shared.on_link(from, reader.body(into, land)).await?;
        link.put_reader(lane, reader);
        Ok(())
    }

    fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    async fn note(&self, _: Rank, _: Note) -> Result<()> {
        Err(Error::Usage("messages between processes are not there yet".to_owned()))
    }

    async fn send_body(&self, _: Rank, _: u64, _: &[u8]) -> Result<()> {
        Err(Error::Usage("messages between processes are not there yet".to_owned()))
    }

    async fn recv_body(&self, _: Rank, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::Usage("messages between processes are not there yet".to_owned()))
    }

    fn announce(&self, seq: u64, call: Call) -> Result<()> {
        {
            let mut latest = lock(&self.shared.latest);
            latest.insert(0, (seq, call));
            latest.truncate(LANES);
        }
        lock(&self.shared.board).note(self.shared.place.rank, seq, call)
    }

    fn missing(&self, seq: u64) -> Missing {
        let missing = lock(&self.shared.board).missing(seq);
        // Heartbeats come over links.
        let has_link = |rank: &Rank| self.shared.peers[rank.0].link().is_some();
        let (absent, unknown) = missing.into_iter().partition(has_link);
        Missing { absent, unknown }
    }

    fn fail(&self, fault: Error) -> Error {
        self.shared.learn(fault)
    }

    fn fault(&self) -> Option<Error> {
        self.shared.fault.get().cloned()
    }

    fn leave(&self) {
        self.runtime.spawn(leave(Arc::clone(&self.shared)));
    }
}

impl Drop for QuicMesh {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Shared {
    /// The first fault is the communicator's: it ends every wait here and is passed on.
    fn learn(&self, fault: Error) -> Error {
        let mut first = false;
        let fault = self.fault.get_or_init(|| {
            first = true;
            fault
        });
        if first {
            self.failed.notify_waiters();
            self.inbox.fail(fault.clone());
            for peer in &self.peers {
                peer.tell(|| Frame::fault(fault));
            }
        }
        fault.clone()
    }

    /// Runs something that waits for a peer until it ends or the communicator fails.
    async fn on_link<T>(
        &self,
        peer: Rank,
        io: impl Future<Output = std::result::Result<T, LinkError>>,
    ) -> Result<T> {
        match self.or_fault(io).await? {
            Ok(value) => Ok(value),
            Err(LinkError::Protocol(what)) => Err(Error::Protocol { peer, what }),
            // Why it was lost is known when the connection's own task has seen its end.
            Err(LinkError::Lost) => Err(self
                .or_fault(self.peers[peer.0].ended())
                .await
                .map_or_else(|fault| fault, |how| Error::PeerLost { peer, how })),
        }
    }

    async fn or_fault<T>(&self, io: impl Future<Output = T>) -> Result<T> {
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

    /// A wait for something that a lost connection will never bring.
    async fn while_linked<T>(
        &self,
        peer: Rank,
        io: impl Future<Output = std::result::Result<T, LinkError>>,
    ) -> std::result::Result<T, LinkError> {
        tokio::select! {
            biased;
            value = io => value,
            _ = self.peers[peer.0].ended() => Err(LinkError::Lost),
        }
    }

    async fn linked(&self, peer: Rank) -> Result<Arc<Link>> {
        match self.or_fault(self.peers[peer.0].linked()).await? {
            Ok(link) => Ok(link),
            Err(how) => Err(Error::PeerLost { peer, how }),
        }
    }

    async fn met(&self, peer: Rank) -> Result<()> {
        match self.or_fault(self.peers[peer.0].met()).await? {
            Ok(()) => Ok(()),
            Err(how) => Err(Error::PeerLost { peer, how }),
        }
    }

    /// Waits for something that comes with the last bytes of some links, as long as bytes flow over
    /// them, and a while longer. False if it gave up.
    async fn while_it_flows<T>(&self, links: &[Arc<Link>], io: impl Future<Output = T>) -> bool {
        let sent =
            || -> u64 { links.iter().map(|link| link.connection.stats().udp_tx.bytes).sum() };
        tokio::pin!(io);
        let (mut before, mut still) = (sent(), Duration::ZERO);
        while timeout(LEAVE_TICK, &mut io).await.is_err() {
            let now = sent();
            // Heartbeats do not count.
            let flows = now - before > HEARTBEAT_BYTES * links.len() as u64;
            still = if flows { Duration::ZERO } else { still + LEAVE_TICK };
            before = now;
            if still >= self.patience() {
                return false;
            }
        }
        true
    }

    /// How long a rank that leaves waits for a peer that takes nothing.
    fn patience(&self) -> Duration {
        match self.fault.get() {
            Some(_) => FAILED_PATIENCE,
            None if EXITING.load(Ordering::Relaxed) => EXIT_PATIENCE,
            None => PATIENCE,
        }
    }

    /// Waits until a leave that has begun is complete.
    async fn gone(&self) {
        let _ = self.is_gone.subscribe().wait_for(|gone| *gone).await;
    }

    fn member(&self, peer: Rank) -> &Member {
        &self.plan.roster[peer.0]
    }
}

/// Takes the connections of peers that dialled this rank.
async fn accept(shared: Arc<Shared>, mut service: Service) {
    while let Some(arrival) = service.arrivals.recv().await {
        let Some(rank) = shared.ranks.get(&arrival.key).copied() else { continue };
        shared.accepted(rank, arrival.connection);
    }
}

/// Leaves in good order: what was sent is acknowledged, then the peers are told.
async fn leave(shared: Arc<Shared>) {
    if shared.left.swap(true, Ordering::AcqRel) {
        return;
    }
    shared.accepting.get().inspect(|task| task.abort());
    let rank = shared.place.rank;
    let links: Vec<_> = shared.peers.iter().filter_map(Peer::link).collect();
    let mut streams: Vec<_> = links.iter().flat_map(|link| link.take_senders()).collect();
    streams.iter_mut().for_each(|stream| drop(stream.finish()));
    let acknowledged = async {
        for stream in &mut streams {
            let _ = stream.stopped().await;
        }
    };
    if !shared.while_it_flows(&links, acknowledged).await {
        info!(rank = rank.0 as u64, "{rank} leaves; a peer has not acknowledged its last data");
    }
    for link in &links {
        let _ = link.control.send(Frame::Bye);
    }
    // The writer of each control stream closes the connection behind its last frame.
    let closed = async {
        for link in &links {
            link.connection.closed().await;
        }
    };
    if !shared.while_it_flows(&links, closed).await {
        debug!("{rank} leaves without its peers' acknowledgement");
    }
    for link in &links {
        link.connection.close(peer::LEFT, b"");
    }
    for peer in &shared.peers {
        peer.end("is not connected any more".to_owned());
    }
    shared.is_gone.send_replace(true);
    let shared = Arc::downgrade(&shared);
    live().retain(|one| !one.ptr_eq(&shared) && one.strong_count() > 0);
}

/// Meshes of this process that have not left.
fn live() -> MutexGuard<'static, Vec<std::sync::Weak<Shared>>> {
    static LIVE: Mutex<Vec<std::sync::Weak<Shared>>> = Mutex::new(Vec::new());
    lock(&LIVE)
}

/// Lets every mesh of the process leave, and waits until all have: for a process that ends.
pub async fn leave_all() {
    EXITING.store(true, Ordering::Relaxed);
    let meshes: Vec<_> = live().iter().filter_map(std::sync::Weak::upgrade).collect();
    let leaving = meshes.into_iter().map(|mesh| {
        tokio::spawn(async move {
            leave(Arc::clone(&mesh)).await;
            mesh.gone().await;
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
