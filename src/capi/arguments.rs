//! C arguments, parsed once: below this file every value is valid by construction.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::time::Duration;

use crate::bootstrap::{MOST_RANKS, World};
use crate::config::Config;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::op::{Fold, RedOp};
use crate::rank::{Place, Rank};

use super::types::{DataTypeCode, NEXAR_API_MAGIC, RedOpCode, nexarConfig_t, nexarStream_t};

pub(super) fn dtype(code: DataTypeCode) -> Result<DataType> {
    DataType::from_code(code)
        .ok_or_else(|| Error::Argument(format!("datatype {code} is not a nexarDataType_t")))
}

pub(super) fn fold(datatype: DataTypeCode, op: RedOpCode) -> Result<Fold> {
    let redop = RedOp::from_code(op)
        .ok_or_else(|| Error::Argument(format!("op {op} is not a nexarRedOp_t")))?;
    Fold::new(dtype(datatype)?, redop)
}

pub(super) fn root(root: c_int, place: Place) -> Result<Rank> {
    match usize::try_from(root) {
        Ok(rank) if rank < place.size => Ok(Rank(rank)),
        _ => {
            Err(Error::Argument(format!("root {root} is not a rank from 0 to {}", place.size - 1)))
        }
    }
}

pub(super) fn world(rank: c_int, nranks: c_int) -> Result<World> {
    match (usize::try_from(rank), usize::try_from(nranks)) {
        (Ok(rank), Ok(size)) if rank < size && size <= MOST_RANKS => {
            Ok(World { rank: Rank(rank), size })
        }
        _ => Err(Error::Argument(format!("rank {rank} of {nranks} ranks does not exist"))),
    }
}

/// The settings of one communicator: those of the process, but for the fields that are set.
///
/// # Safety
/// `given` is NULL or points to a nexarConfig_t of as many bytes as its first field says.
pub(super) unsafe fn config(given: *const nexarConfig_t, process: &Config) -> Result<Config> {
    let mut config = process.clone();
    if given.is_null() {
        return Ok(config);
    }
    // SAFETY: every version of the structure begins with its size.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if size < size_of::<nexarConfig_t>() {
        return Err(wrong_config());
    }
    // SAFETY: the structure is at least as long as the one this version knows.
    let given = unsafe { given.read_unaligned() };
    if given.magic != NEXAR_API_MAGIC {
        return Err(wrong_config());
    }
    let time = |name: &str, value: c_int, otherwise: Duration| match value {
        nexarConfig_t::UNDEF_INT => Ok(otherwise),
        1.. => Ok(Duration::from_millis(value as u64)),
        _ => Err(Error::Argument(format!("{name} {value} is not a number of milliseconds"))),
    };
    config.init_timeout = time("initTimeoutMs", given.initTimeoutMs, config.init_timeout)?;
    config.op_timeout = time("opTimeoutMs", given.opTimeoutMs, config.op_timeout)?;
    config.peer_timeout = time("peerTimeoutMs", given.peerTimeoutMs, config.peer_timeout)?;
    if !given.name.is_null() {
        // SAFETY: the caller passes NULL or a string.
        let name = unsafe { CStr::from_ptr(given.name) };
        config.name = Some(name.to_string_lossy().chars().take(64).collect());
    }
    match given.blocking {
        nexarConfig_t::UNDEF_INT | 1 => Ok(config),
        0 => Err(Error::Usage("this version has no non-blocking communicators".to_owned())),
        other => Err(Error::Argument(format!("blocking {other} is neither 0 nor 1"))),
    }
}

fn wrong_config() -> Error {
    let what = "config was not initialised with NEXAR_CONFIG_INITIALIZER";
    Error::Argument(what.to_owned())
}

/// NULL is the only stream there is without CUDA.
pub(super) fn stream(stream: nexarStream_t) -> Result<()> {
    if stream.is_null() {
        return Ok(());
    }
    Err(Error::Argument("stream is neither NULL nor a stream of nexar".to_owned()))
}

/// `count` elements in each of `blocks` blocks, as bytes that fit a slice.
pub(super) fn bytes(count: usize, dtype: DataType, blocks: usize) -> Result<usize> {
    let bytes = count.checked_mul(dtype.size()).and_then(|bytes| bytes.checked_mul(blocks));
    bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| {
        let blocks =
            if blocks > 1 { format!(" in each of {blocks} blocks") } else { String::new() };
        Error::Argument(format!("count {count} of {dtype}{blocks} exceeds the address space"))
    })
}

/// Where a result goes. Written by `set` alone, so not before the call has succeeded.
pub(super) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// `pointer` is NULL or can be written for the duration of the call.
    pub unsafe fn new(name: &str, pointer: *mut T) -> Result<Self> {
        match NonNull::new(pointer) {
            Some(pointer) => Ok(Self(pointer)),
            None => Err(Error::Argument(format!("{name} is NULL"))),
        }
    }

    pub fn set(self, value: T) {
        // SAFETY: `new` was promised a pointer that can be written; C may not have aligned it.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }
}
