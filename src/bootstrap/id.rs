//! The 128 bytes that ranks share to find each other.
//!
//! ```text
//! 0    4 magic "NXR1"        16   32 join secret
//! 4    1 version = 1         48   32 root's public key
//! 5    1 flags               80   18 address 1: IPv6 or mapped IPv4 (16), port (2)
//! 6    1 addresses, 1 or 2   98   18 address 2, zero if unused
//! 7    1 zero                116   8 zero
//! 8    8 nonce, public       124   4 CRC-32C of bytes 0 to 123
//! ```
//!
//! The id is a bearer credential: any process that has it can join. With `NEXAR_COMM_SECRET` set,
//! joining needs that secret too, and an id without the flag is refused. An id is never logged;
//! the log names its nonce.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::error::{Error, Result};
use crate::transport::key::{Identity, PublicKey, Secret};
use crate::transport::wire::Reader;

pub const BYTES: usize = 128;
const MAGIC: [u8; 4] = *b"NXR1";
/// The ranks must also know `NEXAR_COMM_SECRET`.
const WITH_SECRET: u8 = 1;
/// No process serves the id until rank 0 joins.
const SERVED_BY_RANK_0: u8 = 2;

#[derive(Clone)]
pub struct UniqueId {
    pub nonce: u64,
    pub secret: Secret,
    pub root: PublicKey,
    pub addresses: Vec<SocketAddr>,
    pub with_secret: bool,
    pub served_by_rank_0: bool,
}

impl UniqueId {
    pub fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = 1;
        out[5] = if self.with_secret { WITH_SECRET } else { 0 }
            | if self.served_by_rank_0 { SERVED_BY_RANK_0 } else { 0 };
        out[6] = self.addresses.len() as u8;
        out[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        out[16..48].copy_from_slice(self.secret.bytes());
        out[48..80].copy_from_slice(self.root.bytes());
        for (index, address) in self.addresses.iter().enumerate() {
            let at = 80 + 18 * index;
            out[at..at + 18].copy_from_slice(&encode_address(*address));
        }
        let checksum = crc32c::crc32c(&out[..124]);
        out[124..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; BYTES]) -> Result<Self> {
        let corrupt = |what| Error::Argument(format!("commId is not a nexarUniqueId: {what}"));
        if bytes[0..4] != MAGIC {
            return Err(corrupt("its first bytes are wrong; pass all bytes of nexarGetUniqueId"));
        }
        if crc32c::crc32c(&bytes[..124]).to_le_bytes() != bytes[124..] {
            return Err(corrupt("its checksum is wrong; it was truncated or changed in transit"));
        }
        Self::decode_fields(&bytes[4..124])
            .ok_or_else(|| corrupt("another version of nexar created it"))
    }

    fn decode_fields(fields: &[u8]) -> Option<Self> {
        let mut reader = Reader(fields);
        let (version, flags, count) = (reader.u8()?, reader.u8()?, reader.u8()?);
        reader.zeros(1)?;
        let known = version == 1
            && flags & !(WITH_SECRET | SERVED_BY_RANK_0) == 0
            && (1..=2).contains(&count);
        known.then_some(())?;
        let nonce = reader.u64()?;
        let secret = Secret::from_bytes(reader.array()?);
        let root = PublicKey::parse(reader.array()?)?;
        let mut addresses = Vec::new();
        for _ in 0..count {
            addresses.push(decode_address(reader.array()?)?);
        }
        reader.zeros(18 * (2 - usize::from(count)) + 8)?;
        reader.end()?;
        let (with_secret, served_by_rank_0) =
            (flags & WITH_SECRET != 0, flags & SERVED_BY_RANK_0 != 0);
        Some(Self { nonce, secret, root, addresses, with_secret, served_by_rank_0 })
    }

