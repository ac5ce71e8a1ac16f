//! Host streams: create, synchronize, query, destroy.

use std::sync::Arc;

use crate::comm::Stream;
use crate::error::{Code, Result};

use super::arguments::Out;
use super::boundary::boundary;
use super::handle::{HandleKind, HandleTable};
use super::types::nexarStream_t;

static TABLE: HandleTable<Arc<Stream>> = HandleTable::new(HandleKind::Stream);

/// The host stream of a handle. `None` for NULL.
pub(super) fn find(stream: nexarStream_t) -> Result<Option<Arc<Stream>>> {
    if stream.is_null() { Ok(None) } else { TABLE.find(stream).map(Some) }
}

/// Whether it is, or may have been, a handle of a host stream.
pub(super) fn may_be_ours(stream: nexarStream_t) -> bool {
    TABLE.may_be_ours(stream)
}

/// Creates a host stream: a thread that executes the operations queued on it, in order.
///
/// An operation on a stream returns at once. It takes its sequence number, or its position among
/// messages, when it is called, and runs when the operations queued before it on this stream have
/// completed; a collective also waits for collectives queued before it on other streams for the
/// same communicator. Those of one group run concurrently. An operation on stream NULL waits for
/// those that are queued for its communicator. Operations of different communicators on different
/// streams run concurrently.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarStreamCreate(stream: *mut nexarStream_t) -> Code {
    boundary("nexarStreamCreate", || {
        // SAFETY: the caller passes NULL or a pointer to a handle.
        let out = unsafe { Out::new("stream", stream) }?;
        out.set(TABLE.insert(Stream::new()?));
        Ok(())
    })
}

/// Waits until all operations queued on stream have completed. Returns the first error among those
/// since the last nexarStreamSynchronize, once; nexarGetLastError(NULL) has its text. NULL is
/// nexarSuccess: operations on host memory and stream NULL have completed. A CUDA stream is
/// nexarInvalidArgument; CUDA's own functions synchronize it.
#[unsafe(no_mangle)]
pub extern "C" fn nexarStreamSynchronize(stream: nexarStream_t) -> Code {
    boundary("nexarStreamSynchronize", || match find(stream)? {
        Some(stream) => stream.synchronize(),
        None => Ok(()),
    })
}

/// Does not wait. Returns nexarSuccess if all queued operations have completed, nexarInProgress if
/// not, or the error that nexarStreamSynchronize will return.
#[unsafe(no_mangle)]
pub extern "C" fn nexarStreamQuery(stream: nexarStream_t) -> Code {
    boundary("nexarStreamQuery", || match find(stream)? {
        Some(stream) => stream.query(),
        None => Ok(()),
    })
}

/// Waits until all operations queued on stream have completed, and frees it. The handle is invalid
/// from the start of the call. An error that nexarStreamSynchronize has not returned is lost. NULL
/// is nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarStreamDestroy(stream: nexarStream_t) -> Code {
    boundary("nexarStreamDestroy", || {
        if !stream.is_null() {
            TABLE.remove(stream)?.close();
        }
        Ok(())
    })
}
