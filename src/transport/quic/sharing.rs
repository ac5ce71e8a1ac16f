//! The part of a mesh that is shared memory: who shares it, and waiting for it.
//!
//! Leaves to `shm` where bytes lie. Invariants: ranks share memory only if all ranks of the communicator
//! know that they do; a wait ends when the rank that is waited for is gone or the communicator has failed,
//! but what is there already is still seen.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use ring::digest::{SHA256, digest};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use super::super::shm::{Host, Party, bell};
use super::super::{HAS_LEFT, Header, Hosts, Lane, Mesh};
use super::QuicMesh;
use super::context::Context;
use super::control::Frame;
use super::delivery::SharedFaults;
use crate::error::{self, Result};
use crate::rank::Rank;
use crate::transport::wire::CallWords;

/// Ranks of a host wait for each other to open the memory they share for half the time that
/// initialisation may take. The other half is left for what follows over QUIC if one does not come.
const PART_OF_INIT: u32 = 2;

/// So many ranks have a column each in a slot.
const MOST_RANKS: usize = 4096;

/// How long the reason takes why a rank has left, at most.
const NEWS_TIME: Duration = Duration::from_millis(200);

/// Hash of what ranks that may share memory have in common: boot id, network namespace, user, and the name
/// that was given to the host, if any. `None` where the system does not tell.
pub fn host_of_this(name: &str) -> Option<[u8; 16]> {
    let start = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    let network = network.as_os_str().as_encoded_bytes();
    let user = rustix::process::geteuid().as_raw().to_le_bytes();
    let known = [&start[..], network, b" ", &user, b" ", name.as_bytes()];
    digest(&SHA256, &known.concat()).as_ref()[..16].try_into().ok()
}

/// Where it failed to open the memory of a host.
enum NotShared {
    Here(io::Error),
    There(Rank),
}

/// Waits until one of these ranks says that it cannot share memory.
async fn refused(context: &Context, ranks: &[Rank]) -> Rank {
    let refusal = |rank: &Rank| {
        let (rank, peer) = (*rank, context.peer(*rank));
        async move {
            match peer.linked().await {
                Ok(link) => link.streams(context.id).memory_refused().await,
                // Its end is another's to tell.
                Err(_) => std::future::pending().await,
            }
            rank
        }
    };
    let mut refusals: FuturesUnordered<_> = ranks.iter().map(refusal).collect();
    refusals.next().await.unwrap_or(context.place.rank)
}

/// A task that ends when nobody waits for it any more.
struct EndedOnDrop<T>(JoinHandle<T>);

impl<T> Drop for EndedOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How far the memory of a host is open to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Not at all.
    Apart = 0,
    /// What the others share.
    Shared = 1,
    /// All memory of the others, read by the system.
    Whole = 2,
}

impl Opened {
    /// As a rank has told it.
    pub fn told(code: u8) -> Self {
        match code {
            2 => Self::Whole,
            1 => Self::Shared,
            _ => Self::Apart,
        }
    }
}

impl QuicMesh {
    /// Who says that it shares memory with whom; the proof is to come.
    fn claimed(&self) -> Hosts {
        let claims = self.claims();
        Hosts::new(&claims, self.context.place.rank)
    }

    fn claims(&self) -> Vec<Option<[u8; 16]>> {
        self.context.members().iter().map(|rank| self.context.links.member(*rank).host).collect()
    }

    /// Whether some rank has CUDA devices.
    pub fn has_cuda(&self) -> bool {
        self.context.members().iter().any(|rank| self.context.links.member(*rank).cuda)
    }

    /// Whether any ranks of the communicator may share memory.
    pub fn may_share(&self) -> bool {
        self.claimed().share()
    }

    /// Opens the memory that this rank shares with others of its host. How far that worked, which all ranks
    /// must be told.
    pub async fn open_host(&mut self) -> Opened {
        let hosts = self.claimed();
        let rank = self.context.place.rank;
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
        let told = awaited.clone();
        // In a task: it needs the runtime whenever it is polled.
        let (context, limit) = (Arc::clone(&self.context), self.meeting_time());
        let mut meeting = EndedOnDrop(self.runtime.spawn(async move {
            let links = &context.links;
            let key = |rank: &Rank| links.member(context.in_roster(*rank)).key;
            let index = hosts.mine().iter().position(|one| *one == context.place.rank);
            let index = index.expect("this rank is one of its host");
            let party = Party {
                name: context.id.0,
                secret: &links.plan.secret,
                me: &links.plan.me,
                index,
                keys: hosts.mine().iter().map(key).collect(),
            };
            let meeting = async {
                tokio::select! {
                    met = Host::meet(&party) => met.map_err(NotShared::Here),
                    peer = refused(&context, &awaited) => Err(NotShared::There(peer)),
                }
            };
            context.or_fault(timeout(limit, meeting)).await
        }));
        let panicked = |panic| Ok(Ok(Err(NotShared::Here(io::Error::other(panic)))));
        let why = match (&mut meeting.0).await.unwrap_or_else(panicked) {
            Ok(Ok(Ok(host))) => {
                let opened = if host.reads_all() { Opened::Whole } else { Opened::Shared };
                self.host = Some(Arc::new(host));
                return opened;
            }
            Ok(Ok(Err(NotShared::Here(error)))) => {
                self.refuse_memory(&told);
                error.to_string()
            }
            Ok(Ok(Err(NotShared::There(peer)))) => {
                self.refuse_memory(&told);
                format!("{peer} cannot share memory")
            }
            Ok(Err(_)) => format!("not all ranks of the host came within {} ms", limit.as_millis()),
            Err(fault) => fault.to_string(),
        };
        warn!(
            rank = rank.0 as u64,
            "{rank} uses QUIC inside its host instead of shared memory: {why}"
        );
        Opened::Apart
    }

