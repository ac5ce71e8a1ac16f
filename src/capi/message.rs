//! Messages between two ranks: each function parses its arguments into a message and submits it to
//! the communicator.

use std::ffi::{c_int, c_void};

use crate::buffer::{Buffers, Region};
use crate::comm::{Work, probe};
use crate::error::{Code, Error, Result};
use crate::message::{
    Envelope, Incoming, Outgoing, RecvCall, RecvCount, StatusReport, Tag, Wanted, WantedTag,
};
use crate::rank::{Rank, RankOf};

use super::arguments::{self, Out, rank};
use super::collective::{recvbuff, sendbuff};
use super::datatypes;
use super::status::StatusOut;
use super::submit::{messages, operation, outside_groups};
use super::types::{
    DataTypeCode, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, nexarComm_t, nexarStatus_t, nexarStream_t,
};

/// Sends count elements to rank peer, which receives them with nexarRecv and the same count and
/// datatype. On stream NULL the call returns when sendbuff may be reused: a short message may still
/// be under way then, a long one has met its receive. A rank may send to itself; unless the message
/// is short, its receive must be in the same group or in another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarSend(
    sendbuff: *const c_void,
    count: usize,
    datatype: DataTypeCode,
    peer: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarSend", comm, stream, |communicator| {
        let to = rank("peer", peer, communicator.me())?;
        let envelope = envelope(count, datatype, Tag::None, comm)?;
        // SAFETY: the caller's buffer has `count` elements and lives until the operation ends.
        unsafe { outgoing(sendbuff, to, envelope) }
    })
}

/// Receives count elements that rank peer sends with nexarSend. If the sender's count or datatype
/// differs, the call is nexarInvalidUsage and comm has failed; a message is never truncated. A
/// message of 0 elements is received like any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRecv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    peer: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarRecv", comm, stream, |communicator| {
        let source = Some(rank("peer", peer, communicator.me())?);
        let wanted = Wanted { source, tag: WantedTag::This(Tag::None) };
        // SAFETY: the caller's buffer has `count` elements and lives until the operation ends.
        unsafe { incoming_exactly(recvbuff, count, datatype, wanted, comm) }
    })
}

/// As nexarSend, with a tag, 0 ... INT_MAX. nexarRecvTag receives it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarSendTag(
    sendbuff: *const c_void,
    count: usize,
    datatype: DataTypeCode,
    peer: c_int,
    tag: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarSendTag", comm, stream, |communicator| {
        let to = rank("peer", peer, communicator.me())?;
        let envelope = envelope(count, datatype, number(tag)?, comm)?;
        // SAFETY: the caller's buffer has `count` elements and lives until the operation ends.
        unsafe { outgoing(sendbuff, to, envelope) }
    })
}

/// As nexarRecv, for messages of nexarSendTag: receives the first message from rank peer that has
/// this tag. peer may be NEXAR_ANY_SOURCE and tag NEXAR_ANY_TAG. It never receives a message of
/// nexarSend. The call does not report the source and the tag it has matched: nexarRecvTagStatus
/// does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRecvTag(
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    peer: c_int,
    tag: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarRecvTag", comm, stream, |communicator| {
        let wanted = tagged(peer, tag, communicator.me())?;
        // SAFETY: the caller's buffer has `count` elements and lives until the operation ends.
        unsafe { incoming_exactly(recvbuff, count, datatype, wanted, comm) }
    })
}

