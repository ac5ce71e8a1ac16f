//! Requests: sends and receives that the caller does not wait for at once.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::comm::{Cancelled, MessageRequest, irecv, isend, wait_any};
use crate::error::{Code, Error, Result};
use crate::message::{RecvCall, RecvCount};

use super::arguments::{self, Out, rank};
use super::boundary::boundary;
use super::datatypes;
use super::group::note_failure;
use super::handle::{HandleKind, HandleTable};
use super::message::{envelope, incoming, number, outgoing, tagged};
use super::status::StatusOut;
use super::submit::{outside_groups, refuse_in_group};
use super::types::{DataTypeCode, nexarComm_t, nexarRequest_t, nexarStatus_t};

static TABLE: HandleTable<RequestEntry> = HandleTable::new(HandleKind::Request);

#[derive(Clone)]
struct RequestEntry {
    request: Arc<MessageRequest>,
    /// The number by which the call named its datatype.
    datatype: DataTypeCode,
}

/// As nexarSendTag, but does not wait: begins to send, and writes a request. sendbuff belongs to
/// the operation until the request is consumed, and must not be written before. nexarRecvTag,
/// nexarRecvTagStatus and nexarIrecvTag receive the message. A send is complete when sendbuff may
/// be reused: a short message at once, usually, a long one when its receive has taken it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarIsendTag(
    sendbuff: *const c_void,
    count: usize,
    datatype: DataTypeCode,
    peer: c_int,
    tag: c_int,
    request: *mut nexarRequest_t,
    comm: nexarComm_t,
) -> Code {
    outside_groups("nexarIsendTag", comm, |communicator| {
        // SAFETY: the caller passes NULL or a pointer to a handle.
        let out = unsafe { Out::new("request", request) }?;
        let to = rank("peer", peer, communicator.me())?;
        let envelope = envelope(count, datatype, number(tag)?, comm)?;
        // SAFETY: the caller's buffer has `count` elements and lives until the request is consumed.
        let outgoing = unsafe { outgoing(sendbuff, to, envelope) }?;
        let request = isend(&communicator, outgoing)?;
        out.set(TABLE.insert(RequestEntry { request, datatype }));
        Ok(())
    })
}

/// As nexarRecvTagStatus, but does not wait: the receive is posted, and a request is written. It
/// receives up to capacity elements; the call that consumes the request reports source, tag, count
/// and datatype. recvbuff belongs to the operation until then. A message of more than capacity
/// elements is nexarInvalidArgument for this request alone, and stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarIrecvTag(
    recvbuff: *mut c_void,
    capacity: usize,
    datatype: DataTypeCode,
    peer: c_int,
    tag: c_int,
    request: *mut nexarRequest_t,
    comm: nexarComm_t,
) -> Code {
    outside_groups("nexarIrecvTag", comm, |communicator| {
        // SAFETY: the caller passes NULL or a pointer to a handle.
        let out = unsafe { Out::new("request", request) }?;
        let wanted = tagged(peer, tag, communicator.me())?;
        let dtype = datatypes::find(datatype, comm)?;
        arguments::capacity(capacity, dtype)?;
        let call = RecvCall { wanted, dtype, count: RecvCount::UpTo(capacity) };
        // SAFETY: the buffer has `capacity` elements and lives until the request is consumed.
        let incoming = unsafe { incoming(recvbuff, capacity, call, None) }?;
        let request = irecv(&communicator, incoming)?;
        out.set(TABLE.insert(RequestEntry { request, datatype }));
        Ok(())
    })
}

/// Does not wait. If the request has completed, sets done to 1, consumes the request and returns
/// the result of its operation; a receive that has succeeded writes status. Otherwise it sets done
/// to 0 and returns nexarSuccess. Where the call itself is wrong, done is not written and nothing
/// was consumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRequestTest(
    request: nexarRequest_t,
    done: *mut c_int,
    status: *mut nexarStatus_t,
) -> Code {
    const NAME: &str = "nexarRequestTest";
    on_requests(NAME, || {
        // SAFETY: the caller passes NULL or a pointer to an int.
        let done = unsafe { Out::new("done", done) }?;
        // SAFETY: NULL, or a status that begins with its size and lives until the call returns.
        let status = unsafe { StatusOut::new(status) }?;
        let live = TABLE.find(request)?;
        if !live.request.test()? {
            done.set(0);
            return Ok(());
        }
        let consumed = consume(NAME, request, &live, status);
        if !matches!(consumed, Err(Error::Handle { .. })) {
            done.set(1);
        }
        consumed
    })
}

