//! Creation of communicators of threads of this process, or of several processes.
//!
//! Leaves to `bootstrap` how processes find each other, and to `split` the communicators that are
//! split off another. Invariant: invalid settings are refused before any rank is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::info;

use crate::bootstrap::{self, World};
use crate::collective::table;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::rank::Rank;
use crate::runtime;
use crate::transport::mem::MemWorld;
use crate::transport::{Mesh, prepare_shared_memory};

use super::cuda::{CurrentDevice, Prepared};
use super::leave::DELIVERY_POLL;
use super::{Communicator, hosts};

/// How long an initialisation that has failed waits until the other ranks have received the cause.
const REFUSAL_DELIVERY: Duration = Duration::from_millis(50);

/// Creates `size` communicators whose ranks are threads of this process, in rank order.
pub fn create_in_process(size: usize, config: &Config) -> Result<Vec<Arc<Communicator>>> {
    create_over(MemWorld::new(size)?.meshes(), config)
}

/// Creates communicators over the meshes of all ranks, for tests that inject faults into them.
pub fn create_over(meshes: Vec<Mesh>, config: &Config) -> Result<Vec<Arc<Communicator>>> {
    let name = new_name(config);
    info!("communicator {name}: {} ranks in this process", meshes.len());
    let communicator = |mesh| Communicator::new(&name, mesh, config);
    meshes.into_iter().map(communicator).collect()
}

/// Creates a communicator over a mesh of the caller, for tests that take the part of its other
/// ranks.
#[cfg(feature = "testing")]
pub fn create_on(mesh: Mesh, config: &Config) -> Result<Arc<Communicator>> {
    Communicator::new(&new_name(config), mesh, config)
}

/// Creates this process's rank of a communicator of processes that share a unique id. `device`: the
/// device that the program uses for it. The other ranks receive the reason if it cannot be used.
pub fn join(
    id: &[u8; bootstrap::BYTES],
    world: World,
    config: &Config,
    device: CurrentDevice,
) -> Result<Arc<Communicator>> {
    if world.size == 1 {
        bootstrap::retire(id)?;
    }
    create(world, config, device, |deadline| bootstrap::join(id, world, config, deadline))
}

/// Creates this process's rank of the communicator that a launcher has described in the
/// environment. Without a description the communicator has one rank.
pub fn join_environment(config: &Config, device: CurrentDevice) -> Result<Arc<Communicator>> {
    let (world, address) = match (config.rank, config.nranks, &config.comm_id) {
        (None, None, None) => (World { rank: Rank(0), size: 1 }, ""),
        (Some(rank), Some(size), _) if rank >= size => {
            let what = format!("NEXAR_RANK={rank} is not below NEXAR_NRANKS={size}");
            return Err(Error::Argument(what));
        }
        (Some(rank), Some(1), _) => (World { rank: Rank(rank), size: 1 }, ""),
        (Some(rank), Some(size), Some(address)) => (World { rank: Rank(rank), size }, &**address),
        _ => {
            let what = "NEXAR_RANK, NEXAR_NRANKS and NEXAR_COMM_ID must be set together".to_owned();
            return Err(Error::Usage(what));
        }
    };
    create(world, config, device, |deadline| bootstrap::join_at(address, world, config, deadline))
}

fn create(
    world: World,
    config: &Config,
    device: CurrentDevice,
    mesh: impl FnOnce(Instant) -> Result<Mesh>,
) -> Result<Arc<Communicator>> {
    // The settings are checked before any rank is waited for.
    table::parse(&config.algo)?;
    let prepared = Prepared::new(device, config);
    // Starts after the device is prepared: calls of the driver have no deadline.
    let began = Instant::now();
    let limit = config.init_timeout;
    let deadline = began + limit;
    if world.size == 1 {
        if let Some(failure) = prepared.failure(world.rank) {
            return Err(failure);
        }
        let alone = create_in_process(1, config)?.remove(0);
        return Ok(prepared.attach_to(alone));
    }
    if !config.shm_disable {
        prepare_shared_memory(world.size);
    }
    let joined = mesh(deadline).inspect_err(|_| deliver_refusals());
    let mut mesh = joined.map_err(|error| prepared.failure(world.rank).unwrap_or(error))?;
    if let Some(failure) = prepared.failure(world.rank) {
        let fault = mesh.membership.fail(failure);
        mesh.membership.leave();
        return Err(fault);
    }
    let opening = hosts::open_shared_memory(&mut mesh);
    let opened = runtime::drive(opening, deadline + bootstrap::GRACE, false);
    let late = || Error::Timeout { limit_ms: limit.as_millis(), blame: mesh.why_incomplete() };
    opened.ok_or_else(late)??;
    let (name, rank) = (new_name(config), world.rank);
    let ms = began.elapsed().as_millis();
    info!(rank = rank.0 as u64, "communicator {name}: {rank} of {} after {ms} ms", world.size);
    Communicator::new(&name, mesh, config).map(|created| prepared.attach_to(created))
}

/// If the root is in this process, waits until the other ranks have received the cause: the program
/// may then exit.
fn deliver_refusals() {
    let deadline = Instant::now() + REFUSAL_DELIVERY;
    runtime::hand_over();
    while bootstrap::is_answering() && Instant::now() < deadline {
        std::thread::sleep(DELIVERY_POLL);
    }
}

fn new_name(config: &Config) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    config.name.clone().unwrap_or_else(|| number.to_string())
}
