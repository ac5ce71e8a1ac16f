//! How processes of one host come to share memory, and how all ranks learn whether they do.
//!
//! Leaves to `shm` the handshake and the layout of the memory. Invariant: ranks share memory only
//! if all ranks of the communicator know that they do. If it fails for one rank, all ranks of its
//! host use QUIC.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ring::digest::{SHA256, digest};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::error::Result;
use crate::rank::Rank;

use super::super::membership::Opened;
use super::super::mesh::{Forming, Settled};
use super::super::quic::PublishedFaults;
use super::super::shm::{FastHost, Host, HostGroup, LONGEST_FAULT};
use super::super::{Hosts, Io};
use super::ProcessEnd;
use super::memory::SharedMemory;
use super::messages::HostRings;

/// The shared-memory handshake may take half the time of an initialisation. The other half is left
/// for the QUIC connections that are needed if it fails.
const PART_OF_INIT: u32 = 2;

/// More ranks of one host do not share memory: a slot has a column for each rank.
const MOST_RANKS: usize = 4096;

/// Hash of what ranks that may share memory have in common: boot id, network namespace, user and
/// `NEXAR_HOSTID`. `None` where the system does not provide them.
pub fn host_of_this(name: &str) -> Option<[u8; 16]> {
    let start = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    let network = network.as_os_str().as_encoded_bytes();
    let user = rustix::process::geteuid().as_raw().to_le_bytes();
    let known = [&start[..], network, b" ", &user, b" ", name.as_bytes()];
    digest(&SHA256, &known.concat()).as_ref()[..16].try_into().ok()
}

/// Which rank failed to share the memory of a host.
enum NotShared {
    Here(io::Error),
    There(Rank),
}

/// Aborts a task when dropped.
struct EndedOnDrop<T>(JoinHandle<T>);

impl<T> Drop for EndedOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where the ranks of this host publish their faults.
struct FaultsOnHost {
    host: Arc<Host>,
    /// The ranks of the communicator on this host, in the order in which `host` counts them.
    ranks: Vec<Rank>,
}

impl PublishedFaults for FaultsOnHost {
    fn longest(&self) -> usize {
        LONGEST_FAULT
    }

    fn publish(&self, frame: &[u8]) {
        self.host.publish_fault(frame);
    }

    fn published_by(&self, rank: Rank) -> Option<Vec<u8>> {
        let index = self.ranks.iter().position(|one| *one == rank)?;
        self.host.published_fault(index)
    }
}

impl ProcessEnd {
    /// The hosts that ranks claim to be on. The handshake is the proof.
    fn claimed(&self) -> Hosts {
        Hosts::new(&self.context().hosts(), self.me().rank)
    }

    async fn open_memory(&self) -> Opened {
        let hosts = self.claimed();
        let rank = self.me().rank;
        if hosts.mine().len() == 1 {
            return Opened::Shared;
        }
        if hosts.mine().len() > MOST_RANKS {
            warn!(
                rank = rank.0 as u64,
                "{rank} uses QUIC inside its host: too many ranks to share memory"
            );
            return Opened::Apart;
        }
        // The first rank waits for all others, and they for it.
        let (first, others) = hosts.mine().split_first().expect("this rank is one of its host");
        let awaited = if *first == rank { others.to_vec() } else { vec![*first] };
        let waiting = awaited.clone();
        // In a task, because it needs the runtime whenever it is polled.
        let (quic, limit) = (Arc::clone(&self.quic), self.handshake_time());
        let mut handshake = EndedOnDrop(self.runtime().spawn(async move {
            let (context, plan) = (&quic.context, quic.plan());
            let key = |rank: &Rank| quic.key_of(*rank);
            let index = hosts.mine().iter().position(|one| *one == context.me.rank);
            let index = index.expect("this rank is one of its host");
            let group = HostGroup {
                name: context.id.0,
                secret: &plan.secret,
                me: &plan.me,
                index,
                keys: hosts.mine().iter().map(key).collect(),
            };
            let connecting = async {
                tokio::select! {
                    connected = Host::connect(&group) => connected.map_err(NotShared::Here),
                    peer = quic.memory_refused(&awaited) => Err(NotShared::There(peer)),
                }
            };
            context.or_fault(timeout(limit, connecting)).await
        }));
        let panicked = |panic| Ok(Ok(Err(NotShared::Here(io::Error::other(panic)))));
        let why = match (&mut handshake.0).await.unwrap_or_else(panicked) {
            Ok(Ok(Ok(host))) => {
                let opened = if host.reads_all() { Opened::Whole } else { Opened::Shared };
                *self.lock_opened() = Some(host);
                return opened;
            }
            Ok(Ok(Err(NotShared::Here(error)))) => {
                self.quic.refuse_memory(&waiting);
                error.to_string()
            }
            Ok(Ok(Err(NotShared::There(peer)))) => {
                self.quic.refuse_memory(&waiting);
                format!("{peer} cannot share memory")
            }
            Ok(Err(_)) => {
                format!("not all ranks of the host connected within {} ms", limit.as_millis())
            }
            Err(fault) => fault.to_string(),
        };
        warn!(
            rank = rank.0 as u64,
            "{rank} uses QUIC inside its host instead of shared memory: {why}"
        );
        Opened::Apart
    }

