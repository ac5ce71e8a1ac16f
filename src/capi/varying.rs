//! Collectives whose blocks differ in length: the v-forms.

use std::ffi::{c_int, c_void};

use crate::blocks::Blocks;
use crate::buffer::{Buffers, Region};
use crate::dtype::ElementType;
use crate::error::{Code, Error, Result};
use crate::op::{Counts, Op};

use super::arguments;
use super::collective::{recvbuff, sendbuff};
use super::datatypes;
use super::submit::operation;
use super::types::{DataTypeCode, RedOpCode, nexarComm_t, nexarStream_t};

/// Counts and ranges of the blocks of a buffer, parsed from two arrays of the caller.
struct VaryingBlocks {
    counts: Vec<usize>,
    blocks: Blocks,
}

impl VaryingBlocks {
    /// # Safety
    /// Each array is NULL or has `size` elements.
    unsafe fn new(
        [counts_name, displs_name]: [&str; 2],
        [counts, displs]: [*const usize; 2],
        dtype: ElementType,
        size: usize,
    ) -> Result<Self> {
        // SAFETY: as for this function.
        let counts = unsafe { arguments::array(counts_name, counts, size) }?;
        let displs = match displs.is_null() {
            true => None,
            // SAFETY: as for this function.
            false => Some(unsafe { arguments::array(displs_name, displs, size) }?),
        };
        arguments::check_total(counts_name, &counts, dtype)?;
        let blocks = arguments::blocks(&counts, displs.as_deref(), displs_name, dtype)?;
        Ok(Self { counts, blocks })
    }

    /// Fails if two blocks overlap, as blocks that are written must not.
    fn apart(self, displs_name: &str) -> Result<Self> {
        match self.blocks.overlapping() {
            None => Ok(self),
            Some((one, other)) => Err(Error::Argument(format!(
                "{displs_name}: the blocks of rank {one} and rank {other} overlap"
            ))),
        }
    }
}

/// Fails if a count that the caller passes twice is not the same.
fn agree(one: (&str, usize), other: (&str, usize), rank: usize) -> Result<()> {
    if one.1 == other.1 {
        return Ok(());
    }
    let (name, count) = one;
    Err(Error::Argument(format!("{name} {count} is not {}[{rank}], which is {}", other.0, other.1)))
}

const RECEIVED: [&str; 2] = ["recvcounts", "rdispls"];
const SENT: [&str; 2] = ["sendcounts", "sdispls"];

/// As nexarAllGather, with a count for each rank: rank i's recvcounts[i] elements are written at
/// recvbuff + rdispls[i], in elements, on every rank. sendcount is recvcounts[rank]. Every rank
/// passes the same recvcounts. If rdispls is NULL, the blocks are contiguous. In place if
/// sendbuff == recvbuff + rdispls[rank].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarAllGatherV(
    sendbuff: *const c_void,
    sendcount: usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: DataTypeCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarAllGatherV", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        // SAFETY: the caller's arrays have an element for each rank.
        let layout =
            unsafe { VaryingBlocks::new(RECEIVED, [recvcounts, rdispls], dtype, me.size) }?;
        let VaryingBlocks { counts, blocks } = layout.apart("rdispls")?;
        let own = me.rank.0;
        agree(("sendcount", sendcount), ("recvcounts", counts[own]), own)?;
        let input = self::sendbuff(sendbuff, blocks.get(own).len());
        let output = self::recvbuff(recvbuff, blocks.extent());
        // SAFETY: the caller's buffers hold these blocks and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, blocks.get(own).start) }?;
        let counts = Counts::listed(&counts);
        Ok(Op::all_gather(counts, dtype, blocks, buffers))
    })
}

/// As nexarReduceScatter, with a count for each rank: rank i receives a block of recvcounts[i]
/// elements. The blocks are contiguous in sendbuff. Every rank passes the same recvcounts. In place
/// if recvbuff is this rank's block of sendbuff.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarReduceScatterV(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    datatype: DataTypeCode,
    op: RedOpCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarReduceScatterV", comm, stream, |communicator| {
        let me = communicator.me();
        let reducer = arguments::reducer(datatype, op, comm)?;
        let arrays = [recvcounts, std::ptr::null()];
        // SAFETY: the caller's array has an element for each rank.
        let layout = unsafe { VaryingBlocks::new(RECEIVED, arrays, reducer.dtype(), me.size) }?;
        let VaryingBlocks { counts, blocks } = layout;
        let own = blocks.get(me.rank.0);
        let input = self::sendbuff(sendbuff, blocks.extent());
        let output = self::recvbuff(recvbuff, own.len());
        // SAFETY: the caller's buffers hold these blocks and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, own.start) }?;
        let counts = Counts::listed(&counts);
        Ok(Op::reduce_scatter(counts, reducer, blocks, buffers))
    })
}

