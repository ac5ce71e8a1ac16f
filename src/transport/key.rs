//! The identity of a peer: Ed25519 keys, carried as raw public keys (RFC 7250) with no certificate.
//!
//! Leaves to `quic` how keys are verified in TLS. Invariant: a `PublicKey` that was received is
//! never one of the few low-order points, for which anyone can forge a signature.

use std::fmt;
use std::sync::Arc;

use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// The prefix of the 32 bytes of a seed in PKCS#8, and of a public key in its
/// SubjectPublicKeyInfo (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The y coordinates of the points of order 8. `is_low_order` recognizes the other low-order points
/// by their pattern.
const ORDER_8: [[u8; 32]; 2] = [
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ],
];

/// 32 secret bytes: wiped when dropped, never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    pub fn random() -> Result<Self> {
        Ok(Self(Zeroizing::new(random()?)))
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Derives another secret from this one, a salt and a purpose (HKDF).
    pub fn derive(&self, salt: &[u8], purpose: &[&[u8]]) -> Self {
        struct Len32;
        impl hkdf::KeyType for Len32 {
            fn len(&self) -> usize {
                32
            }
        }
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0[..]);
        let mut derived = Zeroizing::new([0; 32]);
        key.expand(purpose, Len32)
            .and_then(|okm| okm.fill(&mut derived[..]))
            .expect("32 bytes are within what HKDF can give");
        Self(derived)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Random bytes of the system.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::System("the system returned no random bytes".to_owned()))?;
    Ok(bytes)
}

/// A public key: the identity of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// A key that was received. `None` for a low-order point.
    pub fn parse(bytes: [u8; 32]) -> Option<Self> {
        (!is_low_order(&bytes)).then_some(Self(bytes))
    }

    /// The key in the SubjectPublicKeyInfo in which rustls carries raw public keys.
    pub fn from_spki(der: &[u8]) -> Option<Self> {
        Self::parse(der.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}{:02x}{:02x}..", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

fn is_low_order(key: &[u8; 32]) -> bool {
    let mut y = *key;
    y[31] &= 0x7f; // the sign of x does not matter
    let small = |low| y[0] == low && y[1..].iter().all(|byte| *byte == 0);
    let near_p = |low| y[0] == low && y[1..31].iter().all(|byte| *byte == 0xff) && y[31] == 0x7f;
    small(0) || small(1) || near_p(0xec) || near_p(0xed) || near_p(0xee) || ORDER_8.contains(&y)
}

/// A key pair, ready for TLS.
pub struct Identity {
    pair: Ed25519KeyPair,
    public: PublicKey,
    pub(super) certified: Arc<CertifiedKey>,
}

impl Identity {
    pub fn random() -> Result<Self> {
        Self::from_seed(&Secret::random()?)
    }

    pub fn from_seed(seed: &Secret) -> Result<Self> {
        let broken =
            |error: &dyn fmt::Display| Error::System(format!("a key cannot be created: {error}"));
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.bytes()).map_err(|e| broken(&e))?;
        let public: [u8; 32] = pair.public_key().as_ref().try_into().map_err(|e| broken(&e))?;
        let mut pkcs8 = Zeroizing::new([0; 48]);
        pkcs8[..16].copy_from_slice(&PKCS8_PREFIX);
        pkcs8[16..].copy_from_slice(seed.bytes());
        let key = rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..]))
            .map_err(|e| broken(&e))?;
        let spki = [&SPKI_PREFIX[..], &public[..]].concat();
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], key));
        Ok(Self { pair, public: PublicKey(public), certified })
    }

    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature = self.pair.sign(message);
        signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
    }

    #[test]
    fn keys_and_signatures_are_those_of_rfc_8032() {
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let identity = Identity::from_seed(&Secret::from_bytes(seed)).unwrap();
        let public: [u8; 32] =
            hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(identity.public().bytes(), &public);
        assert_eq!(identity.sign(b"")[..4], [0xe5, 0x56, 0x43, 0x00]);
        assert!(identity.public().verify(b"x", &identity.sign(b"x")));
        assert!(!identity.public().verify(b"y", &identity.sign(b"x")));
    }

    #[test]
    fn low_order_points_are_no_keys() {
        let mut bad = vec![[0; 32], ORDER_8[0], ORDER_8[1]];
        bad.push(std::array::from_fn(|i| u8::from(i == 0)));
        for low in [0xec, 0xed, 0xee] {
            bad.push(std::array::from_fn(|i| match i {
                0 => low,
                31 => 0x7f,
                _ => 0xff,
            }));
        }
        for mut key in bad {
            assert!(PublicKey::parse(key).is_none());
            key[31] |= 0x80;
            assert!(PublicKey::parse(key).is_none());
        }
        assert!(PublicKey::parse(*Identity::random().unwrap().public().bytes()).is_some());
    }

    #[test]
    fn two_random_secrets_share_no_more_bits_than_chance() {
        for _ in 0..100 {
            let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
            let differ: u32 = (0..32).map(|i| (a.bytes()[i] ^ b.bytes()[i]).count_ones()).sum();
            assert!((80..176).contains(&differ), "{differ} of 256 bits differ");
        }
    }

    #[test]
    fn a_secret_is_not_printed_and_derives_by_salt_and_purpose() {
        let secret = Secret::from_bytes([7; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let derive = |salt: &[u8], purpose: &[u8]| *secret.derive(salt, &[purpose]).bytes();
        assert_eq!(derive(b"s", b"p"), derive(b"s", b"p"));
        assert_ne!(derive(b"s", b"p"), derive(b"t", b"p"));
        assert_ne!(derive(b"s", b"p"), derive(b"s", b"q"));
    }
}
