//! Messages of ranks that are processes: inside a host through rings in shared memory, to other
//! ranks over QUIC, and to this rank itself inside the process.
//!
//! Leaves to `shm` the rings, to `quic` the streams, and to `payloads` the payloads inside the
//! process. Invariant: all control messages from one rank to another travel the same way.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::message::{Incoming, Outgoing};
use crate::rank::Rank;

use super::super::messages::Messages;
use super::super::payloads::Key;
use super::super::quic::{Context, Quic};
use super::super::shm::{Host, PayloadPart, doorbell};
use super::super::{ControlMessage, HAS_LEFT, Hosts, Location, MessageQueues, SendIo};

pub(super) struct ProcessMessages {
    pub quic: Arc<Quic>,
    /// Set when the communicator is complete, if its ranks share memory.
    pub rings: Arc<OnceLock<HostRings>>,
}

/// The rings of the ranks of this host.
pub(super) struct HostRings {
    host: Arc<Host>,
    hosts: Hosts,
    quic: Arc<Quic>,
    /// By index: whether the message queues know that the rank has left.
    has_left: Vec<AtomicBool>,
}

/// A rank that waits this long for room in a ring asks the receiver to deliver what is there: it
/// may compute, or wait for something else. Before a thread that waits goes to sleep.
const PATIENCE: Duration = Duration::from_millis(1);
const ASK_AGAIN: Duration = Duration::from_millis(50);

impl HostRings {
    /// The rings of this host. `None` if it has too many ranks.
    pub fn new(host: &Arc<Host>, hosts: &Hosts, quic: &Arc<Quic>) -> Option<Self> {
        host.has_rings().then(|| Self {
            host: Arc::clone(host),
            hosts: hosts.clone(),
            quic: Arc::clone(quic),
            has_left: hosts.mine().iter().map(|_| AtomicBool::new(false)).collect(),
        })
    }

    fn context(&self) -> &Context {
        &self.quic.context
    }

    /// The index of a rank of this host. `None` for other ranks, and for this one.
    fn index_of(&self, rank: Rank) -> Option<usize> {
        let mine = self.hosts.mine();
        let index = match mine.get(rank.0) {
            Some(same) if *same == rank => rank.0,
            _ => mine.binary_search(&rank).ok()?,
        };
        (index != self.host.me()).then_some(index)
    }

    /// Delivers what a rank has written.
    fn deliver(&self, from: Rank, index: usize) {
        if self.host.is_message_there(index) {
            self.context().deliver_from_ring(from);
        }
    }

    /// Delivers what all ranks have written, and finds out which have left.
    fn progress(&self) {
        for (index, rank) in self.hosts.mine().iter().enumerate() {
            if index == self.host.me() {
                continue;
            }
            // Read first: it has written all its messages before.
            let has_left = self.host.has_left(index);
            self.deliver(*rank, index);
            if has_left && !self.has_left[index].swap(true, Ordering::Relaxed) {
                // A rank that leaves because of a fault has published it before.
                if let Some(fault) = self.context().published_by(*rank) {
                    self.context().learn(fault);
                }
                self.context().message_queues.gone(*rank, HAS_LEFT);
            }
        }
    }

    /// A wait for shared memory, which also ends when the communicator fails. The doorbell of this
    /// process does not ring for that by itself.
    async fn or_fault(&self, waits: impl Future<Output = Result<()>>) -> Result<()> {
        self.context().or_fault(waits).await?
    }

    async fn send_control(&self, to: Rank, message: ControlMessage) -> Result<()> {
        let mut ask_next = None;
        let waits = poll_fn(|context| {
            if self.context().message_queues.write_to_ring(to, &message) {
                return Poll::Ready(Ok(()));
            }
            // The receiver may wait for room in its own ring.
            self.progress();
            if let Some(lost) = self.context().message_queues.lost(to) {
                return Poll::Ready(Err(lost));
            }
            let now = Instant::now();
            if *ask_next.get_or_insert(now + PATIENCE) <= now {
                self.quic.ask_to_deliver(to);
                ask_next = Some(now + ASK_AGAIN);
            }
            doorbell::poll_again(context);
            Poll::Pending
        });
        self.or_fault(waits).await
    }

