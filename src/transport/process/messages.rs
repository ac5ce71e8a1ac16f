//! Messages of ranks that are processes: over QUIC to other ranks, and inside the process to this
//! rank itself.
//!
//! Leaves to `quic` the streams and to `payloads` the payloads inside the process.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::rank::Rank;

use super::super::messages::Messages;
use super::super::payloads::Key;
use super::super::quic::Quic;
use super::super::{ControlMessage, Io, MessageQueues};

pub(super) struct ProcessMessages {
    pub quic: Arc<Quic>,
}

impl ProcessMessages {
    fn is_self(&self, rank: Rank) -> bool {
        rank == self.quic.context.me.rank
    }
}

impl Messages for ProcessMessages {
    fn message_queues(&self) -> &MessageQueues {
        &self.quic.context.message_queues
    }

    fn connect(&self, peer: Rank) {
        self.quic.connect(peer);
    }

    fn send_control(&self, to: Rank, message: ControlMessage) -> Io<'_, Result<()>> {
        if !self.is_self(to) {
            return Box::pin(self.quic.send_control(to, message));
        }
        Box::pin(async move {
            let broken = |what| Error::Protocol { peer: to, what };
            self.message_queues().deliver(to, message).map_err(broken)
        })
    }

    fn send_payload<'a>(&'a self, to: Rank, id: u64, bytes: &'a [u8]) -> Io<'a, Result<()>> {
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

    fn recv_payload<'a>(&'a self, from: Rank, id: u64, into: &'a mut [u8]) -> Io<'a, Result<()>> {
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