    /// Fails if the id needs `NEXAR_COMM_SECRET` and it is not set, or the reverse: an attacker who
    /// replaced the id in transit could otherwise drop the need for a secret.
    pub fn check_secret(&self, is_set: bool) -> Result<()> {
        let what = match (self.with_secret, is_set) {
            (true, false) => {
                "this unique id needs NEXAR_COMM_SECRET: set it as in the process that created the \
                 id"
            }
            (false, true) => {
                "NEXAR_COMM_SECRET is set, but this unique id was created without it: set it in \
                 the process that calls nexarGetUniqueId too"
            }
            _ => return Ok(()),
        };
        Err(Error::Usage(what.to_owned()))
    }

    /// The identity that only the legitimate ranks can derive.
    pub fn join_identity(&self, comm_key: Option<&Secret>) -> Result<Identity> {
        Identity::from_seed(&self.derive(comm_key, b"nexar/1 join ed25519"))
    }

    /// A secret that only the legitimate ranks can derive.
    pub fn derive(&self, comm_key: Option<&Secret>, purpose: &[u8]) -> Secret {
        let salt = comm_key.map(|key| &key.bytes()[..]).unwrap_or_default();
        let nonce = self.nonce.to_le_bytes();
        self.secret.derive(salt, &[purpose, &nonce, self.root.bytes()])
    }

    /// The TLS server name of the root.
    pub fn service(&self) -> String {
        format!("root.{:016x}.nexar", self.nonce)
    }
}

pub fn encode_address(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut out = [0; 18];
    out[..16].copy_from_slice(&ip.octets());
    out[16..].copy_from_slice(&address.port().to_le_bytes());
    out
}

/// `None` for an address that is not that of one host: unspecified, multicast, or port 0.
pub fn decode_address(bytes: [u8; 18]) -> Option<SocketAddr> {
    let mut reader = Reader(&bytes);
    let ip = IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?)).to_canonical();
    let port = reader.u16()?;
    (port != 0 && !ip.is_unspecified() && !ip.is_multicast()).then_some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn id() -> UniqueId {
        UniqueId {
            nonce: 7,
            secret: Secret::from_bytes([9; 32]),
            root: Identity::random().unwrap().public(),
            addresses: vec!["10.1.2.3:4567".parse().unwrap(), "[2001:db8::1]:99".parse().unwrap()],
            with_secret: true,
            served_by_rank_0: true,
        }
    }

    #[test]
    fn an_id_survives_encoding_and_decoding() {
        for addresses in 1..=2 {
            let mut id = id();
            id.addresses.truncate(addresses);
            let back = UniqueId::decode(&id.encode()).unwrap();
            assert_eq!(back.encode(), id.encode());
            assert_eq!(back.addresses, id.addresses);
        }
    }

    #[test]
    fn every_changed_byte_is_found() {
        let good = id().encode();
        for index in 0..BYTES {
            for change in [1, 0x80, 0xff] {
                let mut bad = good;
                bad[index] ^= change;
                let error = UniqueId::decode(&bad).err().unwrap_or_else(|| panic!("byte {index}"));
                assert_eq!(error.code(), Code::InvalidArgument);
            }
        }
        assert!(UniqueId::decode(&[0; BYTES]).is_err());
    }

    #[test]
    fn the_join_key_depends_on_the_secret_of_the_environment() {
        let id = id();
        let key = |secret: Option<[u8; 32]>| {
            id.join_identity(secret.map(Secret::from_bytes).as_ref()).unwrap().public()
        };
        assert!(key(Some([1; 32])) != key(Some([2; 32])));
        assert!(key(Some([1; 32])) != key(None));
    }

    #[test]
    fn a_secret_is_needed_if_and_only_if_the_id_was_created_with_one() {
        let mut id = id();
        for with_secret in [false, true] {
            id.with_secret = with_secret;
            assert!(id.check_secret(with_secret).is_ok());
            let error = id.check_secret(!with_secret).unwrap_err();
            assert_eq!(error.code(), Code::InvalidUsage);
            assert!(error.to_string().contains("NEXAR_COMM_SECRET"), "{error}");
        }
    }
}
