//! From a unique id or an environment to a roster and a mesh.
//!
//! Protocol NXB1. The id contains the address and the key of a root, and a secret. Every rank
//! derives the same join key from the secret and dials the root. Each side accepts only the other's
//! key, so a stranger fails inside TLS. Each rank then sends a key of its own, with a signature
//! that is bound to the connection. The root waits for all ranks and sends the same table of keys
//! and addresses to each. From then on a rank is identified by its key.

mod address;
pub mod fingerprint;
pub mod id;
mod join;
pub mod message;
mod root;
mod secret;
mod session;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::info;

use crate::config::Config;
use crate::device;
use crate::error::{Error, Result};
use crate::parker;
use crate::rank::Rank;
use crate::runtime;
use crate::transport::Mesh;
use crate::transport::key::{Identity, Secret, random};
use crate::transport::quic::endpoint::Endpoint;
use crate::transport::quic::{beacon, on_exit};

use fingerprint::THIS_BUILD;
use id::UniqueId;
use session::{Settings, sha256};

pub use id::BYTES;
pub use join::GRACE;
pub use message::MAX_RANKS;
pub use session::World;

/// Creates an id. This process serves it, unless the settings name an address at which rank 0 will.
pub fn create_id(config: &Config) -> Result<[u8; BYTES]> {
    let deadline = Instant::now() + config.init_timeout;
    if let Some(address) = &config.root_address {
        return Ok(Rendezvous::at(address, config, deadline)?.id.encode());
    }
    let endpoint = endpoint(config, PORT_OF_SETTINGS)?;
    let advertised = address::advertised(config, endpoint.port(), deadline)?;
    let root = Identity::random()?;
    let id = UniqueId {
        nonce: u64::from_le_bytes(random()?),
        secret: Secret::random()?,
        root: root.public(),
        addresses: address::of_root(config, advertised, endpoint.port())?,
        with_secret: config.comm_secret.is_some(),
        served_by_rank_0: false,
    };
    serve(&endpoint, &id, &root, config)?;
    Ok(id.encode())
}

/// Waits until the roots of this process have answered all ranks, at most `ANSWER`, and closes the
/// socket. Called when the process ends.
pub async fn leave() {
    let _ = tokio::time::timeout(root::ANSWER, root::idle()).await;
    let endpoint = ENDPOINT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(endpoint) = endpoint {
        endpoint.close().await;
    }
}

/// Whether a root of this process has answers to send.
pub fn is_answering() -> bool {
    root::is_answering()
}

/// Stops serving an id if this process serves it: a single rank needs no root.
pub fn retire(id: &[u8; BYTES]) -> Result<()> {
    let id = UniqueId::decode(id)?;
    if let Some(endpoint) = &*ENDPOINT.lock().unwrap_or_else(PoisonError::into_inner) {
        endpoint.end_service(&id.service());
    }
    Ok(())
}

/// Joins the communicator of an id. Returns when all ranks are connected to their neighbours. Fails
/// at most `GRACE` after the deadline.
pub fn join(id: &[u8; BYTES], world: World, config: &Config, deadline: Instant) -> Result<Mesh> {
    let id = UniqueId::decode(id)?;
    match &config.root_address {
        Some(address) if id.served_by_rank_0 => join_at(address, world, config, deadline),
        _ => {
            let retry = id.served_by_rank_0;
            join_id(id, world, config, deadline, retry)
        }
    }
}

/// Joins with an address and a secret instead of an id: rank 0 listens at the address.
pub fn join_at(address: &str, world: World, config: &Config, deadline: Instant) -> Result<Mesh> {
    let Rendezvous { id, root } = Rendezvous::at(address, config, deadline)?;
    let mut config = config.clone();
    if world.rank == Rank(0) {
        let port = id.addresses[0].port();
        config.ports = port..=port;
        let endpoint = endpoint(&config, PORT_OF_ADDRESS)?;
        serve(&endpoint, &id, &root, &config)?;
    }
    join_id(id, world, &config, deadline, true)
}

/// An id and the root's key, both derived from an address, a secret and the job. All ranks and all
/// builds derive the same: two builds must be able to connect to find that they differ.
struct Rendezvous {
    id: UniqueId,
    root: Identity,
}

