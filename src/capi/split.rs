//! Communicators made of the ranks of another.

use std::ffi::c_int;
use std::sync::Arc;

use crate::comm::{ColorKey, SplitRequest};
use crate::config::Config;
use crate::error::{Code, Error, Result};

use super::types::{NEXAR_SPLIT_NOCOLOR, nexarComm_t, nexarConfig_t};
use super::{arguments, submit};

/// Makes a communicator of the ranks that pass the same color, 0 or more, and writes its handle to
/// newcomm: ranks are ordered by key, and by their rank in comm where keys are equal. Every rank of
/// comm must call it; one that passes NEXAR_SPLIT_NOCOLOR gets NULL.
///
/// The new communicator uses the connections of comm, with their peerTimeoutMs. Otherwise the two
/// are independent: either may fail, be aborted or be destroyed without the other, and each must be
/// destroyed; but a rank that is lost is lost to all communicators it is a member of. Where config
/// is NULL or its fields are not set, it has the settings of comm, but not its name. A split counts
/// as an operation of comm; it is waited for, whatever config.blocking is. Once all ranks have
/// called it, it takes NEXAR_INIT_TIMEOUT_MS at most; nexarCommAbort of comm by another thread ends
/// it, and nexarCommDestroy of comm waits for it.
///
/// Inside a group, newcomm is NULL until the end of the group.
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
            Err(Error::Argument(format!("color {color} is neither NEXAR_SPLIT_NOCOLOR nor from 0")))
        }
    }
}
