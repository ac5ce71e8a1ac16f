//! Ranks that are processes: a mesh composed of QUIC between all of them and shared memory between
//! those of one host.
//!
//! Neither uses the other. Inside a host, shared memory carries messages and what collectives
//! publish; QUIC carries all lanes, and messages between hosts. A message to this rank itself stays
//! in the process. Leaves to `sharing`
//! how ranks come to share memory. Invariant: faults, leaving and splits, which concern both, are
//! handled here.

mod memory;
mod messages;
mod sharing;

use std::sync::{Arc, Mutex, OnceLock};

use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::RankOf;

use super::membership::{Missing, Split};
use super::mesh::{Forming, Membership, Mesh, Settled};
use super::quic::{Context, Plan, Quic};
use super::shm::Host;
use super::wire::call_words;
use super::{Io, SendIo};
use messages::{HostRings, ProcessMessages};

pub use sharing::host_of_this;

/// One rank's end of a communicator of processes.
struct ProcessEnd {
    quic: Arc<Quic>,
    /// The opened memory of this rank's host, until all ranks know on which hosts that worked.
    opened: Mutex<Option<Host>>,
    /// The same, from then on, if the ranks of this host share it.
    host: OnceLock<Arc<Host>>,
    /// What messages inside the host use, from then on.
    rings: Arc<OnceLock<HostRings>>,
}

/// Registers this rank so that peers can connect. Must be called inside the runtime.
pub fn open(plan: Plan) -> Mesh {
    ProcessEnd::mesh(Quic::open(plan))
}

impl ProcessEnd {
    /// A mesh whose ranks do not share memory yet.
    fn mesh(quic: Arc<Quic>) -> Mesh {
        let me = quic.context.me;
        let has_cuda = Some(quic.context.has_cuda());
        let rings = Arc::<OnceLock<HostRings>>::default();
        let messages = ProcessMessages { quic: Arc::clone(&quic), rings: Arc::clone(&rings) };
        Mesh {
            me,
            lanes: Arc::clone(&quic) as _,
            messages: Arc::new(messages),
            membership: Arc::new(Self {
                quic,
                opened: Mutex::default(),
                host: OnceLock::new(),
                rings,
            }),
            memory: Settled::apart(me),
            has_cuda,
        }
    }

    fn context(&self) -> &Arc<Context> {
        &self.quic.context
    }

    fn me(&self) -> RankOf {
        self.quic.context.me
    }

    fn runtime(&self) -> &Handle {
        &self.quic.runtime
    }
}

impl Membership for ProcessEnd {
    fn announce(&self, seq: u64, call: Call) {
        self.context().recent_calls.record(seq, call_words(&call));
        if let Err(mismatch) = self.context().post() {
            let _inside = self.runtime().enter();
            self.context().propose(mismatch);
        }
    }

    fn missing(&self, seq: u64) -> Missing {
        let _inside = self.runtime().enter();
        self.context().missing(seq)
    }

    fn agree(&self, disagreement: Error) -> SendIo<'_, Error> {
        {
            let _inside = self.runtime().enter();
            self.context().propose(disagreement);
        }
        Box::pin(self.context().failed())
    }

    fn dispute(&self) -> Option<Io<'_, Error>> {
        let is_disputed = self.context().is_disputed();
        is_disputed.then(|| Box::pin(self.context().failed()) as _)
    }

    fn fail(&self, fault: Error) -> Error {
        if let Some(host) = self.host.get() {
            host.give_up();
        }
        self.context().learn(fault)
    }

    fn fault(&self) -> Option<Error> {
        self.context().fault().cloned()
    }

    fn split(&self, split: Split) -> Result<Mesh> {
        Ok(Self::mesh(self.quic.split(split.seq, split.color, &split.members)))
    }

    fn renounce(&self, seq: u64, color: u32, fault: Error) {
        self.quic.renounce(seq, color, fault);
    }

    fn forming(&self) -> Option<&dyn Forming> {
        Some(self)
    }

    fn leave(&self) {
        // A peer may have settled already although this rank has not.
        let opened = self.lock_opened();
        if let Some(host) = self.host.get().map(Arc::as_ref).or(opened.as_ref()) {
            host.leave();
        }
        drop(opened);
        self.runtime().spawn(Arc::clone(self.context()).leave());
    }
}

impl Drop for ProcessEnd {
    fn drop(&mut self) {
        self.leave();
    }
}
