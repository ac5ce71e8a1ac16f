//! The verbs of the algorithms: one call's messages over a mesh.
//!
//! Adds to each message the header that every rank must agree on. Invariant: at most one send to
//! and one receive from a peer is under way at a time, so the lane keeps them in order.

use std::cell::Cell;

use smallvec::SmallVec;

use super::passes;
use super::select::Ground;
use crate::error::Result;
use crate::op::{Call, Reducer};
use crate::rank::{Place, Rank};
use crate::reduce::{Side, Stores, copy};
use crate::transport::{
    Attempt, EPOCHS, Header, Hosts, Label, Land, Lane, Mesh, Past, Published, Readers, Started,
    View,
};

/// One call under way on this rank.
pub struct Exchange<'a> {
    mesh: &'a Mesh,
    /// The ranks that take part, if not all do: what follows counts ranks among them.
    ranks: Option<&'a [Rank]>,
    place: Place,
    lane: Lane,
    seq: u64,
    call: Call,
    past: Past,
    /// The only epoch of the call, if the fast path has begun it.
    started: Option<Started>,
}

impl<'a> Exchange<'a> {
    /// Call number `seq`, with those before it.
    pub fn new(mesh: &'a Mesh, lane: Lane, seq: u64, call: Call, past: Past) -> Self {
        Self { mesh, ranks: None, place: mesh.place, lane, seq, call, past, started: None }
    }

    /// Continues a call of one epoch that the fast path has begun.
    pub fn continue_from(self, started: Option<Started>) -> Self {
        Self { started, ..self }
    }

    pub fn place(&self) -> Place {
        self.place
    }

    /// The part of the call that some ranks, this one among them, do among themselves.
    pub fn among<'b>(&'b self, ranks: &'b [Rank]) -> Exchange<'b> {
        let me = ranks.iter().position(|rank| *rank == self.mesh.place.rank);
        let place = Place::new(Rank(me.expect("this rank is one of them")), ranks.len());
        let Self { mesh, lane, seq, call, past, started, .. } = *self;
        Exchange { mesh, ranks: Some(ranks), place, lane, seq, call, past, started }
    }

    /// The part that the ranks of this host do, unless this one is alone there.
    pub fn inside(&self) -> Option<Exchange<'_>> {
        let mine = self.mesh.hosts().mine();
        (mine.len() > 1).then(|| self.among(mine))
    }

    /// Who shares memory with whom.
    pub fn hosts(&self) -> &'a Hosts {
        self.mesh.hosts()
    }

    /// A rank as the mesh knows it.
    fn in_mesh(&self, rank: Rank) -> Rank {
        self.ranks.map_or(rank, |ranks| ranks[rank.0])
    }

    /// Where the ranks are.
    pub fn ground(&self) -> Ground {
        Ground::of(self.mesh.hosts())
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

    /// Receives and folds what arrives into `into`, part by part. `side` says which operand it is.
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

    /// What was seen in others' memory is what they had shown.
    pub async fn confirm(&self) -> Result<()> {
        let Some(host) = self.mesh.memory.host.as_deref() else { return Ok(()) };
        match host.confirm(self.lane) {
            Attempt::Done(()) => Ok(()),
            Attempt::Wait(fault) => fault.await,
        }
    }

    /// Begins rounds of this host, which all its ranks begin.
    pub fn rounds(&self, step: usize, count: usize) -> Rounds<'_> {
        let begin = || self.mesh.host().begin_epochs(self.lane, count as u64);
        let first = self.started.map_or_else(begin, |started| started.epoch);
        let (label, shown) = (Cell::new(None), SmallVec::new());
        Rounds { exchange: self, step, first, label, last_shown: None, shown }
    }

    fn header(&self, step: usize, bytes: usize) -> Header {
        Header { seq: self.seq, call: self.call, past: self.past, step: step as u32, bytes }
    }
}

/// Fewer bytes than these are read from a cache sooner than from memory, however far it is.
const STREAMED: usize = 8 << 10;

/// How bytes are laid out for such readers.
fn stores_for(readers: Readers, bytes: usize) -> Stores {
    match readers {
        Readers::Far if bytes >= STREAMED => Stores::Streamed,
        _ => Stores::Cached,
    }
}

/// Rounds of one step, in which ranks of this host see what the others lay out.
pub struct Rounds<'a> {
    exchange: &'a Exchange<'a>,
    step: usize,
    first: u64,
    /// The last one that was used.
    label: Cell<Option<Label>>,
    /// The last round in which bytes stayed where they are.
    last_shown: Option<u64>,
    /// What keeps such bytes as they are, of as many rounds as anybody may still look at.
    shown: SmallVec<[Published<'a>; EPOCHS]>,
}

