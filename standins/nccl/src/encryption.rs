//! An additional key for the traffic, which is always encrypted.

use std::ffi::{CStr, c_int};

use crate::boundary::{boundary, wrong_argument};
use crate::types::{Head, MAGIC, ncclEncryptionConfig_t, ncclResult_t};

/// All traffic is encrypted with keys derived from the unique id, whatever the mode. With a
/// pre-shared key, ids and communicators created from now on need that key too, as they need
/// NEXAR_COMM_SECRET.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSetEncryption(config: *const ncclEncryptionConfig_t) -> ncclResult_t {
    const NONE: c_int = 0;
    const PSK: c_int = 1;
    const SHORTEST: usize = 32;
    boundary("ncclSetEncryption", || {
        if config.is_null() {
            return Ok(());
        }
        // SAFETY: every version of the structure begins with a head.
        let head = unsafe { config.cast::<Head>().read_unaligned() };
        if head.magic != MAGIC || head.size < size_of::<ncclEncryptionConfig_t>() {
            let what = "config was not initialised with NCCL_ENCRYPTION_CONFIG_INITIALIZER";
            return Err(wrong_argument(what));
        }
        // SAFETY: the structure is at least as long as the version known here.
        let given = unsafe { config.read_unaligned() };
        let key = match given.mode {
            NONE => None,
            PSK if given.psk.is_null() => return Err(wrong_argument("config.psk is NULL")),
            // SAFETY: the caller passes a string.
            PSK => Some(unsafe { CStr::from_ptr(given.psk) }.to_bytes()),
            mode => {
                let what = format!("config.mode {mode} is not a ncclEncryptionMode_t");
                return Err(wrong_argument(what));
            }
        };
        if key.is_some_and(|key| key.len() < SHORTEST) {
            return Err(wrong_argument(format!("config.psk is shorter than {SHORTEST} bytes")));
        }
        Ok(nexar::config::set_comm_secret(key)?)
    })
}
