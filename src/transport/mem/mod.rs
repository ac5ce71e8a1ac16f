//! Ranks that are threads of one process, joined by bounded queues and by shared memory.
//!
//! It is also the world in which the collectives are tested: it needs no clock and no socket, and
//! fault injection (`injection`) wraps it. Leaves to `queue` and `slot` how two threads exchange
//! bytes.

mod memory;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Context;

use crate::buffer;
use crate::error::{Error, Result};
use crate::message::{Incoming, Outgoing};
use crate::op::Call;
use crate::rank::{Rank, RankOf};
use crate::sync::cores;

use super::call_table::CallTable;
use super::host::{Attempt, HostMemory, Published, Readers, View};
use super::lanes::{Land, Lanes};
use super::membership::{Missing, Split};
use super::mesh::{Forming, Membership, Mesh, Settled};
use super::messages::Messages;
use super::payloads::{Key, PART, Payloads};
use super::queue::{Parcel, ParcelQueue, Reason};
use super::{
    ControlMessage, EncodedHeader, HAS_LEFT, Header, Hosts, Io, LANES, Lane, MessageQueues,
    Protocol, SendIo,
};
use memory::ThreadMemory;

/// Up to this length bytes are copied: that takes a fraction of a microsecond, while waiting for
/// the views of all ranks takes many microseconds where ranks share processors. Beyond it, an
/// all-reduce of two ranks takes half the time without the copy.
const COPIED: usize = 4 << 10;

/// How often a short receive polls where no ranks outnumber the processors, and its pauses between
/// two polls: some ten microseconds, in which the sender can take the lock that it needs.
const POLLS: u32 = 120;
const PAUSES: u32 = 4;

/// All ranks of one in-process communicator.
pub struct MemWorld {
    size: usize,
    /// The host of each rank.
    hosts: Vec<usize>,
    /// By lane, sender, receiver; created when first used.
    queues: Vec<OnceLock<Box<ParcelQueue>>>,
    memory: ThreadMemory,
    message_queues: Vec<Arc<MessageQueues>>,
    payloads: Arc<Payloads>,
    call_table: Mutex<CallTable>,
    fault: OnceLock<Error>,
    splits: Mutex<Splits>,
}

/// Worlds split off another, by sequence number of the call and color.
#[derive(Default)]
struct Splits {
    /// Worlds that some rank has yet to enter.
    entering: HashMap<(u64, u32), Entering>,
    /// Worlds that some rank will never enter, because of this fault.
    renounced: HashMap<(u64, u32), Error>,
}

/// A world that `missing` ranks have yet to enter.
struct Entering {
    world: Arc<MemWorld>,
    missing: usize,
}

/// One rank's end of a `MemWorld`.
pub struct MemEnd {
    world: Arc<MemWorld>,
    me: RankOf,
    hosts: Hosts,
    /// How many epochs of each lane this rank has begun.
    begun: [AtomicU64; LANES],
    /// How often a receive polls before it takes the general path.
    polls: u32,
}

impl MemWorld {
    pub fn new(size: usize) -> Result<Arc<Self>> {
        Self::on_hosts(vec![0; size])
    }

    /// A world whose ranks share memory only with those of the same host. `hosts`: that of each
    /// rank.
    pub fn on_hosts(hosts: Vec<usize>) -> Result<Arc<Self>> {
        let size = hosts.len();
        let count = LANES * size * size;
        let mut queues = Vec::new();
        let bytes = count * size_of::<OnceLock<Box<ParcelQueue>>>();
        queues.try_reserve_exact(count).map_err(|_| Error::out_of_memory(bytes))?;
        queues.resize_with(count, OnceLock::new);
        let payloads = Arc::<Payloads>::default();
        let message_queues = |rank| {
            let me = RankOf::new(Rank(rank), size);
            Arc::new(MessageQueues::with_payloads(me, Arc::clone(&payloads)))
        };
        Ok(Arc::new(Self {
            size,
            hosts,
            queues,
            memory: ThreadMemory::new(size),
            message_queues: (0..size).map(message_queues).collect(),
            payloads,
            call_table: Mutex::new(CallTable::new(size)),
            fault: OnceLock::new(),
            splits: Mutex::default(),
        }))
    }

    /// The ends of all ranks, in rank order.
    pub fn ends(self: &Arc<Self>) -> Vec<Arc<MemEnd>> {
        let ranks = (0..self.size).map(Rank);
        ranks.map(|rank| MemEnd::new(Arc::clone(self), RankOf::new(rank, self.size))).collect()
    }

    /// The meshes of all ranks, in rank order.
    pub fn meshes(self: &Arc<Self>) -> Vec<Mesh> {
        self.ends().into_iter().map(MemEnd::into_mesh).collect()
    }