impl Rendezvous {
    fn at(address: &str, config: &Config, deadline: Instant) -> Result<Self> {
        let Some(secret) = &config.comm_secret else {
            let what = "set the same NEXAR_COMM_SECRET on all ranks";
            return Err(Error::Usage(format!("joining at {address} needs a secret: {what}")));
        };
        let key = secret::key(secret);
        // The root of another run has another key, so a late rank of that run is refused.
        let job = config.job.as_ref().map(|job| job.id.as_bytes()).unwrap_or_default();
        let from = |purpose: &[u8]| key.derive(address.as_bytes(), &[purpose, job]);
        let root = Identity::from_seed(&from(b"nexar/1 root ed25519"))?;
        let id = UniqueId {
            // Not derived from the secret: a rank with a wrong secret must find the root, which
            // then reports it.
            nonce: hash(&format!("nexar/1 at {address}")),
            secret: from(b"nexar/1 join"),
            root: root.public(),
            addresses: address::resolve(address, config, deadline)?.into_iter().take(2).collect(),
            with_secret: true,
            served_by_rank_0: true,
        };
        Ok(Self { id, root })
    }
}

/// Executes everything that blocks, computes for long or calls the CUDA driver, which a task of the
/// network must not do; then spawns `join::join`.
fn join_id(
    id: UniqueId,
    world: World,
    config: &Config,
    deadline: Instant,
    retry: bool,
) -> Result<Mesh> {
    id.check_secret(config.comm_secret.is_some())?;
    let endpoint = endpoint(config, PORT_OF_SETTINGS)?;
    let settings = Settings {
        config: config.clone(),
        deadline,
        credentials: credentials(&id, config)?,
        member_secret: id.derive(comm_key(config).as_ref(), b"nexar/1 members"),
        advertised: address::advertised(config, endpoint.port(), deadline)?,
        hash: settings_hash(config),
        retry,
        cuda: device::driver().is_some(),
    };
    let joining = runtime::io(config.threads)?.spawn(join::join(endpoint, id, world, settings));
    // The task keeps its own deadlines; this one guards against a defect in it.
    match parker::block_on(joining, deadline + GRACE + Duration::from_secs(5)) {
        Some(Ok(joined)) => joined,
        Some(Err(panic)) => Err(Error::Panic(panic.to_string())),
        None => Err(Error::Panic("initialisation missed its own deadline".to_owned())),
    }
}

/// The key that proves that a rank has the id and, if one is set, the secret of the environment.
fn credentials(id: &UniqueId, config: &Config) -> Result<Identity> {
    id.join_identity(comm_key(config).as_ref())
}

/// The key derived from the secret of the environment. `None` if no secret is set.
fn comm_key(config: &Config) -> Option<Secret> {
    config.comm_secret.as_ref().map(secret::key)
}

fn serve(endpoint: &Endpoint, id: &UniqueId, root: &Identity, config: &Config) -> Result<()> {
    let expected = HashSet::from([credentials(id, config)?.public()]);
    let service = endpoint.serve(id.service(), root, expected);
    runtime::io(config.threads)?.spawn(root::serve(service, id.nonce, id.served_by_rank_0));
    Ok(())
}

/// The only socket of the process, opened at the first use and kept.
static ENDPOINT: Mutex<Option<Arc<Endpoint>>> = Mutex::new(None);

/// The settings that a user changes if the port of this process cannot be used.
const PORT_OF_SETTINGS: &str = "NEXAR_PORT or NEXAR_PORT_RANGE";
/// The same for rank 0 where all ranks were told its address.
const PORT_OF_ADDRESS: &str = "the port in NEXAR_COMM_ID or MASTER_PORT on all ranks";

/// The endpoint of this process. `settings`: where the wanted ports come from.
fn endpoint(config: &Config, settings: &str) -> Result<Arc<Endpoint>> {
    let mut endpoint = ENDPOINT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(endpoint) = &*endpoint {
        let fits = config.ports == (0..=0) || config.ports.contains(&endpoint.port());
        if !fits {
            let (port, wanted) = (endpoint.port(), &config.ports);
            return Err(Error::Usage(format!(
                "this process already uses UDP port {port}, but its settings ask for {} to {}: \
                 change {settings}",
                wanted.start(),
                wanted.end()
            )));
        }
        return Ok(Arc::clone(endpoint));
    }
    info!("{THIS_BUILD}");
    runtime::set_watchdog(runtime::Watchdog { on_stall: beacon::on_stall, on_exit });
    let _runtime = runtime::io(config.threads)?.enter();
    Ok(Arc::clone(endpoint.insert(Endpoint::open(&config.ports, settings)?)))
}

/// Hash of the settings that two ranks of one build must share to execute the same algorithms.
fn settings_hash(config: &Config) -> u64 {
    hash(&format!("algo {}", config.algo))
}

fn hash(text: &str) -> u64 {
    u64::from_le_bytes(sha256(text.as_bytes())[..8].try_into().expect("8 of 32 bytes"))
}
