//! The messages of one rank of a communicator. Incoming: the unexpected queue, the posted receives
//! and the probes that wait. Outgoing: their order, the credit at each peer, and the payloads that
//! have a CTS.
//!
//! Leaves to the mesh how control messages are sent, and to `messaging` what a send and a receive
//! consist of. Invariants:
//! - all state is behind one lock, no other lock is taken inside it, and wakers are woken outside
//!   it;
//! - a future may be polled by one task and then by another: the latest waker is kept;
//! - whatever a peer sends, its unreceived messages take up at most `CREDIT` bytes here;
//! - every wait ends when the communicator fails or the awaited peer is lost; a message that has
//!   arrived can still be received.

mod at_once;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::{Error, Result};
use crate::matching::{Arrival, Matched, Matching, Post, Posted};
use crate::message::{Envelope, RecvCall, Wanted};
use crate::rank::{Rank, RankOf};

use super::control_message::{ControlMessage, EAGER, Protocol};
use super::payloads::Payloads;
use super::peer_messages::{AllPeers, Answer, Awaited, CREDIT, RETURNED};
use super::peer_ring::{MOST_MESSAGES, PeerRing};

/// The credit that a message costs besides its payload.
pub const OVERHEAD: usize = 128;

const _: () = assert!(OVERHEAD + EAGER <= CREDIT - RETURNED);

pub struct MessageQueues {
    me: RankOf,
    state: Mutex<QueuesState>,
    /// Payloads between ranks of this process.
    payloads: Arc<Payloads>,
}

/// The parts of an arrived message besides its source and envelope.
pub struct Rest {
    pub id: u64,
    pub protocol: Protocol,
}

/// A message that a receive has matched.
pub type MatchedMessage = Arrival<Rest>;

enum Outcome {
    Matched(Arrival<Rest>),
    /// Source and envelope of a message that exceeds the receive's capacity.
    TooLong(Rank, Envelope),
}

#[derive(Default)]
struct QueuesState {
    matching: Matching<Rest>,
    /// Posted receives, with the outcome of each that has completed.
    receives: HashMap<Posted, (Option<Outcome>, Option<Waker>)>,
    /// Probes that wait, by number.
    probes: HashMap<u64, (Wanted, Waker)>,
    next_probe: u64,
    peers: AllPeers,
    fault: Option<Error>,
}

impl Protocol {
    /// The credit that a message costs at its receiver.
    pub fn cost(&self) -> usize {
        match self {
            Self::Eager { payload, .. } => OVERHEAD + payload.len(),
            Self::Rendezvous { .. } => OVERHEAD,
        }
    }
}

impl MessageQueues {
    pub fn new(me: RankOf) -> Self {
        Self::with_payloads(me, Arc::default())
    }

    /// The queues of one of several ranks of this process, which share `payloads`.
    pub fn with_payloads(me: RankOf, payloads: Arc<Payloads>) -> Self {
        Self { me, state: Mutex::default(), payloads }
    }

    /// The payloads between ranks of this process.
    pub fn payloads(&self) -> &Payloads {
        &self.payloads
    }

    /// Control messages between this rank and `peer` travel through this ring from now on.
    pub fn add_ring(&self, peer: Rank, ring: Box<dyn PeerRing>) {
        self.lock().peers.of(peer).ring = Some(ring);
    }

    /// Sends a control message through the ring to a rank. False if there is no room for it.
    pub fn write_to_ring(&self, to: Rank, message: &ControlMessage) -> bool {
        let mut state = self.lock();
        let ring = state.peers.of(to).ring.as_mut();
        ring.is_some_and(|ring| ring.write(&message.head(), message.payload()))
    }