    /// A rank sends and receives no more.
    pub(super) fn rank_gone(&self, rank: Rank, reason: Reason) {
        let others = self.message_queues.iter().enumerate().filter(|(other, _)| *other != rank.0);
        others.for_each(|(_, message_queues)| message_queues.gone(rank, reason));
        self.memory.rank_gone(rank, reason);
        // After the message queues, which a thread checks after it has created a payload queue.
        self.payloads.rank_gone(rank, reason);
        for peer in (0..self.size).map(Rank) {
            self.close(rank, peer, reason);
        }
    }

    /// `rank` sends nothing more to `peer` and receives nothing more from it.
    pub(super) fn close(&self, rank: Rank, peer: Rank, reason: Reason) {
        for lane in (0..LANES).map(Lane) {
            self.queue(lane, rank, peer).close_sender(reason);
            self.queue(lane, peer, rank).close_receiver(reason);
        }
    }

    pub(super) fn message_queues(&self, rank: Rank) -> &Arc<MessageQueues> {
        &self.message_queues[rank.0]
    }

    fn queue(&self, lane: Lane, from: Rank, to: Rank) -> &ParcelQueue {
        let index = (lane.0 * self.size + from.0) * self.size + to.0;
        self.queues[index].get_or_init(Box::default)
    }

    /// Fails the world on all ranks. The first fault stays; returns it.
    pub(super) fn fail(&self, fault: Error) -> Error {
        let mut first = false;
        let fault = self.fault.get_or_init(|| {
            first = true;
            fault
        });
        if first {
            self.queues.iter().filter_map(OnceLock::get).for_each(|queue| queue.wake_both());
            self.message_queues
                .iter()
                .for_each(|message_queues| message_queues.fail(fault.clone()));
            self.memory.wake();
        }
        fault.clone()
    }

    fn splits(&self) -> MutexGuard<'_, Splits> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self) -> bool {
        self.fault.get().is_some()
    }

    fn call_table(&self) -> MutexGuard<'_, CallTable> {
        self.call_table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemEnd {
    fn new(world: Arc<MemWorld>, me: RankOf) -> Arc<Self> {
        let names: Vec<_> = world.hosts.iter().copied().map(Some).collect();
        let hosts = Hosts::new(&names, me.rank);
        let polls = if cores() < me.size { 1 } else { POLLS };
        Arc::new(Self { world, me, hosts, begun: Default::default(), polls })
    }

    /// A mesh whose four contracts are all this end.
    pub fn into_mesh(self: Arc<Self>) -> Mesh {
        let memory = self.memory(Arc::clone(&self) as Arc<dyn HostMemory>);
        Mesh {
            me: self.me,
            lanes: Arc::clone(&self) as Arc<dyn Lanes>,
            messages: Arc::clone(&self) as Arc<dyn Messages>,
            membership: self,
            memory,
            has_cuda: None,
        }
    }

    /// Which ranks share memory, which threads know from the beginning.
    pub(super) fn memory(&self, host: Arc<dyn HostMemory>) -> Settled {
        Settled { hosts: self.hosts.clone(), host: Some(host), fast: None, is_crowded: None }
    }

    #[cfg(feature = "testing")]
    pub(super) fn me(&self) -> RankOf {
        self.me
    }

    async fn put(
        &self,
        queue: &ParcelQueue,
        to: Rank,
        header: Option<Header>,
        bytes: &[u8],
    ) -> Result<()> {
        let mut parcel = Some(Parcel { header, bytes: buffer::copied(bytes)? });
        let put = |context: &mut Context<'_>| {
            queue.poll_put(context, &mut parcel, || self.world.has_failed())
        };
        poll_fn(put).await.map_err(|reason| self.lost(to, reason))
    }

    async fn take(&self, queue: &ParcelQueue, from: Rank) -> Result<Parcel> {
        let take = |context: &mut Context<'_>| queue.poll_take(context, || self.world.has_failed());
        poll_fn(take).await.map_err(|reason| self.lost(from, reason))
    }

    /// The fault of the world if it has failed, else the loss of this peer.
    fn lost(&self, peer: Rank, reason: Option<Reason>) -> Error {
        match (reason, self.fault()) {
            (None, Some(fault)) => fault,
            (reason, _) => {
                let how = reason.unwrap_or("cannot be reached").to_owned();
                Error::PeerLost { peer, how }
            }
        }
    }

    /// A wait until all ranks have released the epoch whose slot this one uses. `None` if they
    /// have.
    fn await_slot(&self, lane: Lane, epoch: u64) -> Option<Io<'_, Result<()>>> {
        self.all_released(lane, self.world.memory.needed(lane, self.me.rank, epoch))
    }

    /// A wait until all other ranks of this host have released this many epochs. `None` if they
    /// have.
    fn all_released(&self, lane: Lane, epochs: u64) -> Option<Io<'_, Result<()>>> {
        let others = self.hosts.mine().iter().copied().filter(move |rank| *rank != self.me.rank);
        self.world.memory.slowest(lane, others.clone(), epochs)?;
        Some(Box::pin(async move {
            let failed = || self.world.has_failed();
            let released = poll_fn(|context: &mut Context<'_>| {
                let others = others.clone();
                self.world.memory.poll_released(context, lane, others, epochs, failed)
            });
            released.await.map_err(|(peer, reason)| self.lost(peer, reason))
        }))
    }
}

