//! The nexarStatus_t of a caller, which may be of an older or a newer version of the header.
//!
//! Leaves to `message` which calls write it. Invariant: only fields of the first version are
//! written, which every accepted nexarStatus_t has; `size` and bytes between fields are not.

use std::ffi::c_int;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::message::{Envelope, StatusReport, Tag};
use crate::rank::Rank;

use super::types::{DataTypeCode, nexarStatus_t};

/// A nexarStatus_t to write.
pub(super) struct StatusOut(NonNull<nexarStatus_t>);

// SAFETY: the caller leaves the nexarStatus_t to the operation until it has completed, on whichever
// thread that executes it.
unsafe impl Send for StatusOut {}

impl StatusOut {
    /// `None` for NULL. Fails if the size is less than that of the first version.
    ///
    /// # Safety
    /// `pointer` is NULL, or it points to a nexarStatus_t of any version, which can be written
    /// until the operation has completed.
    pub unsafe fn new(pointer: *mut nexarStatus_t) -> Result<Option<Self>> {
        let Some(pointer) = NonNull::new(pointer) else { return Ok(None) };
        // SAFETY: every version of the structure begins with its size.
        let size = unsafe { pointer.cast::<usize>().read_unaligned() };
        if size < nexarStatus_t::FIRST_SIZE {
            let what = "status was not initialised with NEXAR_STATUS_INITIALIZER";
            return Err(Error::Argument(format!("{what}: its size is {size}")));
        }
        Ok(Some(Self(pointer)))
    }

    /// `datatype`: the number by which the program knows the type of the message.
    pub fn set(&self, source: Rank, envelope: Envelope, datatype: DataTypeCode) {
        let Tag::Number(tag) = envelope.tag else {
            unreachable!("only messages with a tag are reported")
        };
        let status = self.0.as_ptr();
        // SAFETY: the caller of `new` vouched for the fields, which may be unaligned.
        unsafe { (&raw mut (*status).source).write_unaligned(source.0 as c_int) };
        // SAFETY: as above.
        unsafe { (&raw mut (*status).tag).write_unaligned(tag as c_int) };
        // SAFETY: as above.
        unsafe { (&raw mut (*status).count).write_unaligned(envelope.count) };
        // SAFETY: as above.
        unsafe { (&raw mut (*status).datatype).write_unaligned(datatype) };
    }

    /// Writes the status when the receive reports. `datatype`: the one that the receive named.
    pub fn into_report(self, datatype: DataTypeCode) -> StatusReport<'static> {
        Box::new(move |source, envelope| self.set(source, envelope, datatype))
    }
}
