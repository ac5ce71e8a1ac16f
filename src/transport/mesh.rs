//! A mesh: what joins the ranks of one communicator.
//!
//! It is composed of four contracts: ordered lanes, the memory of a host, messages, and membership.
//! A collective knows nothing else of it. Which link carries what is decided where a mesh is
//! created: in `mem` for threads, in `process` for processes. Leaves to `Waiting` how a thread
//! waits. Invariant: all ranks of a communicator know the same `Hosts`, because it decides which
//! algorithm they choose.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::RankOf;

use super::host::HostMemory;
use super::lanes::Lanes;
use super::membership::{Missing, Opened, Split};
use super::messages::Messages;
use super::shm::FastHost;
use super::wait::{Demand, Peers, Waiting};
use super::{Hosts, Io, SendIo};

pub struct Mesh {
    pub me: RankOf,
    pub lanes: Arc<dyn Lanes>,
    pub messages: Arc<dyn Messages>,
    pub membership: Arc<dyn Membership>,
    pub memory: Settled,
    /// Whether some rank has CUDA devices. `None` if all ranks are threads of this process.
    pub has_cuda: Option<bool>,
}

/// Which ranks share memory, and the memory that this rank shares.
pub struct Settled {
    pub hosts: Hosts,
    /// `None` if no other rank shares memory with this one.
    pub host: Option<Arc<dyn HostMemory>>,
    /// If all ranks share the memory of one host and are processes.
    pub fast: Option<FastHost>,
    /// Whether ranks of this host that share memory outnumber its processors. `None` if none share
    /// memory between processes.
    pub is_crowded: Option<bool>,
}

impl Settled {
    /// No two ranks share memory.
    pub fn apart(me: RankOf) -> Self {
        let hosts = Hosts::apart(me.size, me.rank);
        Self { hosts, host: None, fast: None, is_crowded: None }
    }
}

impl Mesh {
    /// The memory of this rank's host.
    pub fn host(&self) -> &dyn HostMemory {
        let host = self.memory.host.as_deref();
        host.expect("algorithms for one host are chosen only where ranks share it")
    }

    pub fn hosts(&self) -> &Hosts {
        &self.memory.hosts
    }

    /// The fault. If ranks disagree, waits until one of them has chosen the fault.
    pub async fn settled_fault(&self) -> Option<Error> {
        match self.membership.dispute() {
            Some(fault) => Some(fault.await),
            None => self.membership.fault(),
        }
    }

    /// Connects the neighbours of a new communicator, which watch each other.
    pub async fn connect_neighbours(&self) -> Result<()> {
        match self.membership.forming() {
            Some(forming) => forming.connect_neighbours().await,
            None => Ok(()),
        }
    }

    /// The reason why a new communicator is not complete in time.
    pub fn why_incomplete(&self) -> String {
        self.membership.forming().map(Forming::why_incomplete).unwrap_or_default()
    }

    /// How the thread of an operation waits for it.
    pub fn waiting(&self, demand: Demand) -> Waiting {
        match self.has_cuda {
            None => Waiting::between_threads(demand),
            Some(_) => {
                let (shares, one_host) = match demand.message {
                    None => (true, self.hosts().are_one()),
                    Some(Peers::One(peer)) => (self.messages.are_in_memory(peer), true),
                    Some(Peers::Any) => {
                        let others =
                            self.hosts().mine().iter().filter(|peer| **peer != self.me.rank);
                        let shares =
                            others.into_iter().any(|peer| self.messages.are_in_memory(*peer));
                        (shares, self.hosts().are_one())
                    }
                };
                let crowded = self.memory.is_crowded.filter(|_| shares);
                Waiting::over_network(demand, crowded, one_host)
            }
        }
    }
}

/// The members of a communicator and its state. Invariants: the first fault fails the communicator
/// on all ranks; all ranks report a disagreement in the same words.
pub trait Membership: Send + Sync {
    /// Announces to all ranks which call is call number `seq` of this rank, so that ranks which
    /// exchange no message in it still learn that they disagree.
    fn announce(&self, seq: u64, call: Call);

    /// Ranks that have not announced call number `seq` yet, and those of which nothing is known.
    fn missing(&self, seq: u64) -> Missing;

    /// This rank has found that ranks disagree. Fails the communicator on all ranks with one fault,
    /// and returns it: another rank may have found another disagreement.
    fn agree(&self, disagreement: Error) -> SendIo<'_, Error>;

    /// A wait for the fault, if ranks are known to disagree and the fault is not known yet.
    fn dispute(&self) -> Option<Io<'_, Error>>;

    /// Fails the communicator on all its ranks, and returns the first fault.
    fn fail(&self, fault: Error) -> Error;

    fn fault(&self) -> Option<Error>;

    /// The mesh of this rank's part. Every member of the part calls this.
    fn split(&self, split: Split) -> Result<Mesh>;

    /// This rank does not know the members of its part, because call number `seq` has failed here.
    /// Ranks that have created the mesh of that color learn of it and do not wait for this rank.
    fn renounce(&self, seq: u64, color: u32, fault: Error);

    /// The remaining steps for a new communicator of processes. `None` where ranks are threads,
    /// which need none.
    fn forming(&self) -> Option<&dyn Forming>;

    /// This rank sends and receives no more. What it has sent still arrives.
    fn leave(&self);
}

/// How a new communicator of processes becomes complete: its ranks connect, try to share memory
/// with those of their host, and report to all ranks how far that worked.
pub trait Forming: Send + Sync {
    /// Connects the neighbours of this rank.
    fn connect_neighbours(&self) -> BoxFuture<'_, Result<()>>;

    /// Opens the memory that this rank shares with others of its host. Returns how far that worked,
    /// which all ranks must learn; `None` if no two ranks can share memory.
    fn open_host(&self) -> Io<'_, Option<Opened>>;

    /// The shared memory, now that all ranks know how far each one's attempt worked.
    fn settle(&self, opened: &[Opened]) -> Settled;

    /// Runs `io` until it completes. `None` if it takes longer than `limit`, an error if this
    /// communicator fails before.
    fn within<'a>(
        &'a self,
        limit: Duration,
        io: Io<'a, Result<()>>,
    ) -> Io<'a, Result<Option<Result<()>>>>;

    /// The reason why it is not complete in time.
    fn why_incomplete(&self) -> String;
}
