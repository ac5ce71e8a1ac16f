//! Collectives: each turns its arguments into one `Op` and hands it to the communicator.

use std::ffi::{c_int, c_void};

use crate::buffer::{Buffers, Region};
use crate::error::Code;
use crate::op::{Call, Op};

use super::arguments;
use super::boundary::on_communicator;
use super::types::{DataTypeCode, RedOpCode, nexarComm_t, nexarStream_t};

fn sendbuff(address: *const c_void, bytes: usize) -> Region {
    Region { name: "sendbuff", address: address.cast_mut().cast(), bytes }
}

fn recvbuff(address: *mut c_void, bytes: usize) -> Region {
    Region { name: "recvbuff", address: address.cast(), bytes }
}

/// Folds the count elements of all ranks' sendbuff with op; every rank gets the result in
/// recvbuff, the same bits everywhere. In place when sendbuff == recvbuff.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarAllReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    on_communicator("nexarAllReduce", comm, |communicator| {
        let fold = arguments::fold(datatype, op)?;
        let bytes = arguments::bytes(count, fold.dtype(), 1)?;
        arguments::stream(stream)?;
        let (input, output) = (self::sendbuff(sendbuff, bytes), self::recvbuff(recvbuff, bytes));
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the call returns.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        communicator.run(Op { call: Call::AllReduce { count, fold }, buffers })
    })
}

/// As nexarAllReduce, but only rank root gets the result. recvbuff is ignored elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    op: RedOpCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    on_communicator("nexarReduce", comm, |communicator| {
        let place = communicator.place();
        let fold = arguments::fold(datatype, op)?;
        let root = arguments::root(root, place)?;
        let bytes = arguments::bytes(count, fold.dtype(), 1)?;
        arguments::stream(stream)?;
        let input = self::sendbuff(sendbuff, bytes);
        let at_root = place.rank == root;
        let output = if at_root { self::recvbuff(recvbuff, bytes) } else { Region::UNUSED };
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the call returns.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        communicator.run(Op { call: Call::Reduce { count, fold, root }, buffers })
    })
}

/// Copies root's sendbuff to every rank's recvbuff. sendbuff is ignored elsewhere. In place at
/// the root when sendbuff == recvbuff.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarBroadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    on_communicator("nexarBroadcast", comm, |communicator| {
        let place = communicator.place();
        let dtype = arguments::dtype(datatype)?;
        let root = arguments::root(root, place)?;
        let bytes = arguments::bytes(count, dtype, 1)?;
        arguments::stream(stream)?;
        let at_root = place.rank == root;
        let input = if at_root { self::sendbuff(sendbuff, bytes) } else { Region::UNUSED };
        let output = self::recvbuff(recvbuff, bytes);
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the call returns.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        communicator.run(Op { call: Call::Broadcast { count, dtype, root }, buffers })
    })
}

/// nexarBroadcast in place: buff is sent by the root and written elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarBcast(
    buff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    on_communicator("nexarBcast", comm, |communicator| {
        let dtype = arguments::dtype(datatype)?;
        let root = arguments::root(root, communicator.place())?;
        let bytes = arguments::bytes(count, dtype, 1)?;
        arguments::stream(stream)?;
        let buff = Region { name: "buff", address: buff.cast(), bytes };
        // SAFETY: the caller's buffer has `bytes` bytes and lives until the call returns.
        let buffers = unsafe { Buffers::from_raw(buff, buff, 0) }?;
        communicator.run(Op { call: Call::Broadcast { count, dtype, root }, buffers })
    })
}

/// Gathers sendcount elements of every rank, in rank order, in every rank's recvbuff of
/// nranks * sendcount. In place when sendbuff == recvbuff + rank * sendcount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: DataTypeCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    on_communicator("nexarAllGather", comm, |communicator| {
        let place = communicator.place();
        let dtype = arguments::dtype(datatype)?;
        let all = arguments::bytes(sendcount, dtype, place.size)?;
        arguments::stream(stream)?;
        let block = all / place.size;
        let (input, output) = (self::sendbuff(sendbuff, block), self::recvbuff(recvbuff, all));
        // SAFETY: the caller's buffers have `block` and `all` bytes and live until the call returns.
        let buffers = unsafe { Buffers::from_raw(input, output, place.rank.0 * block) }?;
        communicator.run(Op { call: Call::AllGather { count: sendcount, dtype }, buffers })
    })
}

/// Folds all ranks' sendbuff of nranks * recvcount elements with op; rank i gets block i of the
/// result, recvcount elements. In place when recvbuff == sendbuff + rank * recvcount; the other
/// blocks of sendbuff then stay as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarReduceScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    on_communicator("nexarReduceScatter", comm, |communicator| {
        let place = communicator.place();
        let fold = arguments::fold(datatype, op)?;
        let all = arguments::bytes(recvcount, fold.dtype(), place.size)?;
        arguments::stream(stream)?;
        let block = all / place.size;
        let (input, output) = (self::sendbuff(sendbuff, all), self::recvbuff(recvbuff, block));
        // SAFETY: the caller's buffers have `all` and `block` bytes and live until the call returns.
        let buffers = unsafe { Buffers::from_raw(input, output, place.rank.0 * block) }?;
        communicator.run(Op { call: Call::ReduceScatter { count: recvcount, fold }, buffers })
    })
}

/// Returns when all ranks have called it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarBarrier(comm: nexarComm_t, stream: nexarStream_t) -> Code {
    on_communicator("nexarBarrier", comm, |communicator| {
        arguments::stream(stream)?;
        communicator.run(Op { call: Call::Barrier, buffers: Buffers::none() })
    })
}
