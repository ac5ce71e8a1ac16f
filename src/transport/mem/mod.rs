//! The memory mesh: ranks of one process, joined by bounded queues.
//!
//! It carries communicators whose ranks are threads, and it is the world in which the collectives
//! are proved: messages are counted, links can be cut, ranks killed, parcels delayed, with no
//! clock and no socket involved.

pub(super) mod bodies;
mod queue;
mod shelves;
mod slot;
mod trouble;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use crate::buffer;
use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Place, Rank};

use super::board::Board;
use super::{
    HAS_LEFT, Header, Hosts, Inbox, LANES, Label, Lane, Mesh, Missing, Note, ROUNDS, Readers, Split,
};
use bodies::{Bodies, Key};
use queue::{Parcel, Queue, Reason};
use shelves::Shelves;
use slot::{Shown, Sight};

pub use trouble::Trouble;

/// Longest part of a message that is copied at once; a multiple of every element's size.
const PART: usize = 128 << 10;

/// Up to so many bytes are copied: that takes a fraction of a microsecond, and to wait until all have looked at
/// them many where ranks share processors. Beyond it an all-reduce of two ranks takes half the time without.
const COPIED: usize = 4 << 10;

/// All ranks of one in-process communicator.
pub struct MemWorld {
    size: usize,
    /// Of each rank.
    hosts: Vec<usize>,
    /// By lane, sender, receiver; made when first used.
    queues: Vec<OnceLock<Box<Queue>>>,
    shelves: Shelves,
    inboxes: Vec<Inbox>,
    bodies: Bodies,
    traffic: Vec<Counters>,
    board: Mutex<Board>,
    fault: OnceLock<Error>,
    /// Killed ranks: they tell nobody anything any more.
    dead: Vec<AtomicBool>,
    trouble: Trouble,
    splits: Mutex<Splits>,
}

/// Worlds split off another, by number of the call and color.
#[derive(Default)]
struct Splits {
    /// Those that not all their ranks have entered yet.
    entering: HashMap<(u64, u32), Entering>,
    /// Those that a rank will never enter.
    renounced: HashMap<(u64, u32), Error>,
}

/// A world that so many ranks have yet to enter.
struct Entering {
    world: Arc<MemWorld>,
    missing: usize,
}

/// One rank's end of a `MemWorld`.
pub struct MemMesh {
    world: Arc<MemWorld>,
    place: Place,
    hosts: Hosts,
    /// Of each lane, how many rounds this rank has begun.
    begun: [AtomicU64; LANES],
}

/// What a rank has sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Default)]
struct Counters {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl MemWorld {
    pub fn new(size: usize, trouble: Trouble) -> Result<Arc<Self>> {
        Self::on_hosts(vec![0; size], trouble)
    }

    /// A world whose ranks share memory only with those on the same host, which is named for each rank.
    pub fn on_hosts(hosts: Vec<usize>, trouble: Trouble) -> Result<Arc<Self>> {
        let size = hosts.len();
        let count = LANES * size * size;
        let mut queues = Vec::new();
        let bytes = count * size_of::<OnceLock<Box<Queue>>>();
        queues.try_reserve_exact(count).map_err(|_| Error::out_of_memory(bytes))?;
        queues.resize_with(count, OnceLock::new);
        Ok(Arc::new(Self {
            size,
            hosts,
            queues,
            shelves: Shelves::new(size),
            inboxes: (0..size).map(|rank| Inbox::new(Place::new(Rank(rank), size))).collect(),
            bodies: Bodies::default(),
            traffic: (0..size).map(|_| Counters::default()).collect(),
            board: Mutex::new(Board::new(size)),
            fault: OnceLock::new(),
            dead: (0..size).map(|_| AtomicBool::new(false)).collect(),
            trouble,
            splits: Mutex::default(),
        }))
    }

