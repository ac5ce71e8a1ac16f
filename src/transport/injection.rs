//! Fault injection for tests: delays, a kill at a chosen operation, a cut link and counted traffic.
//!
//! Wraps the contracts of a world of threads (`mem`), which knows nothing of it. Invariant: the
//! same faults occur in every run, because no clock is read.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::yield_now;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::Rank;

use super::host::{Attempt, HostMemory, Published, Readers, View};
use super::lanes::{Land, Lanes};
use super::mem::{MemEnd, MemWorld};
use super::membership::{Missing, Split};
use super::mesh::{Forming, Membership, Mesh};
use super::messages::Messages;
use super::{ControlMessage, EncodedHeader, Header, Io, Lane, MessageQueues, SendIo};

/// The faults to inject.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Operations are delayed by a varying number of polls, drawn from this seed.
    pub delay_seed: Option<u64>,
    /// This rank dies when it begins its operation with this index.
    pub kill: Option<(Rank, u64)>,
}

impl Faults {
    pub fn delays(seed: u64) -> Self {
        Self { delay_seed: Some(seed), ..Self::default() }
    }

    pub fn kill(rank: Rank, at: u64) -> Self {
        Self { kill: Some((rank, at)), ..Self::default() }
    }
}

/// A world of threads into which faults are injected.
pub struct FaultyWorld {
    world: Arc<MemWorld>,
    faults: Faults,
    drawn: AtomicU64,
    begun: AtomicU64,
    ranks: Vec<RankState>,
}

#[derive(Default)]
struct RankState {
    messages: AtomicU64,
    bytes: AtomicU64,
    /// The rank was killed: it sends nothing any more.
    dead: AtomicBool,
    /// Operations on the memory of its host that were tried before: a retry is not counted.
    tried: Mutex<HashSet<Tried>>,
}

/// An operation on the memory of a host: lane, epoch and the rank whose memory it is.
type Tried = (usize, u64, Rank);

/// What a rank has sent so far in lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
}

impl FaultyWorld {
    pub fn new(size: usize, faults: Faults) -> Result<Arc<Self>> {
        Self::on_hosts(vec![0; size], faults)
    }

    pub fn on_hosts(hosts: Vec<usize>, faults: Faults) -> Result<Arc<Self>> {
        let ranks = hosts.iter().map(|_| RankState::default()).collect();
        let world = MemWorld::on_hosts(hosts)?;
        let (drawn, begun) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(Self { world, faults, drawn, begun, ranks }))
    }

    /// The meshes of all ranks, in rank order.
    pub fn meshes(self: &Arc<Self>) -> Vec<Mesh> {
        let end = |inner| Arc::new(FaultyEnd { world: Arc::clone(self), inner });
        self.world.ends().into_iter().map(end).map(FaultyEnd::into_mesh).collect()
    }

    pub fn traffic(&self, rank: Rank) -> Traffic {
        let state = &self.ranks[rank.0];
        Traffic {
            messages: state.messages.load(Ordering::Relaxed),
            bytes: state.bytes.load(Ordering::Relaxed),
        }
    }

    /// Breaks the link between two ranks in both directions.
    pub fn cut(&self, a: Rank, b: Rank) {
        let how = "cannot be reached";
        self.world.message_queues(a).gone(b, how);
        self.world.message_queues(b).gone(a, how);
        self.world.close(a, b, how);
        self.world.close(b, a, how);
    }

    /// Ends a rank without notice, as SIGKILL does.
    pub fn kill(&self, rank: Rank) {
        self.ranks[rank.0].dead.store(true, Ordering::Relaxed);
        self.world.rank_gone(rank, "was killed");
        self.world.message_queues(rank).fail(killed(rank));
    }

    pub fn is_dead(&self, rank: Rank) -> bool {
        self.ranks[rank.0].dead.load(Ordering::Relaxed)
    }

    /// The other ranks learn of a death over their links, as those of processes do.
    pub fn report_death(&self, rank: Rank) {
        self.world.fail(killed(rank));
    }

    /// The number of polls by which to delay the next operation.
    fn next_delay(&self) -> u32 {
        let Some(seed) = self.faults.delay_seed else { return 0 };
        let n = self.drawn.fetch_add(1, Ordering::Relaxed);
        // Multiplying by a large odd constant spreads the counter over the upper bits.
        let mixed = (seed ^ n).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 62) as u32
    }
}

