//! Collectives: each function parses its arguments into one `Op` and submits it to the
//! communicator.

use std::ffi::{c_int, c_void};

use crate::blocks::Blocks;
use crate::buffer::{self, Buffers, Region};
use crate::error::Code;
use crate::op::{Counts, Op};

use super::arguments;
use super::datatypes;
use super::submit::operation;
use super::types::{DataTypeCode, RedOpCode, nexarComm_t, nexarStream_t};

pub(super) fn sendbuff(address: *const c_void, bytes: usize) -> Region {
    Region { name: "sendbuff", address: address.cast_mut().cast(), bytes }
}

pub(super) fn recvbuff(address: *mut c_void, bytes: usize) -> Region {
    Region { name: "recvbuff", address: address.cast(), bytes }
}

/// Reduces the count elements of all ranks' sendbuff with op and writes the result to every rank's
/// recvbuff, with the same bits on every rank. In place if sendbuff == recvbuff.
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
    operation("nexarAllReduce", comm, stream, |_| {
        let reducer = arguments::reducer(datatype, op, comm)?;
        let bytes = arguments::bytes(count, reducer.dtype(), 1)?;
        let (input, output) = (self::sendbuff(sendbuff, bytes), self::recvbuff(recvbuff, bytes));
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        Ok(Op::all_reduce(count, reducer, buffers))
    })
}

/// As nexarAllReduce, but only rank root receives the result. recvbuff is ignored on other ranks.
/// In place at the root if sendbuff == recvbuff.
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
    operation("nexarReduce", comm, stream, |communicator| {
        let me = communicator.me();
        let reducer = arguments::reducer(datatype, op, comm)?;
        let root = arguments::rank("root", root, me)?;
        let bytes = arguments::bytes(count, reducer.dtype(), 1)?;
        let input = self::sendbuff(sendbuff, bytes);
        let at_root = me.rank == root;
        let output = if at_root { self::recvbuff(recvbuff, bytes) } else { Region::UNUSED };
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        Ok(Op::reduce(count, reducer, root, buffers))
    })
}

/// Copies count elements from the root's sendbuff to every rank's recvbuff. sendbuff is ignored on
/// other ranks. In place at the root if sendbuff == recvbuff.
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
    operation("nexarBroadcast", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        let root = arguments::rank("root", root, me)?;
        let bytes = arguments::bytes(count, dtype, 1)?;
        let at_root = me.rank == root;
        let input = if at_root { self::sendbuff(sendbuff, bytes) } else { Region::UNUSED };
        let output = self::recvbuff(recvbuff, bytes);
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        Ok(Op::broadcast(count, dtype, root, buffers))
    })
}

/// As nexarBroadcast, with one buffer: the root sends buff, other ranks receive into buff.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarBcast(
    buff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarBcast", comm, stream, |communicator| {
        let dtype = datatypes::find(datatype, comm)?;
        let root = arguments::rank("root", root, communicator.me())?;
        let bytes = arguments::bytes(count, dtype, 1)?;
        let buff = Region { name: "buff", address: buff.cast(), bytes };
        // SAFETY: the caller's buffer has `bytes` bytes and lives until the operation ends.
        let buffers = unsafe { Buffers::from_raw(buff, buff, 0) }?;
        Ok(Op::broadcast(count, dtype, root, buffers))
    })
}

/// Collects sendcount elements from every rank, in rank order, in every rank's recvbuff, which has
/// nranks * sendcount elements. In place if sendbuff == recvbuff + rank * sendcount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: DataTypeCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarAllGather", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        let all = arguments::bytes(sendcount, dtype, me.size)?;
        let block = all / me.size;
        let (input, output) = (self::sendbuff(sendbuff, block), self::recvbuff(recvbuff, all));
        // SAFETY: the caller's buffers have `block` and `all` bytes and live until the operation
        // ends.
        let buffers = unsafe { Buffers::from_raw(input, output, me.rank.0 * block) }?;
        let (counts, blocks) = (Counts::Each(sendcount), Blocks::equal(block, me.size));
        Ok(Op::all_gather(counts, dtype, blocks, buffers))
    })
}

/// Reduces all ranks' sendbuff, nranks * recvcount elements, with op, and gives block i of the
/// result, recvcount elements, to rank i. In place if recvbuff == sendbuff + rank * recvcount; the
/// other blocks of sendbuff then keep their contents.
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
    operation("nexarReduceScatter", comm, stream, |communicator| {
        let me = communicator.me();
        let reducer = arguments::reducer(datatype, op, comm)?;
        let all = arguments::bytes(recvcount, reducer.dtype(), me.size)?;
        let block = all / me.size;
        let (input, output) = (self::sendbuff(sendbuff, all), self::recvbuff(recvbuff, block));
        // SAFETY: the caller's buffers have `all` and `block` bytes and live until the operation
        // ends.
        let buffers = unsafe { Buffers::from_raw(input, output, me.rank.0 * block) }?;
        let (counts, blocks) = (Counts::Each(recvcount), Blocks::equal(block, me.size));
        Ok(Op::reduce_scatter(counts, reducer, blocks, buffers))
    })
}