    /// Delivers the messages of a rank that have arrived in its ring, if it has one. The error says
    /// how a message violates the protocol.
    pub fn deliver_from_ring(&self, from: Rank) -> std::result::Result<(), String> {
        let mut state = self.lock();
        let mut wakers = Vec::new();
        let mut delivered = Ok(());
        // A peer that keeps the protocol has no more. Another one could write as fast as this
        // thread reads, and keep it here beyond its deadline.
        for _ in 0..MOST_MESSAGES {
            let Some(message) = state.next_in_ring(from) else { break };
            delivered = message.and_then(|message| state.deliver(from, message, &mut wakers));
            if delivered.is_err() {
                break;
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        delivered
    }

    /// Processes a control message of `from`. Those of one rank must be delivered in the order
    /// sent. The error says how the message violates the protocol.
    pub fn deliver(&self, from: Rank, message: ControlMessage) -> std::result::Result<(), String> {
        let mut wakers = Vec::new();
        let delivered = self.lock().deliver(from, message, &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
        delivered
    }

    /// The communicator has failed: every wait ends.
    pub fn fail(&self, fault: Error) {
        let mut state = self.lock();
        state.fault.get_or_insert(fault);
        let wakers = state.all_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        self.payloads.wake();
    }

    /// `peer` is lost or has left: it sends no further control message and accepts none.
    pub fn gone(&self, peer: Rank, how: &str) {
        let mut state = self.lock();
        state.peers.of(peer).gone.get_or_insert_with(|| how.to_owned());
        let wakers = state.all_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        self.payloads.wake();
    }

    /// The fault of the communicator, or the loss of `peer`.
    pub fn lost(&self, peer: Rank) -> Option<Error> {
        self.lock().lost(peer)
    }

    /// Posts a receive: it matches an unexpected message, or a later one.
    pub fn post(self: &Arc<Self>, call: RecvCall) -> Receive {
        let mut state = self.lock();
        let (posted, outcome) = match state.matching.post(call) {
            Post::Matched(arrival) => (None, Some(Outcome::Matched(arrival))),
            Post::TooLong(source, envelope) => (None, Some(Outcome::TooLong(source, envelope))),
            Post::Waits(posted) => {
                state.receives.insert(posted, (None, None));
                (Some(posted), None)
            }
        };
        Receive { message_queues: Arc::clone(self), call, posted, outcome }
    }

    /// Source and envelope of the first message that a receive would find now. Fails if there is
    /// none and none can arrive.
    pub fn look(&self, wanted: &Wanted) -> Result<Option<(Rank, Envelope)>> {
        self.lock().look(wanted, self.me)
    }

    /// A probe, which waits until a receive would find a message.
    pub fn probe(&self, wanted: Wanted) -> Probe<'_> {
        let mut state = self.lock();
        let number = state.next_probe;
        state.next_probe += 1;
        Probe { message_queues: self, wanted, number }
    }

    /// Frees the memory of a message of `from` that was received. Returns the credit that the
    /// caller must return to `from` now, if any.
    pub fn settle(&self, from: Rank, cost: usize) -> Option<usize> {
        let mut state = self.lock();
        let peer = state.peers.of(from);
        peer.owed += cost;
        if peer.owed < RETURNED {
            return None;
        }
        peer.used -= peer.owed;
        Some(std::mem::take(&mut peer.owed))
    }

    /// Queues a send behind all sends to `to` that were issued before.
    pub fn turn(self: &Arc<Self>, to: Rank) -> SendTurn {
        let mut state = self.lock();
        let peer = state.peers.of(to);
        let number = peer.next_turn;
        peer.next_turn += 1;
        peer.turns.push_back((number, None));
        SendTurn { message_queues: Arc::clone(self), to, number }
    }

    /// Waits for the answer to message `id` of its receiver.
    pub async fn answered(&self, to: Rank, id: u64) -> Result<Answer> {
        poll_fn(|context| {
            let mut state = self.lock();
            let lost = state.lost(to);
            let peer = state.peers.of(to);
            let awaited = peer.awaited.get_mut(&id).expect("a send awaits its answer once");
            match (awaited.answer, lost) {
                (Some(answer), _) => {
                    peer.awaited.remove(&id);
                    Poll::Ready(Ok(answer))
                }
                (None, Some(lost)) => Poll::Ready(Err(lost)),
                (None, None) => {
                    awaited.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Allows `from` to send the payload of message `id`, until the returned value is dropped.
    pub fn expect(&self, from: Rank, id: u64) -> ExpectedPayload<'_> {
        self.lock().peers.of(from).expected.insert(id);
        ExpectedPayload { message_queues: self, from, id }
    }

    /// Whether `from` may send the payload of message `id`.
    pub fn expects(&self, from: Rank, id: u64) -> bool {
        self.lock().peers.get(from).is_some_and(|peer| peer.expected.contains(&id))
    }

    fn lock(&self) -> MutexGuard<'_, QueuesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuesState {
    /// Consumes the next message in the ring from a rank. The error says how it violates the
    /// protocol.
    fn next_in_ring(&mut self, from: Rank) -> Option<std::result::Result<ControlMessage, String>> {
        let ring = self.peers.of(from).ring.as_mut()?;
        let message = ControlMessage::decode_shared(&ring.next()?);
        let taken = message.map(|mut message| {
            ring.take(message.payload_mut());
            message
        });
        Some(taken.ok_or_else(|| "sent a malformed control message".to_owned()))
    }

    /// As `MessageQueues::deliver`. Adds the wakers to wake outside the lock.
    fn deliver(
        &mut self,
        from: Rank,
        message: ControlMessage,
        wakers: &mut Vec<Waker>,
    ) -> std::result::Result<(), String> {
        let peer = self.peers.of(from);
        let waker = match message {
            ControlMessage::Message { id, envelope, protocol } => {
                if id != peer.next_arrival {
                    let expected = peer.next_arrival;
                    return Err(format!("sent message {id} where {expected} was expected"));
                }
                peer.next_arrival += 1;
                peer.used += protocol.cost();
                if peer.used > CREDIT {
                    return Err(format!("sent {} bytes beyond its credit", peer.used - CREDIT));
                }
                let arrival = Arrival { source: from, envelope, rest: Rest { id, protocol } };
                let Matched { exceeded, by } = self.matching.arrive(arrival);
                for posted in exceeded {
                    wakers.extend(self.complete(posted, Outcome::TooLong(from, envelope)));
                }
                match by {
                    Some((posted, arrival)) => self.complete(posted, Outcome::Matched(arrival)),
                    None => {
                        wakers.extend(self.probes_of(from, &envelope));
                        None
                    }
                }
            }
            ControlMessage::ClearToSend { id } => peer.answer(id, Answer::ClearToSend)?,
            ControlMessage::PayloadRead { id } => peer.answer(id, Answer::PayloadRead)?,
            ControlMessage::Credit { bytes } => {
                peer.credit = peer.credit.saturating_add(bytes);
                if peer.credit > CREDIT {
                    return Err(format!("returned {bytes} bytes of credit that were not used"));
                }
                peer.first_turn()
            }
        };
        wakers.extend(waker);
        Ok(())
    }

    fn lost(&self, peer: Rank) -> Option<Error> {
        let gone = || self.peers.get(peer)?.gone.clone();
        self.fault.clone().or_else(|| gone().map(|how| Error::PeerLost { peer, how }))
    }

    /// Completes a posted receive. Returns the waker of the task that waits for it.
    fn complete(&mut self, posted: Posted, outcome: Outcome) -> Option<Waker> {
        let receive = self.receives.entry(posted).or_default();
        receive.0 = Some(outcome);
        receive.1.take()
    }

    /// The wakers of the probes that find a message.
    fn probes_of(&self, source: Rank, envelope: &Envelope) -> impl Iterator<Item = Waker> {
        let tag = envelope.tag;
        let finds = move |(wanted, _): &&(Wanted, Waker)| wanted.takes(source, tag);
        self.probes.values().filter(finds).map(|(_, waker)| waker.clone())
    }

    fn look(&self, wanted: &Wanted, me: RankOf) -> Result<Option<(Rank, Envelope)>> {
        match self.matching.look(wanted) {
            Some(arrival) => Ok(Some((arrival.source, arrival.envelope))),
            None => self.hopeless(wanted, me).map_or(Ok(None), Err),
        }
    }

    /// The error of a receive that can match no further message. `None` if it still can.
    fn hopeless(&self, wanted: &Wanted, me: RankOf) -> Option<Error> {
        if let Some(source) = wanted.source {
            return self.lost(source);
        }
        let others = || (0..me.size).map(Rank).filter(|rank| *rank != me.rank);
        let any_left = others().any(|rank| self.lost(rank).is_none());
        // Alone, a rank may still send to itself.
        if any_left || me.size == 1 {
            self.fault.clone()
        } else {
            others().find_map(|rank| self.lost(rank))
        }
    }

    fn all_wakers(&mut self) -> Vec<Waker> {
        let receives = self.receives.values_mut().filter_map(|(_, waker)| waker.take());
        let peers = self.peers.all().flat_map(|peer| {
            let turns = peer.turns.iter_mut().filter_map(|(_, waker)| waker.take());
            turns.chain(peer.awaited.values_mut().filter_map(|awaited| awaited.waker.take()))
        });
        let probes = self.probes.values().map(|(_, waker)| waker.clone());
        receives.chain(peers).chain(probes).collect()
    }
}

/// A posted receive. Dropping it cancels it.
pub struct Receive {
    message_queues: Arc<MessageQueues>,
    call: RecvCall,
    posted: Option<Posted>,
    outcome: Option<Outcome>,
}

impl Receive {
    /// Waits until the receive matches a message. Fails if that message exceeds its capacity.
    pub async fn matched(&mut self) -> Result<MatchedMessage> {
        poll_fn(|context| self.poll(context)).await
    }

    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Result<MatchedMessage>> {
        if let Some(outcome) = self.outcome.take() {
            return Poll::Ready(self.result(outcome));
        }
        let mut state = self.message_queues.lock();
        let hopeless = state.hopeless(&self.call.wanted, self.message_queues.me);
        let receive = self.posted.and_then(|posted| state.receives.get_mut(&posted));
        let (outcome, waker) = receive.expect("a receive that has completed is not polled again");
        if let Some(outcome) = outcome.take() {
            self.posted.take().map(|posted| state.receives.remove(&posted));
            drop(state);
            return Poll::Ready(self.result(outcome));
        }
        if let Some(error) = hopeless {
            return Poll::Ready(Err(error));
        }
        *waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn result(&self, outcome: Outcome) -> Result<MatchedMessage> {
        match outcome {
            Outcome::Matched(arrival) => Ok(arrival),
            Outcome::TooLong(from, sent) => {
                let to = self.message_queues.me.rank;
                Err(Error::TooLong { from, sent, to, call: self.call })
            }
        }
    }

    /// Cancels the receive. Returns it if it has completed.
    #[cfg(feature = "testing")]
    pub fn cancel(mut self) -> Option<Self> {
        (self.outcome.is_some() || !self.withdraw()).then_some(self)
    }

    /// Withdraws the receive. False if it has completed.
    pub fn withdraw(&mut self) -> bool {
        let Some(posted) = self.posted else { return false };
        let mut state = self.message_queues.lock();
        let cancelled = state.matching.cancel(posted);
        if cancelled {
            state.receives.remove(&posted);
            self.posted = None;
        }
        cancelled
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        if !self.withdraw()
            && let Some(posted) = self.posted
        {
            self.message_queues.lock().receives.remove(&posted);
        }
    }
}

/// A probe that waits. Dropping it ends it.
pub struct Probe<'a> {
    message_queues: &'a MessageQueues,
    wanted: Wanted,
    number: u64,
}

impl Probe<'_> {
    /// Waits until a receive would find a message. Returns its source and envelope.
    pub async fn found(&self) -> Result<(Rank, Envelope)> {
        poll_fn(|context| {
            let mut state = self.message_queues.lock();
            match state.look(&self.wanted, self.message_queues.me).transpose() {
                Some(result) => Poll::Ready(result),
                None => {
                    state.probes.insert(self.number, (self.wanted, context.waker().clone()));
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.message_queues.lock().probes.remove(&self.number);
    }
}

/// The position of a send in the queue to one peer. Dropping it lets the next send proceed.
pub struct SendTurn {
    message_queues: Arc<MessageQueues>,
    to: Rank,
    number: u64,
}

/// Permission to send one message, and its id.
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    pub id: u64,
    /// Whether the payload is sent with the envelope.
    pub eager: bool,
}

impl SendTurn {
    /// Waits until all earlier sends have sent their control messages and this rank has credit at
    /// the peer for one more: for `bytes` bytes of payload too, if the message is short enough to
    /// be eager. `synchronous`: an eager send, too, will wait for its CTS.
    pub async fn permit(&self, bytes: usize, synchronous: bool) -> Result<Permit> {
        poll_fn(|context| self.poll(context, bytes, synchronous)).await
    }

    fn poll(&self, context: &Context<'_>, bytes: usize, synchronous: bool) -> Poll<Result<Permit>> {
        let mut state = self.message_queues.lock();
        if let Some(lost) = state.lost(self.to) {
            return Poll::Ready(Err(lost));
        }
        let peer = state.peers.of(self.to);
        let is_first = peer.turns.front().is_some_and(|(number, _)| *number == self.number);
        let eager = bytes <= EAGER && OVERHEAD + bytes <= peer.credit;
        let cost = if eager { OVERHEAD + bytes } else { OVERHEAD };
        if !is_first || cost > peer.credit {
            let mine = peer.turns.binary_search_by_key(&self.number, |(number, _)| *number);
            let mine = mine.expect("only a dropped turn leaves the queue");
            peer.turns[mine].1 = Some(context.waker().clone());
            return Poll::Pending;
        }
        peer.credit -= cost;
        let id = peer.next_id;
        peer.next_id += 1;
        if !eager || synchronous {
            peer.awaited.insert(id, Awaited::default());
        }
        Poll::Ready(Ok(Permit { id, eager }))
    }
}

impl Drop for SendTurn {
    fn drop(&mut self) {
        let mut state = self.message_queues.lock();
        let peer = state.peers.of(self.to);
        match peer.turns.front() {
            Some((number, _)) if *number == self.number => drop(peer.turns.pop_front()),
            _ => peer.turns.retain(|(number, _)| *number != self.number),
        }
        let next = peer.first_turn();
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

/// Allows a peer to send the payload of a message.
pub struct ExpectedPayload<'a> {
    message_queues: &'a MessageQueues,
    from: Rank,
    id: u64,
}

impl Drop for ExpectedPayload<'_> {
    fn drop(&mut self) {
        let mut state = self.message_queues.lock();
        state.peers.of(self.from).expected.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::control_message::CONTROL_HEAD_BYTES;
    use super::*;

    /// A ring whose writer is always faster than its reader. Counts what was read.
    struct Endless(Arc<AtomicUsize>);

    impl PeerRing for Endless {
        fn write(&mut self, _: &[u8; CONTROL_HEAD_BYTES], _: &[u8]) -> bool {
            false
        }

        fn next(&self) -> Option<[u8; CONTROL_HEAD_BYTES]> {
            assert!(self.0.load(Ordering::Relaxed) < 100_000, "the reader reads on");
            Some(ControlMessage::Credit { bytes: 0 }.head())
        }

        fn take(&mut self, _: &mut [u8]) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_rank_that_writes_messages_without_end_keeps_no_reader_for_ever() {
        let queues = MessageQueues::new(RankOf::new(Rank(0), 2));
        let read = Arc::new(AtomicUsize::new(0));
        queues.add_ring(Rank(1), Box::new(Endless(Arc::clone(&read))));
        assert_eq!(queues.deliver_from_ring(Rank(1)), Ok(()));
        assert_eq!(read.load(Ordering::Relaxed), MOST_MESSAGES);
    }
}