fn killed(rank: Rank) -> Error {
    Error::PeerLost { peer: rank, how: "was killed".to_owned() }
}

/// One rank's end of a `FaultyWorld`.
struct FaultyEnd {
    world: Arc<FaultyWorld>,
    inner: Arc<MemEnd>,
}

impl FaultyEnd {
    fn into_mesh(self: Arc<Self>) -> Mesh {
        let memory = self.inner.memory(Arc::clone(&self) as Arc<dyn HostMemory>);
        Mesh {
            me: self.inner.me(),
            lanes: Arc::clone(&self) as Arc<dyn Lanes>,
            messages: Arc::clone(&self) as Arc<dyn Messages>,
            membership: self,
            memory,
            has_cuda: None,
        }
    }

    fn rank(&self) -> Rank {
        self.inner.me().rank
    }

    fn is_dead(&self) -> bool {
        self.world.ranks[self.rank().0].dead.load(Ordering::Relaxed)
    }

    /// Begins an operation, and kills this rank if that is the fault to inject.
    fn begin(&self) -> Result<()> {
        let rank = self.rank();
        match self.world.faults.kill {
            Some((victim, at))
                if victim == rank && self.world.begun.fetch_add(1, Ordering::Relaxed) == at =>
            {
                self.world.kill(rank);
                Err(killed(rank))
            }
            _ => Ok(()),
        }
    }

    /// Begins an operation on the memory of the host, the first time it is tried. Returns the delay
    /// to wait for then.
    fn first_delay(&self, lane: Lane, epoch: u64, at: Rank) -> Result<Option<Io<'_, Result<()>>>> {
        let tried = &self.world.ranks[self.rank().0].tried;
        let mut tried = tried.lock().unwrap_or_else(PoisonError::into_inner);
        if !tried.insert((lane.0, epoch, at)) {
            return Ok(None);
        }
        drop(tried);
        self.begin()?;
        Ok(Some(Box::pin(async {
            self.delay().await;
            Ok(())
        })))
    }

    async fn delay(&self) {
        for _ in 0..self.world.next_delay() {
            yield_now().await;
        }
    }
}

impl Lanes for FaultyEnd {
    fn send<'a>(
        &'a self,
        lane: Lane,
        to: Rank,
        header: &'a Header,
        bytes: &'a [u8],
    ) -> Io<'a, Result<()>> {
        Box::pin(async move {
            self.begin()?;
            let state = &self.world.ranks[self.rank().0];
            state.messages.fetch_add(1, Ordering::Relaxed);
            state.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.delay().await;
            self.inner.send(lane, to, header, bytes).await
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
            self.begin()?;
            self.delay().await;
            self.inner.recv(lane, from, header, into, land).await
        })
    }
}

impl HostMemory for FaultyEnd {
    fn begin_epochs(&self, lane: Lane, count: u64) -> u64 {
        self.inner.begin_epochs(lane, count)
    }

