//! Short messages that need no future: a send that waits for nothing, and a receive of a message
//! that has arrived.
//!
//! Leaves to the caller how long to wait for a message. Invariant: an attempt that does not succeed
//! has changed nothing, and one that does has taken no message before its turn.

use super::super::control_message::{ControlMessage, EAGER, Protocol};
use super::super::peer_messages::{CREDIT, RETURNED};
use super::{MessageQueues, OVERHEAD, QueuesState, SendTurn};
use crate::matching::{Arrival, Next};
use crate::message::{Envelope, Incoming, Outgoing, RecvCall};
use crate::rank::Rank;

impl MessageQueues {
    /// Sends an eager message through a ring, if nothing must be waited for: no earlier send, no
    /// credit and no room.
    #[inline]
    pub fn send_at_once(&self, outgoing: &Outgoing<'_>) -> bool {
        let Outgoing { to, envelope, bytes, synchronous } = outgoing;
        let mut state = self.lock();
        let is_alive = state.fault.is_none();
        let (peer, cost) = (state.peers.of(*to), OVERHEAD + bytes.len());
        let is_free = is_alive && peer.gone.is_none() && peer.turns.is_empty();
        let is_eager = bytes.len() <= EAGER && cost <= peer.credit && !synchronous;
        let Some(ring) = peer.ring.as_mut().filter(|_| is_free && is_eager) else { return false };
        if !ring.write(&ControlMessage::eager_head(peer.next_id, envelope), bytes) {
            return false;
        }
        peer.credit -= cost;
        peer.next_id += 1;
        true
    }

    /// Takes the credit for an eager message whose turn it is, if it needs no CTS and waits for
    /// nothing. Returns its id; the caller must deliver it before it drops the turn.
    pub fn permit_at_once(&self, turn: &SendTurn, outgoing: &Outgoing<'_>) -> Option<u64> {
        let mut state = self.lock();
        let is_alive = state.lost(turn.to).is_none();
        let (peer, cost) = (state.peers.of(turn.to), OVERHEAD + outgoing.bytes.len());
        let is_first = peer.turns.front().is_some_and(|(number, _)| *number == turn.number);
        let is_eager = outgoing.bytes.len() <= EAGER && cost <= peer.credit;
        if !is_alive || !is_first || !is_eager || outgoing.synchronous {
            return None;
        }
        peer.credit -= cost;
        let id = peer.next_id;
        peer.next_id += 1;
        Some(id)
    }

    /// Receives an eager message that has arrived, and reports it, without posting the receive: out
    /// of the unexpected queue, or straight out of the ring of its source. False if there is none,
    /// if another receive or message comes first, or if credit must be returned over a network.
    #[inline]
    pub fn receive_at_once(&self, incoming: &mut Incoming<'_>) -> bool {
        let mut state = self.lock();
        let taken = state.take_eager(&incoming.call, incoming.into);
        drop(state);
        // The report stays with a receive that goes on elsewhere.
        if let Some((source, envelope)) = taken
            && let Some(report) = incoming.report.take()
        {
            report(source, envelope);
        }
        taken.is_some()
    }
}

impl QueuesState {
    /// See `MessageQueues::receive_at_once`.
    #[inline]
    fn take_eager(&mut self, call: &RecvCall, into: &mut [u8]) -> Option<(Rank, Envelope)> {
        if self.fault.is_some() {
            return None;
        }
        let (source, envelope) = match self.matching.next(&call.wanted) {
            Next::Unexpected(arrival) => {
                let Arrival { source, envelope, .. } = *arrival;
                let Protocol::Eager { payload, wants_cts: false } = &arrival.rest.protocol else {
                    return None;
                };
                let peer = self.peers.of(source);
                let is_simple = peer.ring.is_some() || peer.owed + OVERHEAD + EAGER < RETURNED;
                if !is_simple || !call.agrees_with(&envelope) {
                    return None;
                }
                into[..payload.len()].copy_from_slice(payload);
                self.matching.take_next(&call.wanted);
                (source, envelope)
            }
            Next::Arriving => {
                let source = call.wanted.source?;
                let peer = self.peers.of(source);
                let ring = peer.ring.as_mut()?;
                let (id, envelope) = ControlMessage::eager(&ring.next()?)?;
                let cost = OVERHEAD + envelope.bytes();
                let is_allowed = id == peer.next_arrival && peer.used + cost <= CREDIT;
                let is_wanted = call.wanted.takes(source, envelope.tag);
                if !is_allowed || !is_wanted || !call.agrees_with(&envelope) {
                    return None;
                }
                ring.take(&mut into[..envelope.bytes()]);
                peer.next_arrival += 1;
                peer.used += cost;
                (source, envelope)
            }
            Next::Posted => return None,
        };
        self.peers.of(source).owe(OVERHEAD + envelope.bytes());
        Some((source, envelope))
    }
}
