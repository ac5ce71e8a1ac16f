//! The mesh of a communicator, whichever kind it is.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Place, Rank};

use super::mem::MemMesh;
use super::quic::QuicMesh;
use super::shm::Host;
use super::wire::CallWords;
use super::{Header, Hosts, Inbox, Label, Lane, Mesh, Missing, Note, Readers, Split};

pub enum AnyMesh {
    /// Ranks are threads of this process.
    Mem(MemMesh),
    /// Ranks are processes.
    Quic(QuicMesh),
}

pub enum AnySight<'a> {
    Mem(<MemMesh as Mesh>::Sight<'a>),
    Quic(<QuicMesh as Mesh>::Sight<'a>),
}

impl Deref for AnySight<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mem(bytes) => bytes,
            Self::Quic(bytes) => bytes,
        }
    }
}

impl AnyMesh {
    /// Runs something until it ends. `None` if it takes longer than `limit`, an error if this communicator
    /// fails before. Ranks that are threads wait for nothing that could be late.
    pub async fn within<T>(
        &self,
        limit: Duration,
        io: impl Future<Output = T>,
    ) -> Result<Option<T>> {
        match self {
            Self::Mem(_) => Ok(Some(io.await)),
            Self::Quic(mesh) => mesh.within(limit, io).await,
        }
    }

    /// Why a communicator that is split off another is not complete in time.
    pub fn why_incomplete(&self) -> String {
        match self {
            Self::Mem(_) => String::new(),
            Self::Quic(mesh) => mesh.why_incomplete(),
        }
    }

    /// As `announce`, of a call in which ranks meet in memory. Those that do not meet there learn of it later.
    #[inline]
    pub fn note(&self, seq: u64, call: CallWords) {
        if let Self::Quic(mesh) = self {
            mesh.note(seq, call);
        }
    }

    /// The memory that all ranks share, if they do.
    #[inline]
    pub fn one_host(&self) -> Option<&Host> {
        match self {
            Self::Mem(_) => None,
            Self::Quic(mesh) => mesh.one_host(),
        }
    }
}

impl Mesh for AnyMesh {
    fn place(&self) -> Place {
        match self {
            Self::Mem(mesh) => mesh.place(),
            Self::Quic(mesh) => mesh.place(),
        }
    }