    /// Copies a payload into slots, as they become free.
    async fn send_payload(&self, index: usize, to: Rank, id: u64, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        let waits = poll_fn(|context| {
            while self.host.send_part(index, id, &mut rest) {
                if rest.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            if let Some(lost) = self.context().message_queues.lost(to) {
                return Poll::Ready(Err(lost));
            }
            doorbell::poll_again(context);
            Poll::Pending
        });
        self.or_fault(waits).await
    }

    /// Copies a payload out of slots, as its parts arrive.
    async fn recv_payload(&self, index: usize, from: Rank, id: u64, into: &mut [u8]) -> Result<()> {
        let mut rest = into;
        let waits = poll_fn(|context| {
            loop {
                // Read first: a rank that leaves has written all its payloads before.
                let lost = self.context().message_queues.lost(from);
                match (self.host.receive_part(index, id, &mut rest), lost) {
                    (PayloadPart::Read, _) if rest.is_empty() => return Poll::Ready(Ok(())),
                    (PayloadPart::Read, _) => {}
                    (PayloadPart::Malformed, _) => {
                        let what = format!("sent a malformed payload of message {id}");
                        return Poll::Ready(Err(Error::Protocol { peer: from, what }));
                    }
                    (PayloadPart::NotThere | PayloadPart::OfMessage(_), Some(lost)) => {
                        return Poll::Ready(Err(lost));
                    }
                    (PayloadPart::NotThere | PayloadPart::OfMessage(_), None) => {
                        doorbell::poll_again(context);
                        return Poll::Pending;
                    }
                }
            }
        });
        self.or_fault(waits).await
    }
}

impl ProcessMessages {
    fn is_self(&self, rank: Rank) -> bool {
        rank == self.quic.context.me.rank
    }

    /// The rings, and the index of a rank in them. `None` for a rank of another host.
    fn ring(&self, rank: Rank) -> Option<(&HostRings, usize)> {
        let rings = self.rings.get()?;
        Some((rings, rings.index_of(rank)?))
    }
}

impl Messages for ProcessMessages {
    fn message_queues(&self) -> &Arc<MessageQueues> {
        &self.quic.context.message_queues
    }

    fn connect(&self, peer: Rank) {
        // The death of a rank of this host is known without a link to it.
        if self.ring(peer).is_none() {
            self.quic.connect(peer);
        }
    }

    fn are_in_memory(&self, peer: Rank) -> bool {
        self.ring(peer).is_some()
    }

    fn progress(&self) {
        if let Some(rings) = self.rings.get() {
            rings.progress();
        }
    }

    fn send_at_once(&self, outgoing: &Outgoing<'_>) -> bool {
        self.message_queues().send_at_once(outgoing)
    }

    fn receive_at_once(&self, incoming: &mut Incoming<'_>) -> bool {
        let Some(rings) = self.rings.get() else { return false };
        let queues = self.message_queues();
        match incoming.call.wanted.source {
            None => rings.host.spin_and_yield_until(|| {
                rings.progress();
                queues.receive_at_once(incoming)
            }),
            Some(from) => {
                let Some(index) = rings.index_of(from) else { return false };
                queues.receive_at_once(incoming)
                    || rings.host.spin_and_yield_until(|| rings.host.is_message_there(index))
                        && queues.receive_at_once(incoming)
            }
        }
    }

    fn publish_payload(&self, to: Rank, bytes: &[u8]) -> Option<Location> {
        let (rings, _) = self.ring(to)?;
        rings.host.location(bytes)
    }

    fn give_up(&self) {
        if let Some(rings) = self.rings.get() {
            rings.host.give_up();
        }
    }

    fn read_payload(&self, from: Rank, location: Location, into: &mut [u8]) -> bool {
        let (rings, index) = self.ring(from).expect("only a ring has carried a location");
        // A sender that has given up may have overwritten it meanwhile.
        rings.host.read_message(index, location, into) && !rings.host.has_given_up(index)
    }

    fn send_control(&self, to: Rank, message: ControlMessage) -> SendIo<'_, Result<()>> {
        if let Some((rings, _)) = self.ring(to) {
            return Box::pin(rings.send_control(to, message));
        }
        if !self.is_self(to) {
            return Box::pin(self.quic.send_control(to, message));
        }
        Box::pin(async move {
            let broken = |what| Error::Protocol { peer: to, what };
            self.message_queues().deliver(to, message).map_err(broken)
        })
    }

    fn send_payload<'a>(&'a self, to: Rank, id: u64, bytes: &'a [u8]) -> SendIo<'a, Result<()>> {
        if let Some((rings, index)) = self.ring(to) {
            return Box::pin(rings.send_payload(index, to, id, bytes));
        }
        if !self.is_self(to) {
            return Box::pin(self.quic.send_payload(to, id, bytes));
        }
        let key = Key { from: to, to, id };
        Box::pin(
            self.message_queues()
                .payloads()
                .send(key, bytes, move || self.message_queues().lost(to)),
        )
    }

    fn recv_payload<'a>(
        &'a self,
        from: Rank,
        id: u64,
        into: &'a mut [u8],
    ) -> SendIo<'a, Result<()>> {
        if let Some((rings, index)) = self.ring(from) {
            return Box::pin(rings.recv_payload(index, from, id, into));
        }
        if !self.is_self(from) {
            return Box::pin(self.quic.recv_payload(from, id, into));
        }
        let key = Key { from, to: from, id };
        Box::pin(
            self.message_queues()
                .payloads()
                .recv(key, into, move || self.message_queues().lost(from)),
        )
    }
}
