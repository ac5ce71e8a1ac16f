//! C arguments, parsed once: below this file every value is valid by construction.

use std::ffi::c_int;
use std::ptr::NonNull;

use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::op::{Fold, RedOp};
use crate::rank::{Place, Rank};

use super::types::{DataTypeCode, RedOpCode, nexarStream_t};

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
