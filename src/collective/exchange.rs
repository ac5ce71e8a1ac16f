//! The verbs of the algorithms: one call's messages over a mesh.
//!
//! Adds to each message, and to what is published, the header that every rank must agree on. Leaves
//! to the mesh which link carries it. Invariant: at most one send to and one receive from a peer is
//! under way at a time, so the lane keeps them in order.

use std::cell::Cell;

use smallvec::SmallVec;

use super::passes;
use super::select::Topology;
use crate::error::{Error, Result};
use crate::op::{Call, Reducer};
use crate::rank::{Rank, RankOf};
use crate::reduce::{Side, Stores, copy};
use crate::transport::{
    Attempt, CallHistory, EPOCHS, EncodedHeader, Header, Hosts, Land, Lane, Mesh, Published,
    Readers, Started, View,
};

/// One call under way on this rank.
pub struct Exchange<'a> {
    mesh: &'a Mesh,
    /// The ranks that take part, if not all do. `me` and the ranks of messages are indices of it.
    ranks: Option<&'a [Rank]>,
    me: RankOf,
    lane: Lane,
    seq: u64,
    call: Call,
    history: CallHistory,
    /// The first epoch of the call, if the fast path has begun it, until it is used.
    started: Cell<Option<Started>>,
}

impl<'a> Exchange<'a> {
    /// Call number `seq`, with the history of the calls before it.
    pub fn new(mesh: &'a Mesh, lane: Lane, seq: u64, call: Call, history: CallHistory) -> Self {
        Self { mesh, ranks: None, me: mesh.me, lane, seq, call, history, started: Cell::new(None) }
    }

    /// Continues a call whose first epoch the fast path has begun.
    pub fn continue_from(self, started: Option<Started>) -> Self {
        Self { started: Cell::new(started), ..self }
    }

    pub fn me(&self) -> RankOf {
        self.me
    }

    /// The part of the call that some ranks, this one among them, execute among themselves.
    pub fn among<'b>(&'b self, ranks: &'b [Rank]) -> Exchange<'b> {
        let me = ranks.iter().position(|rank| *rank == self.mesh.me.rank);
        let me = RankOf::new(Rank(me.expect("this rank is one of them")), ranks.len());
        let Self { mesh, lane, seq, call, history, .. } = *self;
        let started = Cell::new(self.started.get());
        Exchange { mesh, ranks: Some(ranks), me, lane, seq, call, history, started }
    }

    /// The part of the call that the ranks of this host execute. `None` if this rank is alone.
    pub fn inside(&self) -> Option<Exchange<'_>> {
        let mine = self.mesh.hosts().mine();
        (mine.len() > 1).then(|| self.among(mine))
    }

    /// Which ranks share memory.
    pub fn hosts(&self) -> &'a Hosts {
        self.mesh.hosts()
    }

    /// The rank in the mesh of a rank that takes part.
    fn in_mesh(&self, rank: Rank) -> Rank {
        self.ranks.map_or(rank, |ranks| ranks[rank.0])
    }

    /// Where the ranks are.
    pub fn topology(&self) -> Topology {
        Topology::of(self.mesh.hosts())
    }

    pub async fn send(&self, to: Rank, step: usize, bytes: &[u8]) -> Result<()> {
        let header = self.header(step, bytes.len());
        self.mesh.lanes.send(self.lane, self.in_mesh(to), &header, bytes).await
    }

    pub async fn recv(&self, from: Rank, step: usize, into: &mut [u8]) -> Result<()> {
        self.recv_with(from, step, into, &mut <[u8]>::copy_from_slice).await
    }

    async fn recv_with(
        &self,
        from: Rank,
        step: usize,
        into: &mut [u8],
        land: &mut Land<'_>,
    ) -> Result<()> {
        let header = self.header(step, into.len());
        self.mesh.lanes.recv(self.lane, self.in_mesh(from), &header, into, land).await
    }

    /// Receives a message and folds it into `into`, part by part as it arrives. `side`: which
    /// operand the message is.
    pub async fn recv_fold(
        &self,
        from: Rank,
        step: usize,
        reducer: &Reducer,
        side: Side,
        into: &mut [u8],
    ) -> Result<()> {
        let mut land = |into: &mut [u8], part: &[u8]| reducer.fold(into, part, side);
        self.recv_with(from, step, into, &mut land).await
    }

    /// Receives a message from every other rank and folds all of them, with this rank's own data,
    /// in rank order.
    pub async fn recv_fold_all(
        &self,
        reducer: &Reducer,
        own: &[u8],
        into: &mut [u8],
    ) -> Result<()> {
        let me = self.me();
        match me.rank {
            Rank(0) => passes::copy(own, into).await,
            _ => self.recv(Rank(0), 0, into).await?,
        }
        for peer in (1..me.size).map(Rank) {
            if peer == me.rank {
                passes::fold(reducer, into, own, Side::Right).await;
            } else {
                self.recv_fold(peer, 0, reducer, Side::Right, into).await?;
            }
        }
        Ok(())
    }

    /// Fails if bytes that were viewed in the memory of other ranks may have changed meanwhile.
    pub async fn confirm(&self) -> Result<()> {
        let Some(host) = self.mesh.memory.host.as_deref() else { return Ok(()) };
        match host.confirm(self.lane) {
            Attempt::Done(()) => Ok(()),
            Attempt::Wait(fault) => fault.await,
        }
    }

    /// Begins epochs of this host. All its ranks begin the same.
    pub fn epochs(&self, step: usize, count: usize) -> Epochs<'_> {
        let begin = || self.mesh.host().begin_epochs(self.lane, count as u64);
        let Started { epoch: first, published } =
            self.started.take().unwrap_or_else(|| Started { epoch: begin(), published: false });
        let (encoded, in_place) = (Cell::new(None), SmallVec::new());
        Epochs { exchange: self, step, first, published, encoded, last_in_place: None, in_place }
    }

    /// The error if `pair` pass different lengths for the block that one sends to the other.
    pub fn lengths_differ(&self, pair: [Rank; 2], sent: usize, expected: usize) -> Error {
        let [from, to] = pair.map(|rank| self.in_mesh(rank));
        Error::Lengths { seq: self.seq, call: self.call, from, to, sent, expected }
    }

    fn header(&self, step: usize, bytes: usize) -> Header {
        Header { seq: self.seq, call: self.call, history: self.history, step: step as u32, bytes }
    }
}

