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
use crate::transport::shm::Started;
use crate::transport::{Header, Hosts, Label, Lane, Mesh, Past, ROUNDS, Readers};

/// One call under way on this rank.
pub struct Exchange<'a, M> {
    mesh: &'a M,
    /// The ranks that take part, if not all do: what follows counts ranks among them.
    ranks: Option<&'a [Rank]>,
    place: Place,
    lane: Lane,
    seq: u64,
    call: Call,
    past: Past,
    /// Its only round, if that was begun as a brief one.
    started: Option<Started>,
}

impl<'a, M: Mesh> Exchange<'a, M> {
    /// Call number `seq`, with those before it.
    pub fn new(mesh: &'a M, lane: Lane, seq: u64, call: Call, past: Past) -> Self {
        Self { mesh, ranks: None, place: mesh.place(), lane, seq, call, past, started: None }
    }

    /// Goes on with a call of one round that was begun as a brief one.
    pub fn go_on(self, started: Option<Started>) -> Self {
        Self { started, ..self }
    }

    pub fn place(&self) -> Place {
        self.place
    }

    /// The part of the call that some ranks, this one among them, do among themselves.
    pub fn among<'b>(&'b self, ranks: &'b [Rank]) -> Exchange<'b, M> {
        let me = ranks.iter().position(|rank| *rank == self.mesh.place().rank);
        let place = Place::new(Rank(me.expect("this rank is one of them")), ranks.len());
        let Self { mesh, lane, seq, call, past, started, .. } = *self;
        Exchange { mesh, ranks: Some(ranks), place, lane, seq, call, past, started }
    }

    /// The part that the ranks of this host do, unless this one is alone there.
    pub fn inside(&self) -> Option<Exchange<'_, M>> {
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
        self.mesh.send(self.lane, self.in_mesh(to), &self.header(step, bytes.len()), bytes).await
    }

    pub async fn recv(&self, from: Rank, step: usize, into: &mut [u8]) -> Result<()> {
        let header = self.header(step, into.len());
        self.mesh.recv(self.lane, self.in_mesh(from), &header, into, <[u8]>::copy_from_slice).await
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
        self.mesh.recv(self.lane, self.in_mesh(from), &header, into, land).await
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
        self.mesh.confirm(self.lane).await
    }

    /// Begins rounds of this host, which all its ranks begin.
    pub fn rounds(&self, step: usize, count: usize) -> Rounds<'_, M> {
        let begin = || self.mesh.begin_rounds(self.lane, count as u64);
        let first = self.started.map_or_else(begin, |started| started.round);
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
pub struct Rounds<'a, M: Mesh> {
    exchange: &'a Exchange<'a, M>,
    step: usize,
    first: u64,
    /// The last one that was used.
    label: Cell<Option<Label>>,
    /// The last round in which bytes stayed where they are.
    last_shown: Option<u64>,
    /// What keeps such bytes as they are, of as many rounds as anybody may still look at.
    shown: SmallVec<[M::Shown<'a>; ROUNDS]>,
}

impl<'a, M: Mesh> Rounds<'a, M> {
    /// Lays out bytes, which `fill` writes, for all ranks of the host.
    pub async fn lay(
        &self,
        round: usize,
        bytes: usize,
        fill: impl FnOnce(&mut [u8], Stores),
    ) -> Result<()> {
        let Exchange { mesh, lane, started, .. } = self.exchange;
        if started.is_some_and(|started| started.laid) {
            return Ok(());
        }
        let fill = |slot: &mut [u8], readers| fill(slot, stores_for(readers, bytes));
        mesh.lay(*lane, self.first + round as u64, &self.label(bytes), fill).await
    }

    /// As `lay`, with bytes that may stay where they are: they are not written while there are `Rounds`.
    pub async fn show(&mut self, round: usize, bytes: &'a [u8]) -> Result<()> {
        let Exchange { mesh, lane, started, .. } = self.exchange;
        if started.is_some_and(|started| started.laid) {
            return Ok(());
        }
        let (number, label) = (self.first + round as u64, self.label(bytes.len()));
        if let Some(shown) = mesh.show(*lane, number, &label, bytes).await? {
            if self.shown.len() == ROUNDS {
                // All have passed its round, or this one could not have been used yet.
                self.shown.remove(0);
            }
            self.shown.push(shown);
            self.last_shown = Some(number);
            return Ok(());
        }
        self.lay(round, bytes.len(), |slot, stores| copy(slot, bytes, stores)).await
    }

    /// Tells where bytes lie, which others `fetch`: they are not to be written until `passed` returns.
    /// False if they cannot be read there.
    pub async fn expose(&mut self, round: usize, bytes: &[u8]) -> Result<bool> {
        let Exchange { mesh, lane, .. } = self.exchange;
        let number = self.first + round as u64;
        let can_be_read = mesh.expose(*lane, number, &self.label(bytes.len()), bytes).await?;
        if can_be_read {
            self.last_shown = Some(number);
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
        let number = self.first + round as u64;
        mesh.fetch(*lane, number, from, &self.label(bytes), offset, into).await
    }

    /// Returns when nobody looks at what was shown any more.
    pub async fn passed(&self) -> Result<()> {
        match self.last_shown {
            Some(round) => self.exchange.mesh.passed(self.exchange.lane, round).await,
            None => Ok(()),
        }
    }

    /// What a rank, maybe this one, has laid out.
    pub async fn look(&self, round: usize, at: Rank, bytes: usize) -> Result<M::Sight<'_>> {
        let (Exchange { mesh, lane, .. }, at) = (self.exchange, self.exchange.in_mesh(at));
        mesh.look(*lane, self.first + round as u64, at, &self.label(bytes)).await
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
        self.exchange.mesh.pass(self.exchange.lane, self.first + round as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::transport::SLOT;
    use crate::transport::mem::{MemWorld, Trouble};

    fn polled<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_call_that_is_given_up_takes_back_all_that_it_has_shown() {
        let world = MemWorld::new(2, Trouble::default()).unwrap();
        let (meshes, bytes) = (world.meshes(), vec![7; 3 * SLOT]);
        let exchange = |rank: usize| {
            Exchange::new(&meshes[rank], Lane(0), 0, Call::barrier(), Past::default())
        };
        let (gives, looks) = (exchange(0), exchange(1));
        let sees = |rounds: &Rounds<'_, _>, part: usize| {
            polled(rounds.look(part, Rank(0), SLOT)).is_ready()
        };
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
