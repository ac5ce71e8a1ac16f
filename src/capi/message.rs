//! Messages between two ranks: each function parses its arguments into a message and submits it to
//! the communicator.

use std::ffi::{c_int, c_void};

use crate::buffer::{Buffers, Region};
use crate::comm::Work;
use crate::error::{Code, Error, Result};
use crate::message::{Envelope, Incoming, Outgoing, Tag, Wanted, WantedTag};
use crate::rank::Rank;

use super::arguments::{self, rank};
use super::collective::{recvbuff, sendbuff};
use super::submit::{operation, operations};
use super::types::{DataTypeCode, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, nexarComm_t, nexarStream_t};

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
        let envelope = envelope(count, datatype, Tag::None)?;
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
        let envelope = envelope(count, datatype, Tag::None)?;
        let wanted = Wanted { source, tag: WantedTag::This(Tag::None) };
        // SAFETY: the caller's buffer has `count` elements and lives until the operation ends.
        unsafe { incoming(recvbuff, wanted, envelope) }
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
        let envelope = envelope(count, datatype, number(tag)?)?;
        // SAFETY: the caller's buffer has `count` elements and lives until the operation ends.
        unsafe { outgoing(sendbuff, to, envelope) }
    })
}

/// As nexarRecv, for messages of nexarSendTag: receives the first message from rank peer that has
/// this tag. peer may be NEXAR_ANY_SOURCE and tag NEXAR_ANY_TAG. It never receives a message of
/// nexarSend. The call does not report the source and the tag it has matched: if you need them,
/// send them in the message.
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
        let source = match peer {
            NEXAR_ANY_SOURCE => None,
            peer => Some(rank("peer", peer, communicator.me())?),
        };
        let tag = match tag {
            NEXAR_ANY_TAG => WantedTag::AnyNumber,
            tag => WantedTag::This(number(tag)?),
        };
        let envelope = envelope(count, datatype, Tag::None)?;
        let wanted = Wanted { source, tag };
        // SAFETY: the caller's buffer has `count` elements and lives until the operation ends.
        unsafe { incoming(recvbuff, wanted, envelope) }
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
    operations("nexarSendRecv", comm, stream, |communicator| {
        let me = communicator.me();
        let (to, from) = (rank("dest", dest, me)?, rank("source", source, me)?);
        let sent = envelope(sendcount, datatype, Tag::None)?;
        let received = envelope(recvcount, datatype, Tag::None)?;
        let (input, output) =
            (self::sendbuff(sendbuff, sent.bytes()), self::recvbuff(recvbuff, received.bytes()));
        // SAFETY: the caller's buffers have as many elements and live until the operation ends.
        let Buffers::Apart { input, output } = (unsafe { Buffers::from_raw(input, output, 0) })?
        else {
            return Err(Error::Argument("sendbuff and recvbuff overlap".to_owned()));
        };
        let outgoing = Outgoing { to, envelope: sent, bytes: input, synchronous: false };
        let wanted = Wanted { source: Some(from), tag: WantedTag::This(Tag::None) };
        let (dtype, count) = (received.dtype, recvcount);
        let incoming = Incoming { wanted, dtype, count, into: output };
        Ok(vec![Work::Send(outgoing), Work::Recv(incoming)])
    })
}

fn number(tag: c_int) -> Result<Tag> {
    match u32::try_from(tag) {
        Ok(tag) => Ok(Tag::Number(tag)),
        Err(_) => Err(Error::Argument(format!("tag {tag} is negative"))),
    }
}

/// Fails if the message is longer than the address space.
fn envelope(count: usize, datatype: DataTypeCode, tag: Tag) -> Result<Envelope> {
    let dtype = arguments::dtype(datatype)?;
    arguments::bytes(count, dtype, 1)?;
    Ok(Envelope { tag, dtype, count })
}

/// # Safety
/// As for `Buffers::from_raw`: `address` has the number of elements of the envelope.
unsafe fn outgoing<'a>(
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
/// As for `Buffers::from_raw`: `address` has the number of elements of the envelope.
unsafe fn incoming<'a>(
    address: *mut c_void,
    wanted: Wanted,
    Envelope { dtype, count, .. }: Envelope,
) -> Result<Incoming<'a>> {
    let output = recvbuff(address, count * dtype.size());
    // SAFETY: the caller vouches for the region.
    match unsafe { Buffers::from_raw(Region::UNUSED, output, 0) }? {
        Buffers::Apart { output: into, .. } => Ok(Incoming { wanted, dtype, count, into }),
        Buffers::Shared { .. } => unreachable!("an unused region overlaps no other"),
    }
}
