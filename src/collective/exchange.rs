//! The verbs of the algorithms: one call's messages over a mesh.
//!
//! Adds to each message the header that every rank must agree on. Invariant: at most one send to
//! and one receive from a peer is under way at a time, so the lane keeps them in order.

use super::passes;
use crate::error::Result;
use crate::op::{Call, Reducer};
use crate::rank::{Place, Rank};
use crate::reduce::Side;
use crate::transport::{Header, Lane, Mesh, Past};

/// One call under way on this rank.
pub struct Exchange<'a, M> {
    mesh: &'a M,
    lane: Lane,
    seq: u64,
    call: Call,
    past: Past,
}

impl<'a, M: Mesh> Exchange<'a, M> {
    /// Call number `seq`, with those before it.
    pub fn new(mesh: &'a M, lane: Lane, seq: u64, call: Call, past: Past) -> Self {
        Self { mesh, lane, seq, call, past }
    }

    pub fn place(&self) -> Place {
        self.mesh.place()
    }

    pub async fn send(&self, to: Rank, step: usize, bytes: &[u8]) -> Result<()> {
        self.mesh.send(self.lane, to, &self.header(step, bytes.len()), bytes).await
    }

    pub async fn recv(&self, from: Rank, step: usize, into: &mut [u8]) -> Result<()> {
        let header = self.header(step, into.len());
        self.mesh.recv(self.lane, from, &header, into, <[u8]>::copy_from_slice).await
    }

    /// Receives and folds what arrives into `into`, part by part. `side` says which operand it is.
    pub async fn recv_fold(
        &self,
        from: Rank,
        step: usize,
        reducer: &Reducer,
        side: Side,
        into: &mut [u8],
    ) -> Result<()> {
        let header = self.header(step, into.len());
        let land = |into: &mut [u8], part: &[u8]| reducer.fold(into, part, side);
        self.mesh.recv(self.lane, from, &header, into, land).await
    }

    /// Receives a message from every other rank and folds them all, with this rank's own, in the
    /// order of ranks.
    pub async fn recv_fold_all(
        &self,
        reducer: &Reducer,
        own: &[u8],
        into: &mut [u8],
    ) -> Result<()> {
        let place = self.place();
        match place.rank {
            Rank(0) => passes::copy(own, into).await,
            _ => self.recv(Rank(0), 0, into).await?,
        }
        for peer in (1..place.size).map(Rank) {
            if peer == place.rank {
                passes::fold(reducer, into, own, Side::Right).await;
            } else {
                self.recv_fold(peer, 0, reducer, Side::Right, into).await?;
            }
        }
        Ok(())
    }

    fn header(&self, step: usize, bytes: usize) -> Header {
        Header { seq: self.seq, call: self.call, past: self.past, step: step as u32, bytes }
    }
}