    /// The meshes of all ranks, in rank order.
    pub fn meshes(self: &Arc<Self>) -> Vec<MemMesh> {
        let ranks = (0..self.size).map(Rank);
        ranks.map(|rank| MemMesh::new(Arc::clone(self), Place::new(rank, self.size))).collect()
    }

    pub fn traffic(&self, rank: Rank) -> Traffic {
        let counters = &self.traffic[rank.0];
        Traffic {
            messages: counters.messages.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
        }
    }

    /// Breaks the link between two ranks in both directions.
    pub fn cut(&self, a: Rank, b: Rank) {
        self.inboxes[a.0].gone(b, "cannot be reached");
        self.inboxes[b.0].gone(a, "cannot be reached");
        self.bodies.wake();
        for lane in (0..LANES).map(Lane) {
            for (from, to) in [(a, b), (b, a)] {
                let queue = self.queue(lane, from, to);
                queue.close_sender("cannot be reached");
                queue.close_receiver("cannot be reached");
            }
        }
    }

    /// Ends a rank without a word, as SIGKILL does.
    pub fn kill(&self, rank: Rank) {
        self.dead[rank.0].store(true, Ordering::Relaxed);
        self.rank_gone(rank, "was killed");
        let fault = Error::PeerLost { peer: rank, how: "was killed".to_owned() };
        self.inboxes[rank.0].fail(fault);
    }

    fn rank_gone(&self, rank: Rank, reason: Reason) {
        let others = self.inboxes.iter().enumerate().filter(|(other, _)| *other != rank.0);
        others.for_each(|(_, inbox)| inbox.gone(rank, reason));
        self.shelves.rank_gone(rank, reason);
        // After the inboxes: who makes a queue then looks there.
        self.bodies.rank_gone(rank, reason);
        for lane in (0..LANES).map(Lane) {
            for peer in (0..self.size).map(Rank) {
                self.queue(lane, rank, peer).close_sender(reason);
                self.queue(lane, peer, rank).close_receiver(reason);
            }
        }
    }

    fn queue(&self, lane: Lane, from: Rank, to: Rank) -> &Queue {
        let index = (lane.0 * self.size + from.0) * self.size + to.0;
        self.queues[index].get_or_init(Box::default)
    }

    /// The first fault is everybody's.
    fn fail(&self, fault: Error) -> Error {
        let mut first = false;
        let fault = self.fault.get_or_init(|| {
            first = true;
            fault
        });
        if first {
            self.queues.iter().filter_map(OnceLock::get).for_each(|queue| queue.wake_both());
            self.inboxes.iter().for_each(|inbox| inbox.fail(fault.clone()));
            self.bodies.wake();
            self.shelves.wake();
        }
        fault.clone()
    }

    fn splits(&self) -> MutexGuard<'_, Splits> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self) -> bool {
        self.fault.get().is_some()
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemMesh {
    fn new(world: Arc<MemWorld>, place: Place) -> Self {
        let names: Vec<_> = world.hosts.iter().copied().map(Some).collect();
        let hosts = Hosts::new(&names, place.rank);
        Self { world, place, hosts, begun: Default::default() }
    }

    async fn put(
        &self,
        queue: &Queue,
        to: Rank,
        header: Option<Header>,
        bytes: &[u8],
    ) -> Result<()> {
        let parcel = Parcel {
            header,
            bytes: buffer::copied(bytes)?,
            delay: self.world.trouble.next_delay(),
        };
        let mut parcel = Some(parcel);
        let put = |context: &mut Context<'_>| {
            queue.poll_put(context, &mut parcel, || self.world.has_failed())
        };
        poll_fn(put).await.map_err(|reason| self.lost(to, reason))
    }

    async fn take(&self, queue: &Queue, from: Rank) -> Result<Parcel> {
        let take = |context: &mut Context<'_>| -> Poll<_> {
            queue.poll_take(context, || self.world.has_failed())
        };
        poll_fn(take).await.map_err(|reason| self.lost(from, reason))
    }