    fn publish(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: &mut dyn FnMut(&mut [u8], Readers),
    ) -> Result<Attempt<'_, ()>> {
        if let Some(wait) = self.first_delay(lane, epoch, self.rank())? {
            return Ok(Attempt::Wait(wait));
        }
        self.inner.publish(lane, epoch, encoded, fill)
    }

    fn publish_in_place<'a>(
        &'a self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &'a [u8],
    ) -> Result<Attempt<'a, Option<Published<'a>>>> {
        if let Some(wait) = self.first_delay(lane, epoch, self.rank())? {
            return Ok(Attempt::Wait(wait));
        }
        self.inner.publish_in_place(lane, epoch, encoded, bytes)
    }

    fn publish_address(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &[u8],
    ) -> Result<Attempt<'_, bool>> {
        self.inner.publish_address(lane, epoch, encoded, bytes)
    }

    fn view(
        &self,
        lane: Lane,
        epoch: u64,
        at: Rank,
        encoded: &EncodedHeader,
    ) -> Result<Attempt<'_, View<'_>>> {
        if let Some(wait) = self.first_delay(lane, epoch, at)? {
            return Ok(Attempt::Wait(wait));
        }
        self.inner.view(lane, epoch, at, encoded)
    }

    fn read_remote(
        &self,
        lane: Lane,
        epoch: u64,
        from: Rank,
        encoded: &EncodedHeader,
        offset: usize,
        into: &mut [u8],
    ) -> Result<Attempt<'_, ()>> {
        self.inner.read_remote(lane, epoch, from, encoded, offset, into)
    }

    fn release(&self, lane: Lane, epoch: u64) {
        self.inner.release(lane, epoch);
    }

    fn released(&self, lane: Lane, epoch: u64) -> Result<Attempt<'_, ()>> {
        self.inner.released(lane, epoch)
    }

    fn confirm(&self, lane: Lane) -> Attempt<'_, ()> {
        self.inner.confirm(lane)
    }
}

impl Messages for FaultyEnd {
    fn message_queues(&self) -> &Arc<MessageQueues> {
        self.inner.message_queues()
    }

    fn connect(&self, peer: Rank) {
        self.inner.connect(peer);
    }

    fn are_in_memory(&self, peer: Rank) -> bool {
        self.inner.are_in_memory(peer)
    }

    fn progress(&self) {
        self.inner.progress();
    }

    fn send_control(&self, to: Rank, message: ControlMessage) -> SendIo<'_, Result<()>> {
        Box::pin(async move {
            self.begin()?;
            self.delay().await;
            self.inner.send_control(to, message).await
        })
    }

    fn send_payload<'a>(&'a self, to: Rank, id: u64, bytes: &'a [u8]) -> SendIo<'a, Result<()>> {
        Box::pin(async move {
            self.begin()?;
            self.delay().await;
            self.inner.send_payload(to, id, bytes).await
        })
    }

    fn recv_payload<'a>(
        &'a self,
        from: Rank,
        id: u64,
        into: &'a mut [u8],
    ) -> SendIo<'a, Result<()>> {
        Box::pin(async move {
            self.begin()?;
            self.delay().await;
            self.inner.recv_payload(from, id, into).await
        })
    }
}

impl Membership for FaultyEnd {
    fn announce(&self, seq: u64, call: Call) {
        if !self.is_dead() {
            self.inner.announce(seq, call);
        }
    }

    fn missing(&self, seq: u64) -> Missing {
        self.inner.missing(seq)
    }

    fn agree(&self, disagreement: Error) -> SendIo<'_, Error> {
        match self.is_dead() {
            true => Box::pin(async { disagreement }),
            false => self.inner.agree(disagreement),
        }
    }

    fn dispute(&self) -> Option<Io<'_, Error>> {
        self.inner.dispute()
    }

    fn fail(&self, fault: Error) -> Error {
        if self.is_dead() { fault } else { self.inner.fail(fault) }
    }

    fn fault(&self) -> Option<Error> {
        self.inner.fault()
    }

    fn split(&self, split: Split) -> Result<Mesh> {
        self.inner.split(split)
    }

    fn renounce(&self, seq: u64, color: u32, fault: Error) {
        self.inner.renounce(seq, color, fault);
    }

    fn forming(&self) -> Option<&dyn Forming> {
        self.inner.forming()
    }

    fn leave(&self) {
        self.inner.leave();
    }
}
