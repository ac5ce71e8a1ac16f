//! What is needed to open the links of a communicator: its roster, this rank's identity, limits.
//!
//! Leaves to `bootstrap` how ranks agree on a roster. Invariant: a rank is identified by its key
//! alone; addresses and the process only say where to find it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::rank::Rank;
use crate::transport::key::{Identity, PublicKey, Secret};

use super::endpoint::Endpoint;
use super::process::Process;

/// One rank as all others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub key: PublicKey,
    /// Addresses at which it can be reached, best first.
    pub addresses: Vec<SocketAddr>,
    /// Its process, for ranks of the same host.
    pub process: Option<Process>,
    /// Ranks that name the same host may share memory. A rank that names none shares no memory.
    pub host: Option<[u8; 16]>,
    /// Whether it has CUDA devices. If a rank has, all ranks cut large calls in the same places.
    pub cuda: bool,
}

/// What is needed to open the links of a communicator, once all ranks are known.
pub struct Plan {
    pub endpoint: Arc<Endpoint>,
    pub me: Identity,
    pub rank: Rank,
    pub roster: Vec<Member>,
    /// Public number of the communicator. The services of its ranks are named after it.
    pub nonce: u64,
    /// Known only to the ranks.
    pub secret: Secret,
    pub peer_timeout: Duration,
    /// How long to try to reach a peer.
    pub dial_timeout: Duration,
}

impl Plan {
    /// The name of the service that a rank of this communicator registers.
    pub(super) fn service_of(&self, rank: Rank) -> String {
        format!("r{}.{:016x}.nexar", rank.0, self.nonce)
    }
}
