//! What the message queues know of each peer: credit in both directions, the order of sends, and
//! the messages that wait for a CTS.
//!
//! Leaves to `message_queues` every change. Invariant: the credit of a peer is never more than
//! `CREDIT`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::task::Waker;

use crate::rank::Rank;

use super::control_message::ControlMessage;
use super::peer_ring::PeerRing;

/// Memory that the unreceived messages of one sender may take up at one receiver.
pub const CREDIT: usize = 256 << 10;

/// Credit is returned once this many bytes of it are owed. A sender whose messages were all
/// received has at least the rest, which suffices for any one message.
pub const RETURNED: usize = CREDIT / 2;

/// By rank. An entry is created when it is first needed.
#[derive(Default)]
pub struct AllPeers(Vec<Option<Box<PeerMessages>>>);

impl AllPeers {
    #[inline]
    pub fn of(&mut self, rank: Rank) -> &mut PeerMessages {
        if !matches!(self.0.get(rank.0), Some(Some(_))) {
            self.create(rank);
        }
        self.0[rank.0].as_mut().expect("it was created")
    }

    #[cold]
    fn create(&mut self, rank: Rank) {
        if self.0.len() <= rank.0 {
            self.0.resize_with(rank.0 + 1, || None);
        }
        self.0[rank.0] = Some(Box::default());
    }

    pub fn get(&self, rank: Rank) -> Option<&PeerMessages> {
        self.0.get(rank.0)?.as_deref()
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut PeerMessages> {
        self.0.iter_mut().flatten().map(AsMut::as_mut)
    }
}

/// A message that waits for the answer of its receiver.
#[derive(Default)]
pub struct Awaited {
    pub answer: Option<Answer>,
    pub waker: Option<Waker>,
}

/// What a receiver answers once the message has matched a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// CTS: the sender sends the payload, unless the message was eager.
    ClearToSend,
    /// The receiver has read the payload where it is.
    PayloadRead,
}

/// The messages between this rank and one peer.
pub struct PeerMessages {
    /// The credit that this rank still has at the peer.
    pub credit: usize,
    /// The id of the next message to the peer.
    pub next_id: u64,
    /// Sends that have not sent their control message yet, by number, in the order issued.
    pub turns: VecDeque<(u64, Option<Waker>)>,
    pub next_turn: u64,
    /// Messages to the peer whose sends wait for its answer, by id.
    pub awaited: HashMap<u64, Awaited>,
    /// The id of the next message from the peer.
    pub next_arrival: u64,
    /// The credit that the peer has used here, and the part of it to be returned.
    pub used: usize,
    pub owed: usize,
    /// Ids of the messages for which this rank has sent a CTS.
    pub expected: HashSet<u64>,
    /// Carries the control messages, if the peer is on this host.
    pub ring: Option<Box<dyn PeerRing>>,
    /// How the peer was lost, if it was.
    pub gone: Option<String>,
}

impl Default for PeerMessages {
    fn default() -> Self {
        Self {
            credit: CREDIT,
            next_id: 0,
            turns: VecDeque::new(),
            next_turn: 0,
            awaited: HashMap::new(),
            next_arrival: 0,
            used: 0,
            owed: 0,
            expected: HashSet::new(),
            ring: None,
            gone: None,
        }
    }
}

impl PeerMessages {
    /// Stores the answer to a message. Returns the waker of the send that waits for it. The error
    /// says how the answer violates the protocol.
    pub fn answer(&mut self, id: u64, answer: Answer) -> Result<Option<Waker>, String> {
        match self.awaited.get_mut(&id) {
            Some(Awaited { answer: found @ None, waker }) => {
                *found = Some(answer);
                Ok(waker.take())
            }
            _ => Err(format!("answered message {id}, which awaits none")),
        }
    }

    /// Frees the memory of a message that was received. Returns the credit through the ring once
    /// enough is owed, if the ring has room; else a later message does.
    pub fn owe(&mut self, cost: usize) {
        self.owed += cost;
        if self.owed >= RETURNED
            && let Some(ring) = &mut self.ring
        {
            let credit = ControlMessage::Credit { bytes: self.owed };
            if ring.write(&credit.head(), credit.payload()) {
                self.used -= std::mem::take(&mut self.owed);
            }
        }
    }

    /// Takes the waker of the send whose turn it is.
    pub fn first_turn(&mut self) -> Option<Waker> {
        self.turns.front_mut().and_then(|(_, waker)| waker.take())
    }
}