impl Lanes for MemEnd {
    fn send<'a>(
        &'a self,
        lane: Lane,
        to: Rank,
        header: &'a Header,
        bytes: &'a [u8],
    ) -> Io<'a, Result<()>> {
        Box::pin(async move {
            let queue = self.world.queue(lane, self.me.rank, to);
            // The receiver may reduce each part as it arrives.
            let reduction = header.call.reduction();
            let width = reduction.map_or(PART, |reduction| reduction.dtype.whole(PART));
            let mut parts = bytes.chunks(width);
            // A message without bytes still sends its header.
            self.put(queue, to, Some(*header), parts.next().unwrap_or_default()).await?;
            for part in parts {
                self.put(queue, to, None, part).await?;
            }
            Ok(())
        })
    }

    fn recv<'a>(
        &'a self,
        lane: Lane,
        from: Rank,
        header: &'a Header,
        mut into: &'a mut [u8],
        land: &'a mut Land<'_>,
    ) -> Io<'a, Result<()>> {
        Box::pin(async move {
            let queue = self.world.queue(lane, from, self.me.rank);
            let broken =
                || Error::Protocol { peer: from, what: "ended a message early".to_owned() };
            let mut parcel = self.take(queue, from).await?;
            let arrived = parcel.header.take().ok_or_else(broken)?;
            header.check(self.me.rank, from, &arrived)?;
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
        })
    }
}

impl HostMemory for MemEnd {
    fn begin_epochs(&self, lane: Lane, count: u64) -> u64 {
        self.begun[lane.0].fetch_add(count, Ordering::Relaxed)
    }

    fn publish(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: &mut dyn FnMut(&mut [u8], Readers),
    ) -> Result<Attempt<'_, ()>> {
        if let Some(wait) = self.await_slot(lane, epoch) {
            return Ok(Attempt::Wait(wait));
        }
        let fill = |slot: &mut [u8]| fill(slot, Readers::Near);
        self.world.memory.publish(lane, self.me.rank, epoch, encoded, fill);
        Ok(Attempt::Done(()))
    }

    fn publish_in_place<'a>(
        &'a self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &'a [u8],
    ) -> Result<Attempt<'a, Option<Published<'a>>>> {
        // A function of the program may take any time, and the end of this call would wait for its
        // view of the bytes, beyond the deadline.
        if bytes.len() <= COPIED || encoded.header().call.calls_program() {
            return Ok(Attempt::Done(None));
        }
        if let Some(wait) = self.await_slot(lane, epoch) {
            return Ok(Attempt::Wait(wait));
        }
        let (memory, rank) = (&self.world.memory, self.me.rank);
        let in_place = memory.publish_in_place(lane, rank, epoch, &encoded.header(), bytes);
        Ok(Attempt::Done(Some(Published::Locked(in_place))))
    }

    /// Not needed: threads view each other's memory in place.
    fn publish_address(
        &self,
        _: Lane,
        _: u64,
        _: &EncodedHeader,
        _: &[u8],
    ) -> Result<Attempt<'_, bool>> {
        Ok(Attempt::Done(false))
    }

    fn view(
        &self,
        lane: Lane,
        epoch: u64,
        at: Rank,
        encoded: &EncodedHeader,
    ) -> Result<Attempt<'_, View<'_>>> {
        if let Some(view) = self.world.memory.view(lane, at, epoch) {
            encoded.header().check(self.me.rank, at, &view.header())?;
            return Ok(Attempt::Done(View::Locked(view)));
        }
        Ok(Attempt::Wait(Box::pin(async move {
            let failed = || self.world.has_failed();
            let published = poll_fn(|context: &mut Context<'_>| {
                self.world.memory.poll_published(context, lane, at, epoch, failed)
            });
            published.await.map_err(|reason| self.lost(at, reason))
        })))
    }

    fn read_remote(
        &self,
        _: Lane,
        _: u64,
        from: Rank,
        _: &EncodedHeader,
        _: usize,
        _: &mut [u8],
    ) -> Result<Attempt<'_, ()>> {
        let what = "published the address of its memory to a thread".to_owned();
        Err(Error::Protocol { peer: from, what })
    }

    fn release(&self, lane: Lane, epoch: u64) {
        self.world.memory.release(lane, self.me.rank, epoch);
    }

    fn released(&self, lane: Lane, epoch: u64) -> Result<Attempt<'_, ()>> {
        Ok(self.all_released(lane, epoch + 1).map_or(Attempt::Done(()), Attempt::Wait))
    }

    /// Nothing to confirm: a view holds the slot's lock.
    fn confirm(&self, _: Lane) -> Attempt<'_, ()> {
        Attempt::Done(())
    }
}

