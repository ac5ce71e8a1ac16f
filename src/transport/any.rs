//! The mesh of a communicator, whichever kind it is.

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::{Place, Rank};

use super::mem::MemMesh;
use super::quic::QuicMesh;
use super::{Header, Inbox, Lane, Mesh, Missing, Note, Split};

pub enum AnyMesh {
    /// Ranks are threads of this process.
    Mem(MemMesh),
    /// Ranks are processes.
    Quic(QuicMesh),
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
