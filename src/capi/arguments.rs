//! C arguments, parsed once: below this file every value is valid by construction.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::time::Duration;

use crate::blocks::Blocks;
use crate::bootstrap::{MOST_RANKS, World};
use crate::config::Config;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::op::{Fold, Operator, RedOp, Reducer};
use crate::rank::{Rank, RankOf};

use super::operators;
use super::types::{DataTypeCode, NEXAR_API_MAGIC, RedOpCode, nexarComm_t, nexarConfig_t};

#[inline(always)]
pub(super) fn dtype(code: DataTypeCode) -> Result<DataType> {
    DataType::from_code(code)
        .ok_or_else(|| Error::Argument(format!("datatype {code} is not a nexarDataType_t")))
}

/// How this rank folds: an operator of the header, or one created for the communicator.
#[inline(always)]
pub(super) fn reducer(datatype: DataTypeCode, op: RedOpCode, comm: nexarComm_t) -> Result<Reducer> {
    let dtype = dtype(datatype)?;
    match RedOp::from_code(op) {
        Some(redop) => Ok(Reducer::Known(Fold::new(dtype, redop)?)),
        None => operators::find(op, dtype, comm),
    }
}

/// As `reducer`, for a scan, which has no average.
#[inline(always)]
pub(super) fn prefix_reducer(
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
) -> Result<Reducer> {
    let reducer = reducer(datatype, op, comm)?;
    match reducer.reduction().operator {
        Operator::Known(RedOp::Avg) => {
            Err(Error::Argument("avg: a scan has no average".to_owned()))
        }
        _ => Ok(reducer),
    }
}

/// A rank that an argument called `name` gives.
#[inline(always)]
pub(super) fn rank(name: &str, number: c_int, me: RankOf) -> Result<Rank> {
    match usize::try_from(number) {
        Ok(rank) if rank < me.size => Ok(Rank(rank)),
        _ => {
            let most = me.size - 1;
            Err(Error::Argument(format!("{name} {number} is not a rank from 0 to {most}")))
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

/// The settings of one communicator: those of `base`, but for the fields that are set. And
/// whether making it waits.
///
/// # Safety
/// `given` is NULL or points to a nexarConfig_t of as many bytes as its first field says.
pub(super) unsafe fn config(given: *const nexarConfig_t, base: &Config) -> Result<(Config, bool)> {
    let mut config = base.clone();
    if given.is_null() {
        return Ok((config, true));
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
    let flag = |name: &str, value: c_int, otherwise: bool| match value {
        nexarConfig_t::UNDEF_INT => Ok(otherwise),
        0 | 1 => Ok(value == 1),
        other => Err(Error::Argument(format!("{name} {other} is neither 0 nor 1"))),
    };
    flag("splitShare", given.splitShare, true)?;
    Ok((config, flag("blocking", given.blocking, true)?))
}

fn wrong_config() -> Error {
    let what = "config was not initialised with NEXAR_CONFIG_INITIALIZER";
    Error::Argument(what.to_owned())
}

/// `count` elements in each of `blocks` blocks, as bytes that fit a slice.
#[inline(always)]
pub(super) fn bytes(count: usize, dtype: DataType, blocks: usize) -> Result<usize> {
    let bytes = count.checked_mul(dtype.size()).and_then(|bytes| bytes.checked_mul(blocks));
    bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| {
        let blocks =
            if blocks > 1 { format!(" in each of {blocks} blocks") } else { String::new() };
        Error::Argument(format!("count {count} of {dtype}{blocks} exceeds the address space"))
    })
}

/// An array of the caller's. An empty one may be NULL.
///
/// # Safety
/// `array` is NULL or has `length` elements.
pub(super) unsafe fn array<T: Copy>(name: &str, array: *const T, length: usize) -> Result<Vec<T>> {
    if array.is_null() && length > 0 {
        return Err(Error::Argument(format!("{name} is NULL")));
    }
    let too_long = || Error::Argument(format!("{name} cannot have {length} elements"));
    length.checked_mul(size_of::<T>()).ok_or_else(too_long)?;
    let mut elements = Vec::new();
    elements.try_reserve_exact(length).map_err(|_| too_long())?;
    // SAFETY: the caller vouches for the elements; C may not have aligned them.
    elements.extend((0..length).map(|index| unsafe { array.add(index).read_unaligned() }));
    Ok(elements)
}

/// All counts together must be bytes that fit a slice.
pub(super) fn check_total(name: &str, counts: &[usize], dtype: DataType) -> Result<()> {
    let total = counts.iter().try_fold(0_usize, |total, count| total.checked_add(*count));
    match total.and_then(|total| bytes(total, dtype, 1).ok()) {
        Some(_) => Ok(()),
        None => Err(Error::Argument(format!("{name} of {dtype} exceed the address space"))),
    }
}

/// Blocks of `counts` elements, each rank's `displacement` elements into the buffer; one after
/// another if there are no displacements, which are called `name`.
pub(super) fn blocks(
    counts: &[usize],
    displacements: Option<&[usize]>,
    name: &str,
    dtype: DataType,
) -> Result<Blocks> {
    let mut packed = 0;
    let mut ranges = Vec::with_capacity(counts.len());
    for (rank, count) in counts.iter().enumerate() {
        let first = match displacements {
            // An empty block lies nowhere.
            Some(_) if *count == 0 => 0,
            Some(displacements) => displacements[rank],
            None => packed,
        };
        let range = first.checked_add(*count).and_then(|end| {
            packed = end;
            let end = bytes(end, dtype, 1).ok()?;
            Some(end - count * dtype.size()..end)
        });
        ranges.push(range.ok_or_else(|| {
            let block = format!("the block of rank {rank}, {count} of {dtype} at {first}");
            Error::Argument(format!("{name}: {block}, exceeds the address space"))
        })?);
    }
    Ok(Blocks::at(ranges))
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

    pub fn set(&self, value: T) {
        // SAFETY: `new` was promised a pointer that can be written; C may not have aligned it.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }
}