/// Sends block i of sendbuff, count elements, to rank i, and receives block i of recvbuff from rank
/// i. Both buffers have nranks * count elements. In place if sendbuff == recvbuff.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarAllToAll(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarAllToAll", comm, stream, |communicator| {
        let size = communicator.me().size;
        let dtype = datatypes::find(datatype, comm)?;
        let all = arguments::bytes(count, dtype, size)?;
        let (input, output) = (self::sendbuff(sendbuff, all), self::recvbuff(recvbuff, all));
        // SAFETY: the caller's buffers have `all` bytes each and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        let blocks = Blocks::equal(all / size, size);
        let (sent, received) = (blocks.clone(), blocks);
        Ok(Op::all_to_all(Counts::Each(count), dtype, sent, received, buffers))
    })
}

/// Collects count elements from every rank, in rank order, in the root's recvbuff, which has
/// nranks * count elements. recvbuff is ignored on other ranks. In place at the root if
/// sendbuff == recvbuff + root * count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarGather", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        let root = arguments::rank("root", root, me)?;
        let all = arguments::bytes(count, dtype, me.size)?;
        let block = all / me.size;
        let at_root = me.rank == root;
        let output = if at_root { self::recvbuff(recvbuff, all) } else { Region::UNUSED };
        let input = self::sendbuff(sendbuff, block);
        // SAFETY: the caller's buffers have `block` and `all` bytes and live until the operation
        // ends.
        let buffers = unsafe { Buffers::from_raw(input, output, root.0 * block) }?;
        let (counts, blocks) = (Counts::Each(count), Blocks::equal(block, me.size));
        Ok(Op::gather(counts, dtype, root, blocks, buffers))
    })
}

/// Sends block i of the root's sendbuff, count elements, to rank i's recvbuff. sendbuff has
/// nranks * count elements and is ignored on other ranks. In place at the root if
/// recvbuff == sendbuff + root * count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarScatter", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        let root = arguments::rank("root", root, me)?;
        let all = arguments::bytes(count, dtype, me.size)?;
        let block = all / me.size;
        let at_root = me.rank == root;
        let input = if at_root { self::sendbuff(sendbuff, all) } else { Region::UNUSED };
        let output = self::recvbuff(recvbuff, block);
        // SAFETY: the caller's buffers have `all` and `block` bytes and live until the operation
        // ends.
        let buffers = unsafe { Buffers::from_raw(input, output, root.0 * block) }?;
        let (counts, blocks) = (Counts::Each(count), Blocks::equal(block, me.size));
        Ok(Op::scatter(counts, dtype, root, blocks, buffers))
    })
}

/// Inclusive prefix reduction: rank i receives the reduction of the count elements of ranks
/// 0 ... i, in rank order. In place if sendbuff == recvbuff. nexarAvg is nexarInvalidArgument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarScan(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarScan", comm, stream, |_| {
        let reducer = arguments::prefix_reducer(datatype, op, comm)?;
        let bytes = arguments::bytes(count, reducer.dtype(), 1)?;
        let (input, output) = (self::sendbuff(sendbuff, bytes), self::recvbuff(recvbuff, bytes));
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        Ok(Op::scan(count, reducer, buffers))
    })
}

/// Exclusive prefix reduction: as nexarScan, but rank i receives the reduction of ranks
/// 0 ... i - 1. Rank 0 receives the identity of op: 0 for a sum, 1 for a product, the largest value
/// of the type for a minimum, the smallest for a maximum (infinities where the type has them). An
/// operator of nexarRedOpCreate has no identity: rank 0's recvbuff keeps its contents. In place if
/// sendbuff == recvbuff.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarExScan(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarExScan", comm, stream, |_| {
        let reducer = arguments::prefix_reducer(datatype, op, comm)?;
        let bytes = arguments::bytes(count, reducer.dtype(), 1)?;
        let (input, output) = (self::sendbuff(sendbuff, bytes), self::recvbuff(recvbuff, bytes));
        // SAFETY: the caller's buffers have `bytes` bytes each and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        Ok(Op::ex_scan(count, reducer, buffers))
    })
}

/// nexarAllReduce of nbuffs buffers in one call, in place: buffs[i] has counts[i] elements. It
/// takes about as long as one buffer of the same total size. Every rank passes the same counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarAllReduceBucketed(
    buffs: *const *mut c_void,
    counts: *const usize,
    nbuffs: usize,
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarAllReduceBucketed", comm, stream, |_| {
        let reducer = arguments::reducer(datatype, op, comm)?;
        // SAFETY: the caller passes as many counts as buffers.
        let counts = unsafe { arguments::array("counts", counts, nbuffs) }?;
        // SAFETY: as above.
        let buffs = unsafe { arguments::array("buffs", buffs, nbuffs) }?;
        arguments::check_total("counts", &counts, reducer.dtype())?;
        let element = reducer.dtype().size();
        let region = |(buff, count): (&*mut c_void, &usize)| Region {
            name: "buffs",
            address: buff.cast(),
            bytes: count * element,
        };
        let regions: Vec<_> = buffs.iter().zip(&counts).map(region).collect();
        // SAFETY: the caller's buffers have these lengths and live until the operation ends.
        let buckets = unsafe { buffer::list_from_raw(&regions) }?;
        let counts = Counts::listed(&counts);
        Ok(Op::all_reduce_bucketed(counts, reducer, buckets))
    })
}

/// Completes when every rank has called it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarBarrier(comm: nexarComm_t, stream: nexarStream_t) -> Code {
    operation("nexarBarrier", comm, stream, |_| Ok(Op::barrier()))
}
