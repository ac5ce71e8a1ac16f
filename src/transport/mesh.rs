//! A mesh: what joins the ranks of one communicator.
//!
//! It is composed of four contracts: ordered lanes, the memory of a host, messages, and membership.
//! A collective knows nothing of it but these; which link carries what is decided where a mesh is
//! made (`mem` for threads, `process` for processes). Leaves to `Waiting` how a thread waits.
//! Invariant: all ranks of a communicator know the same `Hosts`, because algorithms are chosen by
//! it.

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
use super::wait::{Demand, Waiting};
use super::{Hosts, Io};

pub struct Mesh {
    pub me: RankOf,
    pub lanes: Arc<dyn Lanes>,
    pub messages: Arc<dyn Messages>,
    pub membership: Arc<dyn Membership>,
    pub memory: Settled,
    /// Whether some rank has CUDA devices. `None` if all are threads of this process, which knows.
    pub has_cuda: Option<bool>,
}

/// Which ranks share memory, and the memory that this rank shares.
pub struct Settled {
    pub hosts: Hosts,
    /// `None` if this rank is alone on its host.
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

    /// The fault; where ranks disagree, when there are words for it.
    pub async fn settled_fault(&self) -> Option<Error> {
        match self.membership.dispute() {
            Some(fault) => Some(fault.await),
            None => self.membership.fault(),
        }
    }

    /// Connects the ranks that watch each other, of a new communicator.
    pub async fn connect_neighbours(&self) -> Result<()> {
        match self.membership.forming() {
            Some(forming) => forming.connect_neighbours().await,
            None => Ok(()),
        }
    }

    /// Why a new communicator is not complete in time.
    pub fn why_incomplete(&self) -> String {
        self.membership.forming().map(Forming::why_incomplete).unwrap_or_default()
    }

    /// How the thread of an operation waits for it.
    pub fn waiting(&self, demand: Demand) -> Waiting {
        match self.has_cuda {
            None => Waiting::between_threads(demand),
            Some(_) => Waiting::over_network(demand, self.memory.is_crowded),
        }
    }
}

/// The members of a communicator and its state. Invariants: the first fault is the
/// communicator's on all ranks; what ranks disagree about is told to all in the same words.
pub trait Membership: Send + Sync {
    /// Tells all ranks which call this rank makes as its number `seq`, so that ranks which never
    /// exchange a message in it still learn that they disagree.
    fn announce(&self, seq: u64, call: Call);

    /// Ranks that have not announced call number `seq` yet, and those of which nothing is known.
    fn missing(&self, seq: u64) -> Missing;

    /// This rank has found that ranks disagree. Fails the communicator on all of them, with the
    /// same words, which it returns: others may have found other ones.
    fn agree(&self, disagreement: Error) -> Io<'_, Error>;

    /// What to wait for if ranks are known to disagree and the fault that says so is yet to come.
    fn dispute(&self) -> Option<Io<'_, Error>>;

    /// Fails the communicator on all its ranks, and returns the fault that was first.
    fn fail(&self, fault: Error) -> Error;

    fn fault(&self) -> Option<Error>;

    /// The mesh of this rank's part. Every member asks for it.
    fn split(&self, split: Split) -> Result<Mesh>;

    /// This rank does not know who is in its part, because call number `seq` has failed here: ranks
    /// that have made the mesh of that color are told, so that they do not wait for this one.
    fn renounce(&self, seq: u64, color: u32, fault: Error);

    /// What is left to do for a new communicator of processes. `None` where ranks are threads,
    /// which know everything from the beginning.
    fn forming(&self) -> Option<&dyn Forming>;

    /// This rank sends and receives no more. What it has sent still arrives.
    fn leave(&self);
}

/// How a new communicator of processes becomes complete: its ranks connect, try to share memory
/// with those of their host, and tell all where that worked.
pub trait Forming: Send + Sync {
    /// Connects the ranks that watch each other.
    fn connect_neighbours(&self) -> BoxFuture<'_, Result<()>>;

    /// Opens the memory that this rank shares with others of its host. How far that worked, which
    /// all ranks must be told; `None` if no two ranks can share any.
    fn open_host(&self) -> Io<'_, Option<Opened>>;

    /// All ranks know how far that worked for each.
    fn settle(&self, opened: &[Opened]) -> Settled;

    /// Runs something until it ends. `None` if it takes longer than `limit`, an error if this
    /// communicator fails before.
    fn within<'a>(
        &'a self,
        limit: Duration,
        io: Io<'a, Result<()>>,
    ) -> Io<'a, Result<Option<Result<()>>>>;

    /// Why it is not complete in time.
    fn why_incomplete(&self) -> String;
}
