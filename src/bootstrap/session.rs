//! Types that the joining rank and the root share: the rank, its settings, and the binding of a
//! signature to a connection.

use std::net::SocketAddr;
use std::time::Instant;

use quinn::{Connection, VarInt};
use ring::digest::{SHA256, digest};

use crate::config::Config;
use crate::rank::Rank;
use crate::transport::key::{Identity, Secret};

/// The code with which a connection between a root and a rank is closed in good order.
pub const CLOSE_CODE: VarInt = VarInt::from_u32(0);

/// This rank and the number of ranks.
#[derive(Clone, Copy)]
pub struct World {
    pub rank: Rank,
    pub size: usize,
}

/// The settings of a rank that joins.
pub struct Settings {
    pub config: Config,
    /// The time by which all ranks must be connected.
    pub deadline: Instant,
    /// The key that all ranks derive from the id.
    pub credentials: Identity,
    /// The secret that only the ranks of the id know.
    pub member_secret: Secret,
    /// The address in `NEXAR_ADVERTISE_ADDR`.
    pub advertised: Option<SocketAddr>,
    /// Hash of the settings that all ranks must share.
    pub hash: u64,
    /// Whether a refusal is retried until the deadline, because rank 0 may not serve the id yet.
    pub retry: bool,
    /// Whether this process has CUDA devices.
    pub cuda: bool,
}

/// Keying material of TLS that only the two ends of this connection know (RFC 5705).
pub fn binding(connection: &Connection, nonce: u64) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let label = b"EXPORTER-nexar-join-1";
    connection.export_keying_material(&mut out, label, &nonce.to_le_bytes()).ok()?;
    Some(out)
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}