/// Fewer bytes than this are read faster from another processor's cache than from memory.
const STREAMED: usize = 8 << 10;

/// How to store bytes for these readers.
fn stores_for(readers: Readers, bytes: usize) -> Stores {
    match readers {
        Readers::Far if bytes >= STREAMED => Stores::Streamed,
        _ => Stores::Cached,
    }
}

/// The epochs of one step, in which the ranks of this host view what the others publish.
pub struct Epochs<'a> {
    exchange: &'a Exchange<'a>,
    step: usize,
    first: u64,
    /// Whether the fast path has published the bytes of the first epoch, the only one then.
    published: bool,
    /// The encoded header that was used last.
    encoded: Cell<Option<EncodedHeader>>,
    /// The last epoch in which bytes were published in place.
    last_in_place: Option<u64>,
    /// Keeps the bytes of the latest epochs unchanged, which others may still view.
    in_place: SmallVec<[Published<'a>; EPOCHS]>,
}

impl<'a> Epochs<'a> {
    pub fn me(&self) -> RankOf {
        self.exchange.me
    }

    /// Publishes bytes, which `fill` writes, for all ranks of the host.
    pub async fn publish(
        &self,
        index: usize,
        bytes: usize,
        fill: impl FnOnce(&mut [u8], Stores),
    ) -> Result<()> {
        self.publish_part(index, bytes, bytes, fill).await
    }