impl<'a> Rounds<'a> {
    /// Lays out bytes, which `fill` writes, for all ranks of the host.
    pub async fn lay(
        &self,
        round: usize,
        bytes: usize,
        fill: impl FnOnce(&mut [u8], Stores),
    ) -> Result<()> {
        let Exchange { mesh, lane, started, .. } = self.exchange;
        if started.is_some_and(|started| started.published) {
            return Ok(());
        }
        let (epoch, label, mut fill) = (self.first + round as u64, self.label(bytes), Some(fill));
        let mut fill_once = |slot: &mut [u8], readers| {
            if let Some(fill) = fill.take() {
                fill(slot, stores_for(readers, bytes));
            }
        };
        loop {
            match mesh.host().publish(*lane, epoch, &label, &mut fill_once)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Wait(room) => room.await?,
            }
        }
    }

    /// As `lay`, with bytes that may stay where they are: they are not written while there are `Rounds`.
    pub async fn show(&mut self, round: usize, bytes: &'a [u8]) -> Result<()> {
        let Exchange { mesh, lane, started, .. } = self.exchange;
        if started.is_some_and(|started| started.published) {
            return Ok(());
        }
        let (epoch, label) = (self.first + round as u64, self.label(bytes.len()));
        let shown = loop {
            match mesh.host().publish_in_place(*lane, epoch, &label, bytes)? {
                Attempt::Done(shown) => break shown,
                Attempt::Wait(room) => room.await?,
            }
        };
        if let Some(shown) = shown {
            if self.shown.len() == EPOCHS {
                // All have passed its round, or this one could not have been used yet.
                self.shown.remove(0);
            }
            self.shown.push(shown);
            self.last_shown = Some(epoch);
            return Ok(());
        }
        self.lay(round, bytes.len(), |slot, stores| copy(slot, bytes, stores)).await
    }

    /// Tells where bytes lie, which others `fetch`: they are not to be written until `passed` returns.
    /// False if they cannot be read there.
    pub async fn expose(&mut self, round: usize, bytes: &[u8]) -> Result<bool> {
        let Exchange { mesh, lane, .. } = self.exchange;
        let (epoch, label) = (self.first + round as u64, self.label(bytes.len()));
        let can_be_read = loop {
            match mesh.host().publish_address(*lane, epoch, &label, bytes)? {
                Attempt::Done(can_be_read) => break can_be_read,
                Attempt::Wait(room) => room.await?,
            }
        };
        if can_be_read {
            self.last_shown = Some(epoch);
        }
        Ok(can_be_read)
    }

    /// Copies what a rank has exposed, of so many bytes, from `offset` on.
    pub async fn fetch(
        &self,
        round: usize,
        from: Rank,
        bytes: usize,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let (Exchange { mesh, lane, .. }, from) = (self.exchange, self.exchange.in_mesh(from));
        let (epoch, label) = (self.first + round as u64, self.label(bytes));
        loop {
            match mesh.host().read_remote(*lane, epoch, from, &label, offset, into)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Wait(published) => published.await?,
            }
        }
    }

    /// Returns when nobody looks at what was shown any more.
    pub async fn passed(&self) -> Result<()> {
        let Some(epoch) = self.last_shown else { return Ok(()) };
        loop {
            match self.exchange.mesh.host().released(self.exchange.lane, epoch)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Wait(released) => released.await?,
            }
        }
    }

    /// What a rank, maybe this one, has laid out.
    pub async fn look(&self, round: usize, at: Rank, bytes: usize) -> Result<View<'_>> {
        loop {
            match self.try_look(round, at, bytes)? {
                Attempt::Done(view) => return Ok(view),
                Attempt::Wait(published) => published.await?,
            }
        }
    }

    /// The same, if it is there.
    pub fn try_look(&self, round: usize, at: Rank, bytes: usize) -> Result<Attempt<'_, View<'_>>> {
        let (Exchange { mesh, lane, .. }, at) = (self.exchange, self.exchange.in_mesh(at));
        mesh.host().view(*lane, self.first + round as u64, at, &self.label(bytes))
    }

    /// Most parts are as long as the one before.
    fn label(&self, bytes: usize) -> Label {
        match self.label.get() {
            Some(label) if label.bytes() == bytes => label,
            _ => {
                let label = Label::new(self.exchange.header(self.step, bytes));
                self.label.set(Some(label));
                label
            }
        }
    }

    /// This rank has seen what it wants of this round and those before it.
    pub fn pass(&mut self, round: usize) {
        self.exchange.mesh.host().release(self.exchange.lane, self.first + round as u64);
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
    fn a_call_that_is_given_up_takes_back_all_that_it_has_shown() {
        let world = MemWorld::new(2).unwrap();
        let (meshes, bytes) = (world.meshes(), vec![7; 3 * SLOT]);
        let exchange = |rank: usize| {
            Exchange::new(&meshes[rank], Lane(0), 0, Call::barrier(), Past::default())
        };
        let (gives, looks) = (exchange(0), exchange(1));
        let sees =
            |rounds: &Rounds<'_>, part: usize| polled(rounds.look(part, Rank(0), SLOT)).is_ready();
        let rounds = looks.rounds(0, 3);
        let mut call = Box::pin(async {
            let mut rounds = gives.rounds(0, 3);
            for part in 0..3 {
                rounds.show(part, &bytes[part * SLOT..][..SLOT]).await?;
            }
            rounds.passed().await
        });
        assert!(polled(call.as_mut()).is_pending());
        assert!((0..3).all(|part| sees(&rounds, part)));
        drop(call);
        assert!(!(0..3).any(|part| sees(&rounds, part)));
    }
}
