//! Splits: communicators of some ranks of another one.

use std::ffi::c_int;
use std::sync::Arc;

use crate::comm::{ColorKey, SplitRequest};
use crate::config::Config;
use crate::error::{Code, Error, Result};

use super::types::{NEXAR_SPLIT_NOCOLOR, nexarComm_t, nexarConfig_t};
use super::{arguments, submit};

/// Creates one communicator for each color, from the ranks of comm that pass that color, and writes
/// the handle of this rank's to newcomm. Ranks are numbered by key; equal keys keep their order in
/// comm. color is 0 or more. Every rank of comm calls it; one that passes NEXAR_SPLIT_NOCOLOR gets
/// NULL.
///
/// A split is an operation of comm. The caller waits for it, whatever config.blocking is. Once all
/// ranks have called it, it takes at most NEXAR_INIT_TIMEOUT_MS. nexarCommAbort of comm in another
/// thread ends it.
///
/// newcomm shares the connections of comm, and their peerTimeoutMs. Apart from that the two are
/// independent: each fails, is aborted and is destroyed without the other. A lost rank is lost to
/// all communicators that it is a member of. Settings that config does not give (all of them if
/// config is NULL) are those of comm, except its name.
///
/// Inside a group, newcomm is NULL until the group ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommSplit(
    comm: nexarComm_t,
    color: c_int,
    key: c_int,
    newcomm: *mut nexarComm_t,
    config: *const nexarConfig_t,
) -> Code {
    submit::splitting("nexarCommSplit", comm, newcomm, |communicator| {
        let color_key = ColorKey { color: self::color(color)?, key };
        let inherited = Config { name: None, ..communicator.config().clone() };
        // SAFETY: the caller passes NULL or a nexarConfig_t as long as its size field says.
        let (config, _) = unsafe { arguments::config(config, &inherited) }?;
        Ok(SplitRequest { communicator: Arc::clone(communicator), color_key, config })
    })
}

fn color(color: c_int) -> Result<Option<u32>> {
    match u32::try_from(color) {
        Ok(color) => Ok(Some(color)),
        Err(_) if color == NEXAR_SPLIT_NOCOLOR => Ok(None),
        Err(_) => {
            let expected = "expected 0 or more, or NEXAR_SPLIT_NOCOLOR";
            Err(Error::Argument(format!("color {color} is negative: {expected}")))
        }
    }
}
