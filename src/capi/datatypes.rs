//! The data types of calls: those of the header, and those that programs have created.
//!
//! Leaves to `datatype` the functions that create and destroy them, and to `created` the numbers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::dtype::{DataType, ElementSize, ElementType};
use crate::error::{Error, Result};

use super::created::{CreatedTable, FIRST};
use super::types::{DataTypeCode, nexarComm_t};

static TABLE: Mutex<CreatedTable<ElementSize>> =
    Mutex::new(CreatedTable::new(["datatype", "datatype"]));

fn table() -> MutexGuard<'static, CreatedTable<ElementSize>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a type of elements of this size, and returns its number.
pub(super) fn create(comm: nexarComm_t, size: ElementSize) -> Result<DataTypeCode> {
    table().create(comm, size)
}

/// The type with this number: one of the header, or one that was created for `comm`.
#[inline(always)]
pub(super) fn find(code: DataTypeCode, comm: nexarComm_t) -> Result<ElementType> {
    match DataType::from_code(code) {
        Some(dtype) => Ok(dtype.into()),
        None => find_created(code, comm),
    }
}

#[cold]
fn find_created(code: DataTypeCode, comm: nexarComm_t) -> Result<ElementType> {
    if code < FIRST {
        return Err(Error::Argument(format!("datatype {code} is not a nexarDataType_t")));
    }
    table().find(code, comm).map(ElementType::Opaque)
}

/// The number by which a program knows the type of a message that it did not name: of opaque
/// elements the first that was created for `comm` with this size, else `MaxDataType`.
pub(super) fn number_of(dtype: ElementType, comm: nexarComm_t) -> DataTypeCode {
    match dtype {
        ElementType::Known(dtype) => dtype as DataTypeCode,
        ElementType::Opaque(size) => {
            let none = DataType::MaxDataType as DataTypeCode;
            table().number_of(size, comm).unwrap_or(none)
        }
    }
}

/// Destroys a type. Fails if it was not created for `comm`.
pub(super) fn destroy(datatype: DataTypeCode, comm: nexarComm_t) -> Result<()> {
    table().destroy(datatype, comm)
}

/// Destroys the types of a destroyed communicator.
pub(super) fn forget(comm: nexarComm_t) {
    table().forget(comm);
}