    async fn send(&self, lane: Lane, to: Rank, header: &Header, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.send(lane, to, header, bytes).await,
            Self::Quic(mesh) => mesh.send(lane, to, header, bytes).await,
        }
    }

    async fn recv(
        &self,
        lane: Lane,
        from: Rank,
        header: &Header,
        into: &mut [u8],
        land: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.recv(lane, from, header, into, land).await,
            Self::Quic(mesh) => mesh.recv(lane, from, header, into, land).await,
        }
    }

    type Sight<'a> = AnySight<'a>;

    fn hosts(&self) -> &Hosts {
        match self {
            Self::Mem(mesh) => mesh.hosts(),
            Self::Quic(mesh) => mesh.hosts(),
        }
    }

    fn begin_rounds(&self, lane: Lane, count: u64) -> u64 {
        match self {
            Self::Mem(mesh) => mesh.begin_rounds(lane, count),
            Self::Quic(mesh) => mesh.begin_rounds(lane, count),
        }
    }

    async fn lay(
        &self,
        lane: Lane,
        round: u64,
        label: &Label,
        fill: impl FnOnce(&mut [u8], Readers),
    ) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.lay(lane, round, label, fill).await,
            Self::Quic(mesh) => mesh.lay(lane, round, label, fill).await,
        }
    }

    type Shown<'a> = Option<<MemMesh as Mesh>::Shown<'a>>;

    async fn show<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        label: &Label,
        bytes: &'a [u8],
    ) -> Result<Option<Self::Shown<'a>>> {
        match self {
            Self::Mem(mesh) => Ok(mesh.show(lane, round, label, bytes).await?.map(Some)),
            Self::Quic(mesh) => Ok(mesh.show(lane, round, label, bytes).await?.map(|()| None)),
        }
    }

    async fn passed(&self, lane: Lane, round: u64) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.passed(lane, round).await,
            Self::Quic(mesh) => mesh.passed(lane, round).await,
        }
    }

    async fn look<'a>(
        &'a self,
        lane: Lane,
        round: u64,
        at: Rank,
        label: &Label,
    ) -> Result<AnySight<'a>> {
        match self {
            Self::Mem(mesh) => mesh.look(lane, round, at, label).await.map(AnySight::Mem),
            Self::Quic(mesh) => mesh.look(lane, round, at, label).await.map(AnySight::Quic),
        }
    }

    async fn expose(&self, lane: Lane, round: u64, label: &Label, bytes: &[u8]) -> Result<bool> {
        match self {
            Self::Mem(mesh) => mesh.expose(lane, round, label, bytes).await,
            Self::Quic(mesh) => mesh.expose(lane, round, label, bytes).await,
        }
    }

    async fn fetch(
        &self,
        lane: Lane,
        round: u64,
        from: Rank,
        label: &Label,
        offset: usize,
        into: &mut [u8],
    ) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.fetch(lane, round, from, label, offset, into).await,
            Self::Quic(mesh) => mesh.fetch(lane, round, from, label, offset, into).await,
        }
    }

    async fn confirm(&self, lane: Lane) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.confirm(lane).await,
            Self::Quic(mesh) => mesh.confirm(lane).await,
        }
    }

    fn pass(&self, lane: Lane, round: u64) {
        match self {
            Self::Mem(mesh) => mesh.pass(lane, round),
            Self::Quic(mesh) => mesh.pass(lane, round),
        }
    }

    fn inbox(&self) -> &Inbox {
        match self {
            Self::Mem(mesh) => mesh.inbox(),
            Self::Quic(mesh) => mesh.inbox(),
        }
    }

    fn connect(&self, peer: Rank) {
        match self {
            Self::Mem(mesh) => mesh.connect(peer),
            Self::Quic(mesh) => mesh.connect(peer),
        }
    }

    async fn send_note(&self, to: Rank, note: Note) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.send_note(to, note).await,
            Self::Quic(mesh) => mesh.send_note(to, note).await,
        }
    }

    async fn send_body(&self, to: Rank, id: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.send_body(to, id, bytes).await,
            Self::Quic(mesh) => mesh.send_body(to, id, bytes).await,
        }
    }

    async fn recv_body(&self, from: Rank, id: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Self::Mem(mesh) => mesh.recv_body(from, id, into).await,
            Self::Quic(mesh) => mesh.recv_body(from, id, into).await,
        }
    }

    async fn split(&self, split: Split) -> Result<Self> {
        match self {
            Self::Mem(mesh) => mesh.split(split).await.map(Self::Mem),
            Self::Quic(mesh) => mesh.split(split).await.map(Self::Quic),
        }
    }

    fn renounce(&self, seq: u64, color: u32, fault: Error) {
        match self {
            Self::Mem(mesh) => mesh.renounce(seq, color, fault),
            Self::Quic(mesh) => mesh.renounce(seq, color, fault),
        }
    }

    fn announce(&self, seq: u64, call: Call) {
        match self {
            Self::Mem(mesh) => mesh.announce(seq, call),
            Self::Quic(mesh) => mesh.announce(seq, call),
        }
    }

    async fn agree(&self, disagreement: Error) -> Error {
        match self {
            Self::Mem(mesh) => mesh.agree(disagreement).await,
            Self::Quic(mesh) => mesh.agree(disagreement).await,
        }
    }

    async fn settled_fault(&self) -> Option<Error> {
        match self {
            Self::Mem(mesh) => mesh.settled_fault().await,
            Self::Quic(mesh) => mesh.settled_fault().await,
        }
    }

    fn missing(&self, seq: u64) -> Missing {
        match self {
            Self::Mem(mesh) => mesh.missing(seq),
            Self::Quic(mesh) => mesh.missing(seq),
        }
    }

    fn fail(&self, fault: Error) -> Error {
        match self {
            Self::Mem(mesh) => mesh.fail(fault),
            Self::Quic(mesh) => mesh.fail(fault),
        }
    }

    fn fault(&self) -> Option<Error> {
        match self {
            Self::Mem(mesh) => mesh.fault(),
            Self::Quic(mesh) => mesh.fault(),
        }
    }

    fn leave(&self) {
        match self {
            Self::Mem(mesh) => mesh.leave(),
            Self::Quic(mesh) => mesh.leave(),
        }
    }
}
