//! `NEXAR_COMM_SECRET` as a key.
//!
//! All public keys that depend on the secret are derived from this key. A stranger who sees one can
//! test guesses of the secret offline, so each guess must cost more than one hash: PBKDF2, once per
//! process. A secret of 64 hexadecimal digits counts as random and is only hashed.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use ring::pbkdf2;
use zeroize::Zeroizing;

use crate::config::CommSecret;
use crate::transport::key::Secret;

use super::session::sha256;

/// Takes 7 ms on a core with SHA-256 instructions, less than 30 ms on one without.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(40_000).expect("not zero");
const SALT: &[u8] = b"nexar/1 NEXAR_COMM_SECRET";

/// The last secret and its key: a process seldom has two.
static LAST: Mutex<Option<(Zeroizing<Vec<u8>>, Secret)>> = Mutex::new(None);

/// The key of a secret. Computes for milliseconds: not for a task of the runtime.
pub fn key(secret: &CommSecret) -> Secret {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some((known, key)) if **known == secret.bytes() => key.clone(),
        _ => {
            let key = derive(secret.bytes());
            *last = Some((Zeroizing::new(secret.bytes().to_vec()), key.clone()));
            key
        }
    }
}

fn derive(secret: &[u8]) -> Secret {
    if secret.len() == 64 && secret.iter().all(u8::is_ascii_hexdigit) {
        return Secret::from_bytes(sha256(secret));
    }
    let mut key = Zeroizing::new([0; 32]);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, SALT, secret, &mut key[..]);
    Secret::from_bytes(*key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(secret: &Secret) -> String {
        secret.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_secret_that_can_be_guessed_costs_forty_thousand_rounds() {
        // Python: hashlib.pbkdf2_hmac("sha256", secret, b"nexar/1 NEXAR_COMM_SECRET", 40000)
        let key = derive(b"my-training-job-1");
        assert_eq!(hex(&key), "f068a092993a43f574c9bf4617181fa3725d6dac04aa7a547a9108e0ee479c49");
    }

    #[test]
    fn a_secret_of_64_hexadecimal_digits_is_hashed_once() {
        let random = [b'7'; 64];
        assert_eq!(derive(&random).bytes(), &sha256(&random));
        assert_ne!(derive(&random[..63]).bytes(), &sha256(&random[..63]));
    }
}