/// As nexarRecvTag, for a message whose count is not known: receives up to capacity elements, and
/// writes source, tag and count of the message, and datatype, to status. Elements of recvbuff
/// beyond the count are not written. status may be NULL.
///
/// A message of more than capacity elements is not received: the call (in a group nexarGroupEnd, on
/// a stream nexarStreamSynchronize) is nexarInvalidArgument, its text has both counts, the source
/// and the tag, and comm still works. It makes no difference whether message or receive was first.
/// The message keeps its place before later ones of its sender: nexarProbeTag finds it, and a
/// receive with the capacity takes it. A message of another datatype is nexarInvalidUsage and comm
/// has failed, as in nexarRecvTag; nexarProbeTag reports the datatype beforehand.
///
/// status is written when the receive has succeeded, and only then. Like recvbuff, it must stay
/// valid and untouched until the operation has completed: inside a group until the outermost
/// nexarGroupEnd has returned, on a stream until nexarStreamSynchronize has. status->size is read
/// by the call itself; if it is less than in the first version of nexarStatus_t, the call is
/// nexarInvalidArgument.
///
/// recvbuff must be in host memory, and stream NULL or of nexarStreamCreate: a CUDA stream could
/// report neither the count nor the error of one call. Anything else is nexarInvalidArgument. For
/// device memory, use nexarProbeTag, then nexarRecvTag with the count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRecvTagStatus(
    recvbuff: *mut c_void,
    capacity: usize,
    datatype: DataTypeCode,
    peer: c_int,
    tag: c_int,
    status: *mut nexarStatus_t,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarRecvTagStatus", comm, stream, |communicator| {
        let wanted = tagged(peer, tag, communicator.me())?;
        let dtype = datatypes::find(datatype, comm)?;
        arguments::capacity(capacity, dtype)?;
        // SAFETY: NULL, or a status that begins with its size and lives until the operation ends.
        let status = unsafe { StatusOut::new(status) }?;
        let call = RecvCall { wanted, dtype, count: RecvCount::UpTo(capacity) };
        // SAFETY: the caller's buffer has `capacity` elements and lives until the operation ends.
        unsafe {
            incoming(recvbuff, capacity, call, status.map(|status| status.into_report(datatype)))
        }
    })
}

/// Finds the message that nexarRecvTag with this peer and tag would take, and leaves it there: the
/// first that has arrived and that no receive has taken. peer may be NEXAR_ANY_SOURCE and tag
/// NEXAR_ANY_TAG. It never finds a message of nexarSend.
///
/// If flag is NULL, the call waits for such a message, as nexarRecvTag on stream NULL would: behind
/// the operations that are queued for comm, with the same deadline and the same failures. Otherwise
/// it waits for nothing, and sets flag to 1 if it has found a message, else to 0. A message that
/// was sent may still be under way then; a loop of such calls finds it, or ends with the failure
/// that ends a receive: the loss of all ranks that it could come from, or a failure of comm.
///
/// Writes source, tag, count and datatype of the message that was found to status, which may be
/// NULL; if none was found, status is not written. If the sender's type is of nexarDataTypeCreate,
/// datatype is the first type of comm with that size, or nexarMaxDataType if comm has none. A
/// receive that follows, with this peer and tag or with those of status, takes this message, unless
/// another thread or a stream receives it in between. status->size is as for nexarRecvTagStatus.
///
/// The call completes before it returns; inside a group it is nexarInvalidUsage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarProbeTag(
    peer: c_int,
    tag: c_int,
    flag: *mut c_int,
    status: *mut nexarStatus_t,
    comm: nexarComm_t,
) -> Code {
    outside_groups("nexarProbeTag", comm, |communicator| {
        let wanted = tagged(peer, tag, communicator.me())?;
        // SAFETY: the caller passes NULL or a pointer that can be written.
        let flag = unsafe { Out::new("flag", flag) }.ok();
        // SAFETY: NULL, or a status that begins with its size and lives until the call returns.
        let status = unsafe { StatusOut::new(status) }?;
        let found = probe(communicator, wanted, flag.is_none())?;
        if let Some(flag) = flag {
            flag.set(found.is_some().into());
        }
        if let (Some(status), Some((source, envelope))) = (status, found) {
            let datatype = datatypes::number_of(envelope.dtype, comm);
            status.set(source, envelope, datatype);
        }
        Ok(())
    })
}