    pub(super) fn lock_opened(&self) -> MutexGuard<'_, Option<Host>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handshake_time(&self) -> Duration {
        self.quic.plan().dial_timeout / PART_OF_INIT
    }
}

impl Forming for ProcessEnd {
    fn connect_neighbours(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.quic.connect_neighbours())
    }

    fn open_host(&self) -> Io<'_, Option<Opened>> {
        Box::pin(async {
            match self.claimed().share() {
                true => Some(self.open_memory().await),
                false => None,
            }
        })
    }

    fn settle(&self, opened: &[Opened]) -> Settled {
        let (mut names, me) = (self.context().hosts(), self.me());
        for group in self.claimed().groups() {
            if group.iter().any(|rank| opened[rank.0] == Opened::Apart) {
                group.iter().for_each(|rank| names[rank.0] = None);
            }
        }
        let is_open = opened.iter().all(|opened| *opened == Opened::Whole);
        let hosts = Hosts::new(&names, me.rank).opened(is_open);
        let opened = self.lock_opened().take().filter(|_| hosts.mine().len() > 1);
        let Some(opened) = opened else {
            return Settled { hosts, ..Settled::apart(me) };
        };
        let host = self.host.get_or_init(|| Arc::new(opened));
        let ranks = hosts.mine().to_vec();
        self.context().publish_faults(FaultsOnHost { host: Arc::clone(host), ranks });
        let calls = Arc::clone(&self.context().recent_calls);
        let fast = (host.size() == me.size).then(|| FastHost { host: Arc::clone(host), calls });
        let memory = SharedMemory {
            quic: Arc::clone(&self.quic),
            host: Arc::clone(host),
            hosts: hosts.clone(),
        };
        if let Some(rings) = HostRings::new(host, &hosts, &self.quic) {
            for (index, rank) in hosts.mine().iter().enumerate() {
                if *rank != me.rank {
                    self.context().message_queues.add_ring(*rank, host.rings_with(index));
                }
            }
            let _ = self.rings.set(rings);
        }
        let is_crowded = Some(host.is_crowded());
        Settled { hosts, host: Some(Arc::new(memory)), fast, is_crowded }
    }

    fn within<'a>(
        &'a self,
        limit: Duration,
        io: Io<'a, Result<()>>,
    ) -> Io<'a, Result<Option<Result<()>>>> {
        Box::pin(async move {
            let bounded = {
                let _inside = self.runtime().enter();
                timeout(limit, io)
            };
            self.context().or_fault(bounded).await.map(|ended| ended.ok())
        })
    }

    fn why_incomplete(&self) -> String {
        let names: Vec<_> = self.quic.unreached().iter().map(|peer| peer.to_string()).collect();
        match names.is_empty() {
            true => "a rank has not reported whether it shares memory".to_owned(),
            false => format!("{} cannot be reached", names.join(", ")),
        }
    }
}