/// As nexarAllToAll, with counts for each pair of ranks: sends sendcounts[i] elements at
/// sendbuff + sdispls[i] to rank i, and receives recvcounts[i] elements at recvbuff + rdispls[i]
/// from rank i. If sdispls or rdispls is NULL, those blocks are contiguous. In place if
/// sendbuff == recvbuff and both sides have the same counts and displacements.
///
/// Sender and receiver of each block pass the same count. Otherwise every rank gets
/// nexarInvalidUsage; for the block of a rank to itself, that rank alone gets nexarInvalidArgument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarAllToAllV(
    sendbuff: *const c_void,
    sendcounts: *const usize,
    sdispls: *const usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: DataTypeCode,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarAllToAllV", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        // SAFETY: the caller's arrays have an element for each rank.
        let sent = unsafe { VaryingBlocks::new(SENT, [sendcounts, sdispls], dtype, me.size) }?;
        // SAFETY: as above.
        let received =
            unsafe { VaryingBlocks::new(RECEIVED, [recvcounts, rdispls], dtype, me.size) }?;
        let received = received.apart("rdispls")?;
        let own = me.rank.0;
        agree(("sendcounts[rank]", sent.counts[own]), ("recvcounts", received.counts[own]), own)?;
        let (sent, received) = (sent.blocks, received.blocks);
        let input = self::sendbuff(sendbuff, sent.extent());
        let output = self::recvbuff(recvbuff, received.extent());
        // SAFETY: the caller's buffers hold these blocks and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, 0) }?;
        if matches!(buffers, Buffers::Shared { .. }) && sent != received {
            let what = "in place, sendcounts and sdispls must be recvcounts and rdispls";
            return Err(Error::Argument(what.to_owned()));
        }
        let counts = Counts::Pairwise;
        Ok(Op::all_to_all(counts, dtype, sent, received, buffers))
    })
}

/// As nexarGather, with a count for each rank: the root receives sendcount elements from rank i at
/// recvbuff + rdispls[i], and recvcounts[i] must be that count. recvbuff, recvcounts and rdispls
/// are ignored on other ranks. If rdispls is NULL, the blocks are contiguous. In place at the root
/// if sendbuff == recvbuff + rdispls[root].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarGatherV(
    sendbuff: *const c_void,
    sendcount: usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: DataTypeCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarGatherV", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        let root = arguments::rank("root", root, me)?;
        let input = self::sendbuff(sendbuff, arguments::bytes(sendcount, dtype, 1)?);
        let (mut blocks, mut output, mut offset) = (Blocks::at(Vec::new()), Region::UNUSED, 0);
        if me.rank == root {
            let arrays = [recvcounts, rdispls];
            // SAFETY: the root's arrays have an element for each rank.
            let layout = unsafe { VaryingBlocks::new(RECEIVED, arrays, dtype, me.size) }?;
            let layout = layout.apart("rdispls")?;
            agree(("sendcount", sendcount), ("recvcounts", layout.counts[root.0]), root.0)?;
            blocks = layout.blocks;
            (output, offset) =
                (self::recvbuff(recvbuff, blocks.extent()), blocks.get(root.0).start);
        }
        // SAFETY: the caller's buffers hold these blocks and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, offset) }?;
        let counts = Counts::Pairwise;
        Ok(Op::gather(counts, dtype, root, blocks, buffers))
    })
}

/// As nexarScatter, with a count for each rank: the root sends sendcounts[i] elements at
/// sendbuff + sdispls[i] to rank i, whose recvcount must be that count. sendbuff, sendcounts and
/// sdispls are ignored on other ranks. If sdispls is NULL, the blocks are contiguous. In place at
/// the root if recvbuff == sendbuff + sdispls[root].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarScatterV(
    sendbuff: *const c_void,
    sendcounts: *const usize,
    sdispls: *const usize,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: DataTypeCode,
    root: c_int,
    comm: nexarComm_t,
    stream: nexarStream_t,
) -> Code {
    operation("nexarScatterV", comm, stream, |communicator| {
        let me = communicator.me();
        let dtype = datatypes::find(datatype, comm)?;
        let root = arguments::rank("root", root, me)?;
        let output = self::recvbuff(recvbuff, arguments::bytes(recvcount, dtype, 1)?);
        let (mut blocks, mut input, mut offset) = (Blocks::at(Vec::new()), Region::UNUSED, 0);
        if me.rank == root {
            // SAFETY: the root's arrays have an element for each rank.
            let layout =
                unsafe { VaryingBlocks::new(SENT, [sendcounts, sdispls], dtype, me.size) }?;
            agree(("recvcount", recvcount), ("sendcounts", layout.counts[root.0]), root.0)?;
            blocks = layout.blocks;
            (input, offset) = (self::sendbuff(sendbuff, blocks.extent()), blocks.get(root.0).start);
        }
        // SAFETY: the caller's buffers hold these blocks and live until the operation ends.
        let buffers = unsafe { Buffers::from_raw(input, output, offset) }?;
        let counts = Counts::Pairwise;
        Ok(Op::scatter(counts, dtype, root, blocks, buffers))
    })
}