    /// The mesh's fault if it has failed, else that of this one peer.
    fn lost(&self, peer: Rank, reason: Option<Reason>) -> Error {
        match (reason, self.fault()) {
            (None, Some(fault)) => fault,
            (reason, _) => {
                let how = reason.unwrap_or("cannot be reached").to_owned();
                Error::PeerLost { peer, how }
            }
        }
    }

    /// Waits until something may be laid out in a round: all have passed what lies there.
    async fn room(&self, lane: Lane, round: u64) -> Result<()> {
        self.have_passed(lane, (round + 1).saturating_sub(ROUNDS as u64)).await
    }

    /// Waits until all other ranks of this host have passed so many rounds.
    async fn have_passed(&self, lane: Lane, rounds: u64) -> Result<()> {
        let others = self.hosts.mine().iter().copied().filter(|rank| *rank != self.place.rank);
        let failed = || self.world.has_failed();
        let passed = poll_fn(|context: &mut Context<'_>| {
            self.world.shelves.poll_passed(context, lane, others.clone(), rounds, failed)
        });
        passed.await.map_err(|(peer, reason)| self.lost(peer, reason))
    }

    fn die_if_due(&self) -> Result<()> {
        if self.world.trouble.dies_now(self.place.rank) {
            self.world.kill(self.place.rank);
            return Err(Error::PeerLost { peer: self.place.rank, how: "was killed".to_owned() });
        }
        Ok(())
    }
}

impl Mesh for MemMesh {
    fn place(&self) -> Place {
        self.place
    }

    async fn send(&self, lane: Lane, to: Rank, header: &Header, bytes: &[u8]) -> Result<()> {
        self.die_if_due()?;
        let traffic = &self.world.traffic[self.place.rank.0];
        traffic.messages.fetch_add(1, Ordering::Relaxed);
        traffic.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);