impl Messages for MemEnd {
    fn message_queues(&self) -> &Arc<MessageQueues> {
        self.world.message_queues(self.me.rank)
    }

    fn connect(&self, _: Rank) {}

    fn send_at_once(&self, outgoing: &Outgoing<'_>) -> bool {
        let Outgoing { to, envelope, bytes, .. } = *outgoing;
        // Until it is delivered, no other thread of this rank sends to the same one.
        let turn = self.message_queues().turn(to);
        let Some(id) = self.message_queues().permit_at_once(&turn, outgoing) else { return false };
        let protocol = Protocol::Eager { payload: bytes.to_vec(), wants_cts: false };
        let message = ControlMessage::Message { id, envelope, protocol };
        self.world.message_queues(to).deliver(self.me.rank, message).is_ok()
    }

    fn receive_at_once(&self, incoming: &mut Incoming<'_>) -> bool {
        (0..self.polls).any(|_| {
            let is_received = self.message_queues().receive_at_once(incoming);
            if !is_received {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            is_received
        })
    }

    fn send_control(&self, to: Rank, message: ControlMessage) -> SendIo<'_, Result<()>> {
        Box::pin(async move {
            if let Some(lost) = self.message_queues().lost(to) {
                return Err(lost);
            }
            let broken = |what| Error::Protocol { peer: self.me.rank, what };
            self.world.message_queues(to).deliver(self.me.rank, message).map_err(broken)
        })
    }

    fn send_payload<'a>(&'a self, to: Rank, id: u64, bytes: &'a [u8]) -> SendIo<'a, Result<()>> {
        let key = Key { from: self.me.rank, to, id };
        Box::pin(self.world.payloads.send(key, bytes, move || self.message_queues().lost(to)))
    }

    fn recv_payload<'a>(
        &'a self,
        from: Rank,
        id: u64,
        into: &'a mut [u8],
    ) -> SendIo<'a, Result<()>> {
        let key = Key { from, to: self.me.rank, id };
        Box::pin(self.world.payloads.recv(key, into, move || self.message_queues().lost(from)))
    }
}

impl Membership for MemEnd {
    fn announce(&self, seq: u64, call: Call) {
        let entered = self.world.call_table().enter(self.me.rank, seq, call);
        if let Err(mismatch) = entered {
            self.fail(mismatch);
        }
    }

    fn missing(&self, seq: u64) -> Missing {
        Missing { absent: self.world.call_table().missing(seq), unknown: Vec::new() }
    }

    /// The first disagreement is the fault: all ranks share the world.
    fn agree(&self, disagreement: Error) -> SendIo<'_, Error> {
        Box::pin(async move { self.fail(disagreement) })
    }

    fn dispute(&self) -> Option<Io<'_, Error>> {
        None
    }

    fn fail(&self, fault: Error) -> Error {
        self.world.fail(fault)
    }

    fn fault(&self) -> Option<Error> {
        self.world.fault.get().cloned()
    }

    fn split(&self, split: Split) -> Result<Mesh> {
        let (size, name) = (split.members.len(), (split.seq, split.color));
        let mut splits = self.world.splits();
        let mut entering = match splits.entering.remove(&name) {
            Some(entering) => entering,
            None => {
                let hosts = split.members.iter().map(|rank| self.world.hosts[rank.0]).collect();
                Entering { world: MemWorld::on_hosts(hosts)?, missing: size }
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
        let rank = split.members.iter().position(|member| *member == self.me.rank);
        let rank = Rank(rank.expect("this rank is a member"));
        Ok(Self::new(world, RankOf::new(rank, size)).into_mesh())
    }

    fn renounce(&self, seq: u64, color: u32, fault: Error) {
        let mut splits = self.world.splits();
        if let Some(entering) = splits.entering.get(&(seq, color)) {
            entering.world.fail(fault.clone());
        }
        splits.renounced.entry((seq, color)).or_insert(fault);
    }

    fn forming(&self) -> Option<&dyn Forming> {
        None
    }

    fn leave(&self) {
        self.world.rank_gone(self.me.rank, HAS_LEFT);
    }
}

#[cfg(test)]
mod tests;