/// Waits until the request has completed, consumes it, and returns the result of its operation. A
/// receive that has succeeded writes status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRequestWait(
    request: nexarRequest_t,
    status: *mut nexarStatus_t,
) -> Code {
    const NAME: &str = "nexarRequestWait";
    on_requests(NAME, || {
        // SAFETY: NULL, or a status that begins with its size and lives until the call returns.
        let status = unsafe { StatusOut::new(status) }?;
        let live = TABLE.find(request)?;
        wait_any(std::slice::from_ref(&live.request))?;
        consume(NAME, request, &live, status)
    })
}

/// Waits until one of count requests has completed, consumes that one, and sets its entry to NULL
/// and index to its index. Returns the result of its operation; a receive that has succeeded writes
/// status. Entries that are NULL are skipped. If all are, or count is 0, it is nexarSuccess at once
/// and index is count. If several have completed, it takes the first. Where the call itself is
/// wrong, nothing was consumed: an entry is then as before, and index was not written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRequestWaitAny(
    count: usize,
    requests: *mut nexarRequest_t,
    index: *mut usize,
    status: *mut nexarStatus_t,
) -> Code {
    const NAME: &str = "nexarRequestWaitAny";
    on_requests(NAME, || {
        // SAFETY: the caller passes NULL or a pointer to a size_t.
        let index = unsafe { Out::new("index", index) }?;
        // SAFETY: NULL, or a status that begins with its size and lives until the call returns.
        let status = unsafe { StatusOut::new(status) }?;
        // SAFETY: the caller passes NULL or `count` handles.
        let handles = unsafe { arguments::array("requests", requests.cast_const(), count) }?;
        let (mut indices, mut live, mut waited) = (Vec::new(), Vec::new(), Vec::new());
        for (at, handle) in handles.iter().enumerate().filter(|(_, handle)| !handle.is_null()) {
            let one = TABLE.find(*handle)?;
            waited.push(Arc::clone(&one.request));
            live.push(one);
            indices.push(at);
        }
        if live.is_empty() {
            index.set(count);
            return Ok(());
        }
        let first = wait_any(&waited)?;
        let consumed = consume(NAME, handles[indices[first]], &live[first], status);
        if !matches!(consumed, Err(Error::Handle { .. })) {
            // SAFETY: the entry was read above, and can be written.
            unsafe { Out::new("requests", requests.wrapping_add(indices[first])) }?.set(null_mut());
            index.set(indices[first]);
        }
        consumed
    })
}

/// Withdraws a receive that has matched no message. That consumes the request and is nexarSuccess:
/// recvbuff was not written, and a message that arrives later goes to another receive. If the
/// receive has matched a message or has completed, and for every send, it is nexarInProgress: the
/// request stays, and nexarRequestTest or nexarRequestWait must consume it.
#[unsafe(no_mangle)]
pub extern "C" fn nexarRequestCancel(request: nexarRequest_t) -> Code {
    on_requests("nexarRequestCancel", || {
        let live = TABLE.find(request)?;
        match live.request.cancel()? {
            Cancelled::Withdrawn => TABLE.remove(request).map(drop),
            Cancelled::NotAnyMore => Err(Error::InProgress),
        }
    })
}

/// The boundary of a call on requests, which cannot be part of a group.
fn on_requests(function: &'static str, body: impl FnOnce() -> Result<()>) -> Code {
    boundary(function, || {
        let result = refuse_in_group().and_then(|()| body());
        result.inspect_err(|error| note_failure(function, error))
    })
}

/// Removes a completed request from the table and reports its result. Fails with `Handle` if
/// another thread has consumed it.
fn consume(
    function: &str,
    handle: nexarRequest_t,
    RequestEntry { request, datatype }: &RequestEntry,
    status: Option<StatusOut>,
) -> Result<()> {
    let dead = || Error::Handle { what: "request", kind: "request" };
    let result = request.consume().ok_or_else(dead)?;
    TABLE.remove(handle)?;
    match result {
        Ok(received) => {
            if let (Some(status), Some((source, envelope))) = (status, received) {
                status.set(source, envelope, *datatype);
            }
            Ok(())
        }
        Err(error) => {
            request.remember(format!("{function}: {error}"));
            Err(error)
        }
    }
}