    /// Tells ranks that wait for this one's descriptors that they will not come.
    fn refuse_memory(&self, ranks: &[Rank]) {
        for rank in ranks.iter().copied() {
            self.connect(rank);
            let context = Arc::clone(&self.context);
            self.runtime.spawn(async move {
                if let Ok(link) = context.linked(rank).await {
                    let _ = link.control.send(Frame::SharesNoMemory(context.id));
                }
            });
        }
    }

    fn meeting_time(&self) -> Duration {
        self.context.links.plan.dial_timeout / PART_OF_INIT
    }

    /// All ranks know how far it worked for each.
    pub fn settle(&mut self, opened: &[Opened]) {
        let (mut names, rank) = (self.claims(), self.context.place.rank);
        for group in self.claimed().groups() {
            if group.iter().any(|rank| opened[rank.0] == Opened::Apart) {
                group.iter().for_each(|rank| names[rank.0] = None);
            }
        }
        let is_open = opened.iter().all(|opened| *opened == Opened::Whole);
        self.hosts = Hosts::new(&names, rank).opened(is_open);
        if self.hosts.mine().len() == 1 {
            self.host = None;
        }
        if let Some(host) = &self.host {
            let (host, ranks) = (Arc::clone(host), self.hosts.mine().to_vec());
            self.context.share_faults(SharedFaults { host, ranks });
        }
    }

    /// Whether ranks of one host that share memory outnumber its processors. `None` if none share any.
    pub fn is_crowded(&self) -> Option<bool> {
        self.host.as_ref().map(|host| host.is_crowded())
    }

    /// This rank makes a call in which ranks meet in memory.
    #[inline]
    pub fn note(&self, seq: u64, call: CallWords) {
        self.context.diary.note(seq, call);
    }

    /// The memory that all ranks share, if they do.
    #[inline]
    pub fn one_host(&self) -> Option<&Host> {
        self.host.as_deref().filter(|host| host.size() == self.context.place.size)
    }

    pub(super) fn shared(&self) -> &Host {
        self.host.as_ref().expect("algorithms for one host are chosen only where it is one")
    }

    /// Waits until this rank, which may be so many `ahead`, may lay out something in a round.
    #[inline]
    pub(super) async fn room(&self, lane: Lane, round: u64, ahead: u64) -> Result<()> {
        let host = self.shared();
        let mut afresh = true;
        while let Some(slow) = host.awaited(lane, round, ahead, afresh) {
            afresh = false;
            self.seen(slow, || host.has_passed(lane, slow, round - ahead)).await?;
        }
        Ok(())
    }

    /// A rank among those of this host.
    #[inline]
    pub(super) fn index_of(&self, rank: Rank) -> usize {
        let mine = self.hosts.mine();
        match mine.get(rank.0) {
            Some(same) if *same == rank => rank.0,
            _ => mine.binary_search(&rank).expect("only ranks of the host are looked at"),
        }
    }

    /// Waits for something that a rank of this host does in memory.
    #[inline]
    pub(super) async fn seen(&self, index: usize, is_there: impl Fn() -> bool) -> Result<()> {
        if self.shared().comes_in_a_moment(&is_there) {
            return Ok(());
        }
        self.seen_later(index, is_there).await
    }

    async fn seen_later(&self, index: usize, is_there: impl Fn() -> bool) -> Result<()> {
        let (context, host, peer) = (&self.context, self.shared(), self.hosts.mine()[index]);
        let there = poll_fn(|context| match is_there() {
            true => Poll::Ready(Ok(true)),
            false if host.has_left(index) => Poll::Ready(Ok(false)),
            false => {
                bell::look_again(context);
                Poll::Pending
            }
        });
        let waited = context.on_link(peer, context.while_there(peer, there)).await;
        match waited {
            // It may have come just before the rank went.
            _ if is_there() => Ok(()),
            Ok(_) => Err(self.why_gone(peer, HAS_LEFT).await),
            Err(error) => Err(error),
        }
    }

    /// A rank that leaves because of a fault says so over its links, which takes longer. `otherwise`: what is to
    /// be said if it says nothing.
    pub(super) async fn why_gone(&self, peer: Rank, otherwise: &str) -> error::Error {
        let context = &self.context;
        if let Some(fault) = context.published_by(peer) {
            return context.learn(fault);
        }
        let news = {
            let _inside = self.runtime.enter();
            timeout(NEWS_TIME, context.gone(peer))
        };
        match context.or_fault(news).await {
            Ok(how) => context.lost(peer, how.unwrap_or_else(|_| otherwise.to_owned())),
            Err(fault) => fault,
        }
    }

    /// What a rank has laid out is not what was expected.
    pub(super) fn unexpected(
        &self,
        peer: Rank,
        header: &Header,
        theirs: Option<Header>,
    ) -> error::Error {
        let checked = theirs.map(|theirs| header.check(self.context.place.rank, peer, &theirs));
        match checked {
            Some(Err(error)) => error,
            _ => {
                error::Error::Protocol { peer, what: "laid out what no nexar lays out".to_owned() }
            }
        }
    }
}