    /// As `publish`, of a part of a message that has `whole` bytes.
    pub async fn publish_part(
        &self,
        index: usize,
        whole: usize,
        bytes: usize,
        fill: impl FnOnce(&mut [u8], Stores),
    ) -> Result<()> {
        let Exchange { mesh, lane, .. } = self.exchange;
        if self.published {
            return Ok(());
        }
        let (epoch, encoded, mut fill) =
            (self.first + index as u64, self.encoded(whole).of_part(bytes), Some(fill));
        let mut fill_once = |slot: &mut [u8], readers| {
            if let Some(fill) = fill.take() {
                fill(slot, stores_for(readers, bytes));
            }
        };
        loop {
            match mesh.host().publish(*lane, epoch, &encoded, &mut fill_once)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Wait(room) => room.await?,
            }
        }
    }

    /// As `publish`, without a copy where possible. The borrow keeps the bytes unchanged while
    /// `Epochs` exists.
    pub async fn publish_in_place(&mut self, index: usize, bytes: &'a [u8]) -> Result<()> {
        self.publish_part_in_place(index, bytes.len(), bytes).await
    }

    /// As `publish_in_place`, of a part of a message that has `whole` bytes.
    pub async fn publish_part_in_place(
        &mut self,
        index: usize,
        whole: usize,
        bytes: &'a [u8],
    ) -> Result<()> {
        let Exchange { mesh, lane, .. } = self.exchange;
        if self.published {
            return Ok(());
        }
        let epoch = self.first + index as u64;
        let encoded = self.encoded(whole).of_part(bytes.len());
        let in_place = loop {
            match mesh.host().publish_in_place(*lane, epoch, &encoded, bytes)? {
                Attempt::Done(in_place) => break in_place,
                Attempt::Wait(room) => room.await?,
            }
        };
        if let Some(in_place) = in_place {
            if self.in_place.len() == EPOCHS {
                // All ranks have released its epoch, or this one would have no free slot.
                self.in_place.remove(0);
            }
            self.in_place.push(in_place);
            self.last_in_place = Some(epoch);
            return Ok(());
        }
        self.publish_part(index, whole, bytes.len(), |slot, stores| copy(slot, bytes, stores)).await
    }

    /// Publishes the address of bytes, which others `read_remote`. The bytes must not be written
    /// until `wait_released` returns. False if other processes cannot read them.
    pub async fn publish_address(&mut self, index: usize, bytes: &[u8]) -> Result<bool> {
        let Exchange { mesh, lane, .. } = self.exchange;
        let (epoch, encoded) = (self.first + index as u64, self.encoded(bytes.len()));
        let can_be_read = loop {
            match mesh.host().publish_address(*lane, epoch, &encoded, bytes)? {
                Attempt::Done(can_be_read) => break can_be_read,
                Attempt::Wait(room) => room.await?,
            }
        };
        if can_be_read {
            self.last_in_place = Some(epoch);
        }
        Ok(can_be_read)
    }

    /// Copies from the bytes whose address a rank has published, beginning at `offset` of them.
    /// `bytes`: the length that the rank has published.
    pub async fn read_remote(
        &self,
        index: usize,
        from: Rank,
        bytes: usize,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let (Exchange { mesh, lane, .. }, from) = (self.exchange, self.exchange.in_mesh(from));
        let (epoch, encoded) = (self.first + index as u64, self.encoded(bytes));
        loop {
            match mesh.host().read_remote(*lane, epoch, from, &encoded, offset, into)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Wait(published) => published.await?,
            }
        }
    }

    /// Returns when all ranks have released what was published in place.
    pub async fn wait_released(&self) -> Result<()> {
        let Some(epoch) = self.last_in_place else { return Ok(()) };
        loop {
            match self.exchange.mesh.host().released(self.exchange.lane, epoch)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Wait(released) => released.await?,
            }
        }
    }

    /// Views what a rank, maybe this one, has published.
    pub async fn view(&self, index: usize, at: Rank, bytes: usize) -> Result<View<'_>> {
        self.view_part(index, at, bytes, bytes).await
    }

    /// As `view`, of a part of a message that has `whole` bytes.
    pub async fn view_part(
        &self,
        index: usize,
        at: Rank,
        whole: usize,
        bytes: usize,
    ) -> Result<View<'_>> {
        loop {
            match self.try_view_part(index, at, whole, bytes)? {
                Attempt::Done(view) => return Ok(view),
                Attempt::Wait(published) => published.await?,
            }
        }
    }

    /// As `view`, without waiting.
    pub fn try_view(&self, index: usize, at: Rank, bytes: usize) -> Result<Attempt<'_, View<'_>>> {
        self.try_view_part(index, at, bytes, bytes)
    }

    fn try_view_part(
        &self,
        index: usize,
        at: Rank,
        whole: usize,
        bytes: usize,
    ) -> Result<Attempt<'_, View<'_>>> {
        let (Exchange { mesh, lane, .. }, at) = (self.exchange, self.exchange.in_mesh(at));
        let encoded = self.encoded(whole).of_part(bytes);
        mesh.host().view(*lane, self.first + index as u64, at, &encoded)
    }

    /// The header for this many bytes. It is cached, because most parts are as long as the one
    /// before.
    fn encoded(&self, bytes: usize) -> EncodedHeader {
        match self.encoded.get() {
            Some(encoded) if encoded.bytes() == bytes => encoded,
            _ => {
                let encoded = EncodedHeader::new(self.exchange.header(self.step, bytes));
                self.encoded.set(Some(encoded));
                encoded
            }
        }
    }

    /// This rank views nothing more of this epoch and those before it.
    pub fn release(&mut self, index: usize) {
        self.exchange.mesh.host().release(self.exchange.lane, self.first + index as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::transport::SLOT;
    use crate::transport::mem::MemWorld;

    fn polled<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_cancelled_call_withdraws_everything_that_it_has_published_in_place() {
        let world = MemWorld::new(2).unwrap();
        let (meshes, bytes) = (world.meshes(), vec![7; 3 * SLOT]);
        let exchange = |rank: usize| {
            Exchange::new(&meshes[rank], Lane(0), 0, Call::barrier(), CallHistory::default())
        };
        let (publisher, viewer) = (exchange(0), exchange(1));
        let is_viewed =
            |epochs: &Epochs<'_>, part: usize| polled(epochs.view(part, Rank(0), SLOT)).is_ready();
        let epochs = viewer.epochs(0, 3);
        let mut call = Box::pin(async {
            let mut epochs = publisher.epochs(0, 3);
            for part in 0..3 {
                epochs.publish_in_place(part, &bytes[part * SLOT..][..SLOT]).await?;
            }
            epochs.wait_released().await
        });
        assert!(polled(call.as_mut()).is_pending());
        assert!((0..3).all(|part| is_viewed(&epochs, part)));
        drop(call);
        assert!(!(0..3).any(|part| is_viewed(&epochs, part)));
    }
}
