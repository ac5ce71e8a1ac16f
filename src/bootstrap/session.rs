//! What a rank and the root of an id share: which rank wants to join, how, and how the two ends of
//! a connection prove that they talk about the same one.

use std::net::SocketAddr;
use std::time::Instant;

use quinn::{Connection, VarInt};
use ring::digest::{SHA256, digest};

use crate::config::Config;
use crate::rank::Rank;
use crate::transport::key::{Identity, Secret};

/// The code with which a connection between a root and a rank is closed in good order.
pub const CLOSE_CODE: VarInt = VarInt::from_u32(0);

/// Which rank of how many.
#[derive(Clone, Copy)]
pub struct World {
    pub rank: Rank,
    pub size: usize,
}

/// How a rank wants to join.
pub struct Settings {
    pub config: Config,
    /// When all ranks must be connected.
    pub deadline: Instant,
    /// The key that all ranks derive from the id.
    pub credentials: Identity,
    /// The secret that only the ranks of the id know.
    pub members: Secret,
    /// Where the user says that others reach this process.
    pub advertised: Option<SocketAddr>,
    /// Hash of what all ranks must share.
    pub hash: u64,
    /// Whether the root may not serve the id yet.
    pub patient: bool,
    /// Whether this process has CUDA devices.
    pub cuda: bool,
}

/// A number that only the two ends of this connection know.
pub fn binding(connection: &Connection, nonce: u64) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let label = b"EXPORTER-nexar-join-1";
    connection.export_keying_material(&mut out, label, &nonce.to_le_bytes()).ok()?;
    Some(out)
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}
