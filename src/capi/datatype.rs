//! Data types: create, destroy.

use crate::dtype::ElementSize;
use crate::error::{Code, Error};

use super::arguments::Out;
use super::boundary::on_communicator;
use super::datatypes;
use super::types::{DataTypeCode, nexarComm_t};

/// Creates a type of elements of bytes bytes for comm, and writes it to datatype. bytes is 1 ...
/// 4,194,304 (4 MiB: the size travels in 22 bits of each message's header), for example the sizeof
/// of a struct. The library does not look into an element.
///
/// Every call that takes a datatype takes it; counts and displacements are in elements. In
/// reductions the operator must be one of nexarRedOpCreate: its function gets whole elements, and
/// datatype as it was passed to the call. Any other operator, and nexarRedOpCreatePreMulSum, is
/// nexarInvalidArgument.
///
/// Ranks agree on the size, not on the number: each creates the type for itself, at any time before
/// its first use. Like an operator, it belongs to comm alone, also if that is split.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarDataTypeCreate(
    datatype: *mut DataTypeCode,
    bytes: usize,
    comm: nexarComm_t,
) -> Code {
    on_communicator("nexarDataTypeCreate", comm, |_| {
        // SAFETY: the caller passes NULL or a pointer to the type.
        let datatype = unsafe { Out::new("datatype", datatype) }?;
        let size = ElementSize::new(bytes).ok_or_else(|| {
            let most = ElementSize::MOST;
            Error::Argument(format!("bytes {bytes}: an element has 1 to {most} bytes"))
        })?;
        datatype.set(datatypes::create(comm, size)?);
        Ok(())
    })
}

/// Destroys a type of comm. nexarCommDestroy destroys all that are left. Operations that were
/// called before still use it.
#[unsafe(no_mangle)]
pub extern "C" fn nexarDataTypeDestroy(datatype: DataTypeCode, comm: nexarComm_t) -> Code {
    on_communicator("nexarDataTypeDestroy", comm, |_| datatypes::destroy(datatype, comm))
}
