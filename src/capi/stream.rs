//! Host streams: create, wait, ask, destroy.

use std::sync::Arc;

use crate::comm::Stream;
use crate::error::{Code, Result};

use super::arguments::Out;
use super::boundary::boundary;
use super::handle::{HandleKind, HandleTable};
use super::types::nexarStream_t;

static TABLE: HandleTable<Arc<Stream>> = HandleTable::new(HandleKind::Stream);

/// The stream to queue an operation on; none for NULL.
pub(super) fn find(stream: nexarStream_t) -> Result<Option<Arc<Stream>>> {
    if stream.is_null() { Ok(None) } else { TABLE.find(stream).map(Some) }
}

/// Whether it is or was one of ours.
pub(super) fn may_be_ours(stream: nexarStream_t) -> bool {
    TABLE.may_be_ours(stream)
}

/// Creates a host stream: a thread of its own that runs what is queued on it in order.
///
/// An operation on a stream returns at once. It takes its place among the operations of its
/// communicator then, and runs when all that was queued before it on the stream, and on other
/// streams for the same communicator, has ended. An operation on stream NULL waits for what was
/// queued for its communicator. Different communicators on different streams run side by side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarStreamCreate(stream: *mut nexarStream_t) -> Code {
    boundary("nexarStreamCreate", || {
        // SAFETY: the caller passes NULL or a place for a handle.
        let out = unsafe { Out::new("stream", stream) }?;
        out.set(TABLE.insert(Stream::new()?));
        Ok(())
    })
}

/// Waits until all that was queued on the stream has ended, and returns the first error among it
/// since the last nexarStreamSynchronize: once, and its text is that of nexarGetLastError(NULL).
/// NULL is nexarSuccess: its operations have ended.
#[unsafe(no_mangle)]
pub extern "C" fn nexarStreamSynchronize(stream: nexarStream_t) -> Code {
    boundary("nexarStreamSynchronize", || match find(stream)? {
        Some(stream) => stream.synchronize(),
        None => Ok(()),
    })
}

/// Without waiting: the error that nexarStreamSynchronize will return if there is one already,
/// nexarInProgress if something queued has not ended, else nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarStreamQuery(stream: nexarStream_t) -> Code {
    boundary("nexarStreamQuery", || match find(stream)? {
        Some(stream) => stream.query(),
        None => Ok(()),
    })
}

/// Waits until all that was queued on the stream has ended, and frees it: its handle is dead from
/// the beginning of the call. An error that nexarStreamSynchronize has not returned is lost. NULL
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