        let queue = self.world.queue(lane, self.place.rank, to);
        let mut segments = bytes.chunks(PART);
        // A message without bytes still sends its header.
        self.put(queue, to, Some(*header), segments.next().unwrap_or_default()).await?;
        for segment in segments {
            self.put(queue, to, None, segment).await?;
        }
        Ok(())
    }

    async fn recv(
        &self,
        lane: Lane,
        from: Rank,
        header: &Header,
        mut into: &mut [u8],
        mut land: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<()> {
        self.die_if_due()?;
        let queue = self.world.queue(lane, from, self.place.rank);
        let broken = || Error::Protocol { peer: from, what: "broke off a message".to_owned() };
        let mut parcel = self.take(queue, from).await?;
        let arrived = parcel.header.take().ok_or_else(broken)?;
        header.check(self.place.rank, from, &arrived)?;
        loop {
            if parcel.header.is_some() || parcel.bytes.len() > into.len() {
                return Err(broken());
            }
            let (now, rest) = into.split_at_mut(parcel.bytes.len());
            land(now, &parcel.bytes);
            into = rest;
            if into.is_empty() {
                return Ok(());
            }
            parcel = self.take(queue, from).await?;
        }
    }

    type Sight<'a> = Sight<'a>;

    fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    fn begin_rounds(&self, lane: Lane, count: u64) -> u64 {
        self.begun[lane.0].fetch_add(count, Ordering::Relaxed)
    }

    async fn lay(
        &self,
        lane: Lane,
        round: u64,
        label: &Label,
        fill: impl FnOnce(&mut [u8], Readers),
    ) -> Result<()> {
        self.die_if_due()?;
        self.room(lane, round).await?;
        let MemWorld { shelves, trouble, .. } = &*self.world;
        let fill = |slot: &mut [u8]| fill(slot, Readers::Near);
        shelves.lay(lane, self.place.rank, round, &label.header(), trouble.next_delay(), fill);
        Ok(())
    }

    type Shown<'a> = Shown<'a>;

    async fn show<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        label: &Label,
        bytes: &'a [u8],
    ) -> Result<Option<Shown<'a>>> {
        // This rank could not end its call, late as it may be, before a function that looks at the bytes.
        if bytes.len() <= COPIED || label.header().call.calls_program() {
            return Ok(None);
        }
        self.die_if_due()?;
        self.room(lane, round).await?;
        let MemWorld { shelves, trouble, .. } = &*self.world;
        let delay = trouble.next_delay();
        Ok(Some(shelves.show(lane, self.place.rank, round, &label.header(), delay, bytes)))
    }

    async fn passed(&self, lane: Lane, round: u64) -> Result<()> {
        self.have_passed(lane, round + 1).await
    }

    async fn look<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        at: Rank,
        label: &Label,
    ) -> Result<Sight<'a>> {
        self.die_if_due()?;
        let failed = || self.world.has_failed();
        let sight = poll_fn(|context: &mut Context<'_>| {
            self.world.shelves.poll_look(context, lane, at, round, failed)
        });
        let sight = sight.await.map_err(|reason| self.lost(at, reason))?;
        label.header().check(self.place.rank, at, &sight.header())?;
        Ok(sight)
    }

    async fn expose(&self, _: Lane, _: u64, _: &Label, _: &[u8]) -> Result<bool> {
        unreachable!("its hosts are not open")
    }

    async fn fetch(
        &self,
        _: Lane,
        _: u64,
        _: Rank,
        _: &Label,
        _: usize,
        _: &mut [u8],
    ) -> Result<()> {
        unreachable!("its hosts are not open")
    }

    async fn confirm(&self, _: Lane) -> Result<()> {
        Ok(())
    }

    fn pass(&self, lane: Lane, round: u64) {
        self.world.shelves.pass(lane, self.place.rank, round);
    }

    fn inbox(&self) -> &Inbox {
        &self.world.inboxes[self.place.rank.0]
    }

    fn connect(&self, _: Rank) {}

    async fn send_note(&self, to: Rank, note: Note) -> Result<()> {
        self.die_if_due()?;
        for _ in 0..self.world.trouble.next_delay() {
            tokio::task::yield_now().await;
        }
        if let Some(lost) = self.inbox().lost(to) {
            return Err(lost);
        }
        let broken = |what| Error::Protocol { peer: self.place.rank, what };
        self.world.inboxes[to.0].deliver(self.place.rank, note).map_err(broken)
    }

    async fn send_body(&self, to: Rank, id: u64, bytes: &[u8]) -> Result<()> {
        self.die_if_due()?;
        let key = Key { from: self.place.rank, to, id };
        let delay = || self.world.trouble.next_delay();
        self.world.bodies.send(key, self.inbox(), bytes, delay).await
    }

    async fn recv_body(&self, from: Rank, id: u64, into: &mut [u8]) -> Result<()> {
        self.die_if_due()?;
        let key = Key { from, to: self.place.rank, id };
        self.world.bodies.recv(key, self.inbox(), into).await
    }

    async fn split(&self, split: Split) -> Result<Self> {
        let (size, name) = (split.members.len(), (split.seq, split.color));
        let mut splits = self.world.splits();
        let mut entering = match splits.entering.remove(&name) {
            Some(entering) => entering,
            None => {
                let hosts = split.members.iter().map(|rank| self.world.hosts[rank.0]).collect();
                let world = MemWorld::on_hosts(hosts, Trouble::default())?;
                Entering { world, missing: size }
            }
        };
        entering.missing -= 1;
        let world = Arc::clone(&entering.world);
        if entering.missing > 0 {
            splits.entering.insert(name, entering);
        }
        if let Some(fault) = splits.renounced.get(&name) {
            world.fail(fault.clone());
        }
        let rank = split.members.iter().position(|member| *member == self.place.rank);
        let rank = Rank(rank.expect("this rank is a member"));
        Ok(Self::new(world, Place::new(rank, size)))
    }

    fn renounce(&self, seq: u64, color: u32, fault: Error) {
        let mut splits = self.world.splits();
        if let Some(entering) = splits.entering.get(&(seq, color)) {
            entering.world.fail(fault.clone());
        }
        splits.renounced.entry((seq, color)).or_insert(fault);
    }

    fn announce(&self, seq: u64, call: Call) {
        let noted = self.world.board().enter(self.place.rank, seq, call);
        if let Err(mismatch) = noted {
            self.fail(mismatch);
        }
    }

    /// The first word is everybody's: they share it.
    async fn agree(&self, disagreement: Error) -> Error {
        self.fail(disagreement)
    }

    async fn settled_fault(&self) -> Option<Error> {
        self.fault()
    }

    fn missing(&self, seq: u64) -> Missing {
        Missing { absent: self.world.board().missing(seq), unknown: Vec::new() }
    }

    fn fail(&self, fault: Error) -> Error {
        if self.world.dead[self.place.rank.0].load(Ordering::Relaxed) {
            return fault;
        }
        self.world.fail(fault)
    }

    fn fault(&self) -> Option<Error> {
        self.world.fault.get().cloned()
    }

    fn leave(&self) {
        self.world.rank_gone(self.place.rank, HAS_LEFT);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::transport::Past;

    /// Sends short messages to a rank that takes none, until a send would wait.
    fn fill(mesh: &MemMesh, to: Rank) -> usize {
        let header =
            Header { seq: 0, call: Call::barrier(), past: Past::default(), step: 0, bytes: 1 };
        let mut context = Context::from_waker(Waker::noop());
        let waits =
            |_: &usize| pin!(mesh.send(Lane(0), to, &header, &[7])).poll(&mut context).is_pending();
        (0..1_000_000).find(waits).expect("a sender waits in the end")
    }

    #[test]
    fn short_messages_that_nobody_takes_cost_bounded_memory() {
        let world = MemWorld::new(2, Trouble::default()).unwrap();
        let sent = fill(&world.meshes()[0], Rank(1));
        assert!(sent * size_of::<Parcel>() <= queue::WINDOW, "{sent} parcels on their way");
    }

    #[test]
    fn a_sender_that_waits_for_room_learns_of_a_failure_and_of_a_leave() {
        for how in ["failed", "left"] {
            let world = MemWorld::new(2, Trouble::default()).unwrap();
            let meshes = world.meshes();
            fill(&meshes[0], Rank(1));
            match how {
                "failed" => drop(meshes[1].fail(Error::Usage("wrong".to_owned()))),
                _ => meshes[1].leave(),
            }
            let header =
                Header { seq: 0, call: Call::barrier(), past: Past::default(), step: 0, bytes: 1 };
            let mut context = Context::from_waker(Waker::noop());
            let polled = pin!(meshes[0].send(Lane(0), Rank(1), &header, &[7])).poll(&mut context);
            assert!(matches!(polled, Poll::Ready(Err(_))), "{how}: {polled:?}");
        }
    }

    #[test]
    fn a_message_broken_off_is_not_continued_by_the_next() {
        let world = MemWorld::new(2, Trouble::default()).unwrap();
        let meshes = world.meshes();
        let (long, mut context) = (2 * PART, Context::from_waker(Waker::noop()));
        let header =
            Header { seq: 0, call: Call::barrier(), past: Past::default(), step: 0, bytes: long };
        let queue = world.queue(Lane(0), Rank(0), Rank(1));
        for _ in 0..2 {
            let first =
                pin!(meshes[0].put(queue, Rank(1), Some(header), &[1; PART])).poll(&mut context);
            assert!(matches!(first, Poll::Ready(Ok(()))));
        }
        let mut into = vec![0; long];
        let received =
            pin!(meshes[1].recv(Lane(0), Rank(0), &header, &mut into, <[u8]>::copy_from_slice));
        let Poll::Ready(Err(Error::Protocol { peer: Rank(0), .. })) = received.poll(&mut context)
        else {
            panic!("the second message was taken for the rest of the first");
        };
    }
}
