//! Parses C arguments. Below this file every value is valid by construction.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::time::Duration;

use crate::blocks::Blocks;
use crate::bootstrap::{MAX_RANKS, World};
use crate::config::Config;
use crate::dtype::{ElementSize, ElementType};
use crate::error::{Error, Result};
use crate::op::{Fold, Operator, RedOp, Reducer};
use crate::rank::{Rank, RankOf};

use super::types::{DataTypeCode, NEXAR_API_MAGIC, RedOpCode, nexarComm_t, nexarConfig_t};
use super::{datatypes, operators};

/// The reducer for an operator of the header, or for one that was created for `comm`.
#[inline(always)]
pub(super) fn reducer(datatype: DataTypeCode, op: RedOpCode, comm: nexarComm_t) -> Result<Reducer> {
    match (datatypes::find(datatype, comm)?, RedOp::from_code(op)) {
        (ElementType::Known(dtype), Some(redop)) => Ok(Reducer::Known(Fold::new(dtype, redop)?)),
        (ElementType::Opaque(size), Some(redop)) => {
            Err(only_functions(&format!("op {}", redop.name()), size))
        }
        (dtype, None) => operators::find(op, datatype, dtype, comm),
    }
}

/// The error of an operator that is not a function of the program, on opaque elements.
#[cold]
pub(super) fn only_functions(what: &str, size: ElementSize) -> Error {
    let dtype = ElementType::Opaque(size);
    Error::Argument(format!("{what} on {dtype}: only operators of nexarRedOpCreate reduce them"))
}

/// As `reducer`, but refuses the average, which a scan does not have.
#[inline(always)]
pub(super) fn prefix_reducer(
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
) -> Result<Reducer> {
    let reducer = reducer(datatype, op, comm)?;
    match reducer.reduction().operator {
        Operator::Known(RedOp::Avg) => {
            Err(Error::Argument("op avg is not defined for a scan".to_owned()))
        }
        _ => Ok(reducer),
    }
}

/// Parses a rank of the communicator. `name` is the parameter's name.
#[inline(always)]
pub(super) fn rank(name: &str, number: c_int, me: RankOf) -> Result<Rank> {
    match usize::try_from(number) {
        Ok(rank) if rank < me.size => Ok(Rank(rank)),
        _ => {
            let last = me.size - 1;
            Err(Error::Argument(format!("{name} {number} is not a rank from 0 to {last}")))
        }
    }
}

pub(super) fn world(rank: c_int, nranks: c_int) -> Result<World> {
    match (usize::try_from(rank), usize::try_from(nranks)) {
        (Ok(rank), Ok(size)) if rank < size && size <= MAX_RANKS => {
            Ok(World { rank: Rank(rank), size })
        }
        _ => Err(Error::Argument(format!(
            "rank {rank} of {nranks} does not exist: expected 0 <= rank < nranks <= {MAX_RANKS}"
        ))),
    }
}

/// The settings of one communicator: those of `base`, replaced by the fields that are set. Also
/// returns whether its creation is blocking.
///
/// # Safety
/// `given` is NULL or points to a nexarConfig_t whose first field is its size in bytes.
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
    // SAFETY: the structure is at least as long as in this version.
    let given = unsafe { given.read_unaligned() };
    if given.magic != NEXAR_API_MAGIC {
        return Err(wrong_config());
    }
    let time = |name: &str, value: c_int, otherwise: Duration| match value {
        nexarConfig_t::UNDEF_INT => Ok(otherwise),
        1.. => Ok(Duration::from_millis(value as u64)),
        _ => Err(Error::Argument(format!("{name} {value}: expected at least 1 millisecond"))),
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

/// The size in bytes of `blocks` blocks of `count` elements each. Fails if a slice cannot be as
/// long.
#[inline(always)]
pub(super) fn bytes(count: usize, dtype: ElementType, blocks: usize) -> Result<usize> {
    let bytes = count.checked_mul(dtype.size()).and_then(|bytes| bytes.checked_mul(blocks));
    bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| {
        let blocks =
            if blocks > 1 { format!(" in each of {blocks} blocks") } else { String::new() };
        Error::Argument(format!("count {count} of {dtype}{blocks} exceeds the address space"))
    })
}

/// Fails if a receive names a capacity that is larger than any slice.
pub(super) fn capacity(capacity: usize, dtype: ElementType) -> Result<()> {
    let too_long = |_| {
        let what = format!("capacity {capacity} of {dtype} exceeds the address space");
        Error::Argument(what)
    };
    bytes(capacity, dtype, 1).map(drop).map_err(too_long)
}

/// Copies an array of the caller. Fails if it is NULL and `length` is not 0.
///
/// # Safety
/// `array` is NULL or has `length` elements.
pub(super) unsafe fn array<T: Copy>(name: &str, array: *const T, length: usize) -> Result<Vec<T>> {
    if array.is_null() && length > 0 {
        return Err(Error::Argument(format!("{name} is NULL")));
    }
    let too_long = || Error::Argument(format!("{name} of {length} elements cannot be copied"));
    length.checked_mul(size_of::<T>()).ok_or_else(too_long)?;
    let mut elements = Vec::new();
    elements.try_reserve_exact(length).map_err(|_| too_long())?;
    // SAFETY: the caller vouches for the elements, which may be unaligned.
    elements.extend((0..length).map(|index| unsafe { array.add(index).read_unaligned() }));
    Ok(elements)
}

/// Fails if a slice cannot hold the elements of all counts together.
pub(super) fn check_total(name: &str, counts: &[usize], dtype: ElementType) -> Result<()> {
    let total = counts.iter().try_fold(0_usize, |total, count| total.checked_add(*count));
    match total.and_then(|total| bytes(total, dtype, 1).ok()) {
        Some(_) => Ok(()),
        None => Err(Error::Argument(format!("{name} of {dtype} exceed the address space"))),
    }
}

/// Blocks of `counts` elements at `displacements`, in elements; contiguous if there are none.
/// `name` is the parameter's name of the displacements.
pub(super) fn blocks(
    counts: &[usize],
    displacements: Option<&[usize]>,
    name: &str,
    dtype: ElementType,
) -> Result<Blocks> {
    let mut packed = 0;
    let mut ranges = Vec::with_capacity(counts.len());
    for (rank, count) in counts.iter().enumerate() {
        let first = match displacements {
            // The displacement of an empty block is ignored.
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

/// An out-parameter. Only `set` writes it, so it is not written before the call has succeeded.
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
        // SAFETY: the caller of `new` vouched for a writable pointer, which may be unaligned.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }
}