/// nexarSend to rank dest and nexarRecv from rank source, concurrently: neither waits for the
/// other. The buffers must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarSendRecv(
    sendbuff: *const c_void,
    sendcount: usize,
    dest: c_int,
    recvbuff: *mut c_void,
    recvcount: usize,
    source: c_int,
    datatype: DataTypeCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    messages("nexarSendRecv", comm, stream, |communicator| {
        let me = communicator.me();
        let (to, from) = (rank("dest", dest, me)?, rank("source", source, me)?);
        let sent = envelope(sendcount, datatype, Tag::None, comm)?;
        let received = envelope(recvcount, datatype, Tag::None, comm)?;
        let (input, output) =
            (self::sendbuff(sendbuff, sent.bytes()), self::recvbuff(recvbuff, received.bytes()));
        // SAFETY: the caller's buffers have as many elements and live until the operation ends.
        let Buffers::Apart { input, output } = (unsafe { Buffers::from_raw(input, output, 0) })?
        else {
            return Err(Error::Argument("sendbuff and recvbuff overlap".to_owned()));
        };
        let outgoing = Outgoing { to, envelope: sent, bytes: input, synchronous: false };
        let wanted = Wanted { source: Some(from), tag: WantedTag::This(Tag::None) };
        let (dtype, count) = (received.dtype, RecvCount::Exactly(recvcount));
        let call = RecvCall { wanted, dtype, count };
        let incoming = Incoming { call, into: output, report: None };
        Ok([Work::Send(outgoing), Work::Recv(incoming)])
    })
}

pub(super) fn number(tag: c_int) -> Result<Tag> {
    match u32::try_from(tag) {
        Ok(tag) => Ok(Tag::Number(tag)),
        Err(_) => Err(Error::Argument(format!("tag {tag} is negative"))),
    }
}

/// The messages with a tag that a receive or a probe names.
pub(super) fn tagged(peer: c_int, tag: c_int, me: RankOf) -> Result<Wanted> {
    let source = match peer {
        NEXAR_ANY_SOURCE => None,
        peer => Some(rank("peer", peer, me)?),
    };
    let tag = match tag {
        NEXAR_ANY_TAG => WantedTag::AnyNumber,
        tag => WantedTag::This(number(tag)?),
    };
    Ok(Wanted { source, tag })
}

/// Fails if the message is longer than the address space.
pub(super) fn envelope(
    count: usize,
    datatype: DataTypeCode,
    tag: Tag,
    comm: nexarComm_t,
) -> Result<Envelope> {
    let dtype = datatypes::find(datatype, comm)?;
    arguments::bytes(count, dtype, 1)?;
    Ok(Envelope { tag, dtype, count })
}

/// # Safety
/// As for `Buffers::from_raw`: `address` has the number of elements of the envelope.
pub(super) unsafe fn outgoing<'a>(
    address: *const c_void,
    to: Rank,
    envelope: Envelope,
) -> Result<Outgoing<'a>> {
    let input = sendbuff(address, envelope.bytes());
    // SAFETY: the caller vouches for the region.
    match unsafe { Buffers::from_raw(input, Region::UNUSED, 0) }? {
        Buffers::Apart { input: bytes, .. } => {
            Ok(Outgoing { to, envelope, bytes, synchronous: false })
        }
        Buffers::Shared { .. } => unreachable!("an unused region overlaps no other"),
    }
}

/// # Safety
/// As for `Buffers::from_raw`: `address` has `count` elements.
unsafe fn incoming_exactly<'a>(
    address: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    wanted: Wanted,
    comm: nexarComm_t,
) -> Result<Incoming<'a>> {
    let Envelope { dtype, .. } = envelope(count, datatype, Tag::None, comm)?;
    let call = RecvCall { wanted, dtype, count: RecvCount::Exactly(count) };
    // SAFETY: the caller vouches for the elements.
    unsafe { incoming(address, count, call, None) }
}

/// # Safety
/// As for `Buffers::from_raw`: `address` has `count` elements, which the call allows at most.
pub(super) unsafe fn incoming<'a>(
    address: *mut c_void,
    count: usize,
    call: RecvCall,
    report: Option<StatusReport<'a>>,
) -> Result<Incoming<'a>> {
    let output = recvbuff(address, count * call.dtype.size());
    // SAFETY: the caller vouches for the region.
    match unsafe { Buffers::from_raw(Region::UNUSED, output, 0) }? {
        Buffers::Apart { output: into, .. } => Ok(Incoming { call, into, report }),
        Buffers::Shared { .. } => unreachable!("an unused region overlaps no other"),
    }
}
