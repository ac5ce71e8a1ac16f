//! The client of one rank: the calls of the published crate's `SyncClient` that take addresses.
//!
//! Leaves algorithms, deadlines and errors to libnexar. Invariants: the handle is valid until
//! `drop`; no call panics; when a call returns `Ok`, its result is in the caller's memory.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::time::Duration;

use nexar_capi::capi::collective::{
    nexarAllGather, nexarAllReduce, nexarAllReduceBucketed, nexarAllToAll, nexarBarrier,
    nexarBcast, nexarExScan, nexarGather, nexarReduce, nexarReduceScatter, nexarScan, nexarScatter,
};
use nexar_capi::capi::comm::{
    nexarCommAbort, nexarCommCount, nexarCommDestroy, nexarCommInitAll, nexarCommInitFromEnv,
    nexarCommUserRank,
};
use nexar_capi::capi::message::nexarRecvTag;
use nexar_capi::capi::split::nexarCommSplit;
use nexar_capi::capi::types::nexarComm_t;
use nexar_capi::config;
use nexar_capi::error::Code;

use crate::device::{CpuAdapter, DeviceAdapter, Memory, staged};
use crate::error::{NexarError, Result, answer};
use crate::outbox::Outbox;
use crate::types::{DataType, Rank, ReduceOp};

/// How long `drop` waits for the client's messages to be received.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);

/// A `nexarComm_t` as a number, which threads may share: libnexar never dereferences it.
#[derive(Clone, Copy)]
pub(crate) struct Handle(usize);

impl Handle {
    fn new(comm: nexarComm_t) -> Self {
        Self(comm.addr())
    }

    pub(crate) fn get(self) -> nexarComm_t {
        without_provenance_mut(self.0)
    }
}

/// One rank of a communicator. Calls return when their result is complete.
///
/// Every rank makes the same collective calls in the same order. If a rank does not, is lost or
/// does not answer, all ranks get an error, and the communicator has failed.
pub struct SyncClient {
    comm: Handle,
    rank: Rank,
    world_size: u32,
    adapter: Arc<dyn DeviceAdapter>,
    outbox: Outbox,
}

/// Creation.
impl SyncClient {
    /// Creates a communicator of `world_size` ranks, 256 at most, all in this process. Use each
    /// client in a thread of its own.
    pub fn bootstrap_local(world_size: u32, adapter: Arc<dyn DeviceAdapter>) -> Result<Vec<Self>> {
        let size = c_int::try_from(world_size).unwrap_or(c_int::MAX);
        let mut comms = vec![null_mut(); usize::try_from(size.min(256)).unwrap_or_default()];
        // SAFETY: `comms` has `size` elements for every size that the call accepts.
        let created =
            answer(unsafe { nexarCommInitAll(comms.as_mut_ptr(), size, std::ptr::null()) });
        created.map_err(NexarError::transport)?;
        comms.into_iter().map(|comm| Self::new(comm, Arc::clone(&adapter))).collect()
    }

    /// Joins the communicator that a launcher such as nexar-run describes in the environment:
    /// NEXAR_RANK, NEXAR_NRANKS, NEXAR_COMM_ID and NEXAR_COMM_SECRET. Without any of them, creates
    /// a communicator of one rank. Buffers are host memory.
    pub fn from_env() -> Result<Self> {
        let mut comm = null_mut();
        // SAFETY: a pointer to a local variable.
        answer(unsafe { nexarCommInitFromEnv(&raw mut comm) }).map_err(NexarError::transport)?;
        Self::new(comm, Arc::new(CpuAdapter::new()))
    }

    fn new(comm: nexarComm_t, adapter: Arc<dyn DeviceAdapter>) -> Result<Self> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a pointer to a local variable.
        let queried = answer(unsafe { nexarCommUserRank(comm, &raw mut rank) });
        // SAFETY: as above.
        let queried = queried.and_then(|()| answer(unsafe { nexarCommCount(comm, &raw mut size) }));
        let comm = Handle::new(comm);
        let (rank, world_size) = (rank.cast_unsigned(), size.cast_unsigned());
        let client = Self { comm, rank, world_size, adapter, outbox: Outbox::new(comm) };
        queried.map(|()| client).map_err(NexarError::transport)
    }

    /// Creates a communicator of the ranks that pass the same `color`, ordered by `key`; ranks with
    /// equal keys keep their order. Every rank must call it. The two communicators are independent.
    pub fn split(&self, color: u32, key: u32) -> Result<Self> {
        const NAME: &str = "split";
        let (own, count) = ([color, key], self.world_size as usize);
        let mut all = vec![[0u32; 2]; count];
        let (dtype, comm) = (DataType::U32.code(), self.comm.get());
        let (send, recv) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: `own` has two elements, and `all` two for each rank.
        self.check(NAME, unsafe { nexarAllGather(send, recv, 2, dtype, comm, null_mut()) })?;
        // libnexar accepts colors and keys of 31 bits, so each is replaced by its index in the
        // sorted list of all values, which is the same on every rank.
        let index_of = |index: usize, own: u32| {
            let mut values: Vec<_> = all.iter().map(|pair| pair[index]).collect();
            values.sort_unstable();
            values.dedup();
            values.partition_point(|value| *value < own) as c_int
        };
        let (color, key, mut split) = (index_of(0, color), index_of(1, key), null_mut());
        // SAFETY: a pointer to a local variable; NULL means the settings of this communicator.
        let code = unsafe { nexarCommSplit(comm, color, key, &raw mut split, std::ptr::null()) };
        self.check(NAME, code)?;
        Self::new(split, Arc::clone(&self.adapter))
    }

    pub fn rank(&self) -> Rank {
        self.rank
    }

    pub fn world_size(&self) -> u32 {
        self.world_size
    }
}

/// Collectives. `count` counts elements; `ptr` and the like are addresses in the adapter's memory.
impl SyncClient {
    /// Reduces the elements of all ranks at `ptr` and writes the result to `ptr` on every rank.
    ///
    /// # Safety
    /// `ptr` is the address of `count` elements, which no other code accesses meanwhile.
    pub unsafe fn all_reduce(
        &self,
        ptr: u64,
        count: usize,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()> {
        // SAFETY: as the caller vouches.
        unsafe {
            self.in_place("all_reduce", ptr, count, dtype, |data| {
                let (code, op) = (dtype.code(), op.code());
                nexarAllReduce(data, data, count, code, op, self.comm.get(), null_mut())
            })
        }
    }

    /// As `all_reduce`: libnexar chooses the algorithm by the size of the call.
    ///
    /// # Safety
    /// As for `all_reduce`.
    pub unsafe fn all_reduce_rs_ag(
        &self,
        ptr: u64,
        count: usize,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()> {
        // SAFETY: as the caller vouches.
        unsafe { self.all_reduce(ptr, count, dtype, op) }
    }

    /// `all_reduce` of several buffers at once, each an address and a number of elements. Every
    /// rank passes the same numbers. The buffers do not overlap.
    ///
    /// # Safety
    /// As for `all_reduce`, for each buffer.
    pub unsafe fn all_reduce_bucketed(
        &self,
        entries: &[(u64, usize)],
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()> {
        const NAME: &str = "all_reduce_bucketed";
        let mut buckets = Vec::with_capacity(entries.len());
        for (ptr, count) in entries {
            let bytes = self.bytes(NAME, *count, dtype, 1)?;
            // SAFETY: as the caller vouches.
            buckets.push(unsafe { Memory::in_place(&*self.adapter, *ptr, bytes) }?);
        }
        let addresses: Vec<*mut c_void> =
            buckets.iter_mut().map(|bucket| bucket.address().cast()).collect();
        let counts: Vec<_> = entries.iter().map(|(_, count)| *count).collect();
        let (code, op, comm) = (dtype.code(), op.code(), self.comm.get());
        let (buffs, counts, number) = (addresses.as_ptr(), counts.as_ptr(), entries.len());
        // SAFETY: there are as many addresses as counts, and each buffer has its count of elements.
        let code =
            unsafe { nexarAllReduceBucketed(buffs, counts, number, code, op, comm, null_mut()) };
        self.check(NAME, code)?;
        for (bucket, (ptr, _)) in buckets.into_iter().zip(entries) {
            // SAFETY: as the caller vouches.
            unsafe { bucket.deliver(&*self.adapter, *ptr) }?;
        }
        Ok(())
    }

    /// Copies the elements at `ptr` on rank `root` to `ptr` on every rank.
    ///
    /// # Safety
    /// As for `all_reduce`.
    pub unsafe fn broadcast(
        &self,
        ptr: u64,
        count: usize,
        dtype: DataType,
        root: Rank,
    ) -> Result<()> {
        let root = self.member(root)?;
        // SAFETY: as the caller vouches.
        unsafe {
            self.in_place("broadcast", ptr, count, dtype, |data| {
                nexarBcast(data, count, dtype.code(), root, self.comm.get(), null_mut())
            })
        }
    }

    /// As `all_reduce`, but only rank `root` gets the result; the other ranks' elements do not
    /// change.
    ///
    /// # Safety
    /// As for `all_reduce`.
    pub unsafe fn reduce(
        &self,
        ptr: u64,
        count: usize,
        dtype: DataType,
        op: ReduceOp,
        root: Rank,
    ) -> Result<()> {
        let root = self.member(root)?;
        // SAFETY: as the caller vouches.
        unsafe {
            self.in_place("reduce", ptr, count, dtype, |data| {
                let (code, op) = (dtype.code(), op.code());
                nexarReduce(data, data, count, code, op, root, self.comm.get(), null_mut())
            })
        }
    }

    /// Rank i gets the reduction of the elements of ranks 0 to i.
    ///
    /// # Safety
    /// As for `all_reduce`.
    pub unsafe fn scan(&self, ptr: u64, count: usize, dtype: DataType, op: ReduceOp) -> Result<()> {
        // SAFETY: as the caller vouches.
        unsafe {
            self.in_place("scan", ptr, count, dtype, |data| {
                let (code, op) = (dtype.code(), op.code());
                nexarScan(data, data, count, code, op, self.comm.get(), null_mut())
            })
        }
    }

    /// Rank i gets the reduction of the elements of ranks 0 to i - 1, rank 0 the identity of `op`:
    /// 0, 1, or the largest or smallest value of the type, which is an infinity where there is one.
    ///
    /// # Safety
    /// As for `all_reduce`.
    pub unsafe fn exclusive_scan(
        &self,
        ptr: u64,
        count: usize,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()> {
        // SAFETY: as the caller vouches.
        unsafe {
            self.in_place("exclusive_scan", ptr, count, dtype, |data| {
                let (code, op) = (dtype.code(), op.code());
                nexarExScan(data, data, count, code, op, self.comm.get(), null_mut())
            })
        }
    }

    /// Gathers `count` elements of every rank at `recv_ptr` of every rank, in rank order.
    ///
    /// # Safety
    /// `send_ptr` is the address of `count` elements, `recv_ptr` of that many for each
    /// rank. No other code touches them meanwhile. They may overlap.
    pub unsafe fn all_gather(
        &self,
        send_ptr: u64,
        recv_ptr: u64,
        count: usize,
        dtype: DataType,
    ) -> Result<()> {
        let buffers = SendRecv { send: (send_ptr, 1), recv: (recv_ptr, self.world_size) };
        // SAFETY: as the caller vouches.
        unsafe {
            self.between("all_gather", buffers, count, dtype, |send, recv| {
                nexarAllGather(send, recv, count, dtype.code(), self.comm.get(), null_mut())
            })
        }
    }

    /// Reduces `count` elements for each rank, at `send_ptr` of every rank. Rank i gets block i of
    /// the result, `count` elements, at `recv_ptr`.
    ///
    /// # Safety
    /// As for `all_gather`, with the sizes of the two exchanged.
    pub unsafe fn reduce_scatter(
        &self,
        send_ptr: u64,
        recv_ptr: u64,
        count: usize,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()> {
        let buffers = SendRecv { send: (send_ptr, self.world_size), recv: (recv_ptr, 1) };
        // SAFETY: as the caller vouches.
        unsafe {
            self.between("reduce_scatter", buffers, count, dtype, |send, recv| {
                let (code, op) = (dtype.code(), op.code());
                nexarReduceScatter(send, recv, count, code, op, self.comm.get(), null_mut())
            })
        }
    }

    /// Sends block i at `send_ptr`, `count` elements, to rank i, which gets it as block `rank` at
    /// its `recv_ptr`.
    ///
    /// # Safety
    /// As for `all_gather`, with `count` elements for each rank at both addresses.
    pub unsafe fn all_to_all(
        &self,
        send_ptr: u64,
        recv_ptr: u64,
        count: usize,
        dtype: DataType,
    ) -> Result<()> {
        let size = self.world_size;
        let buffers = SendRecv { send: (send_ptr, size), recv: (recv_ptr, size) };
        // SAFETY: as the caller vouches.
        unsafe {
            self.between("all_to_all", buffers, count, dtype, |send, recv| {
                nexarAllToAll(send, recv, count, dtype.code(), self.comm.get(), null_mut())
            })
        }
    }

    /// Gathers `count` elements of every rank at `recv_ptr` of rank `root`, in rank order. Other
    /// ranks ignore `recv_ptr`.
    ///
    /// # Safety
    /// As for `all_gather`; on ranks other than `root`, `recv_ptr` may have any value.
    pub unsafe fn gather(
        &self,
        send_ptr: u64,
        recv_ptr: u64,
        count: usize,
        dtype: DataType,
        root: Rank,
    ) -> Result<()> {
        let blocks = if root == self.rank { self.world_size } else { 0 };
        let buffers = SendRecv { send: (send_ptr, 1), recv: (recv_ptr, blocks) };
        let root = self.member(root)?;
        // SAFETY: as the caller vouches.
        unsafe {
            self.between("gather", buffers, count, dtype, |send, recv| {
                nexarGather(send, recv, count, dtype.code(), root, self.comm.get(), null_mut())
            })
        }
    }

    /// Sends block i at `send_ptr` of rank `root`, `count` elements, to `recv_ptr` of rank i. Other
    /// ranks ignore `send_ptr`.
    ///
    /// # Safety
    /// As for `reduce_scatter`; on ranks other than `root`, `send_ptr` may have any value.
    pub unsafe fn scatter(
        &self,
        send_ptr: u64,
        recv_ptr: u64,
        count: usize,
        dtype: DataType,
        root: Rank,
    ) -> Result<()> {
        let blocks = if root == self.rank { self.world_size } else { 0 };
        let buffers = SendRecv { send: (send_ptr, blocks), recv: (recv_ptr, 1) };
        let root = self.member(root)?;
        // SAFETY: as the caller vouches.
        unsafe {
            self.between("scatter", buffers, count, dtype, |send, recv| {
                nexarScatter(send, recv, count, dtype.code(), root, self.comm.get(), null_mut())
            })
        }
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: the call has no buffers.
        self.check("barrier", unsafe { nexarBarrier(self.comm.get(), null_mut()) })
    }
}

/// Messages. A receive takes the first message from its source with its tag; their sizes must be
/// equal. Tags go up to 2^31 - 1.
impl SyncClient {
    /// Sends `size` bytes to rank `dest`. Returns when they are copied, before they are received.
    ///
    /// # Safety
    /// `ptr` is the address of `size` bytes, which no other code writes meanwhile.
    pub unsafe fn send(&self, ptr: u64, size: usize, dest: Rank, tag: u32) -> Result<()> {
        const NAME: &str = "send";
        let (to, tag) = (self.peer(dest)?, self.tag(NAME, tag)?);
        let bytes = match (ptr, size) {
            (_, 0) => Vec::new(),
            (0, _) => return Err(self.failed(NAME, "the address is NULL".to_owned())),
            // SAFETY: as the caller vouches.
            _ => unsafe { staged(&*self.adapter, ptr, size) }?,
        };
        self.outbox.send(to, tag, bytes).map_err(|reason| self.failed(NAME, reason))
    }

    /// Receives `size` bytes from rank `src`.
    ///
    /// # Safety
    /// `ptr` is the address of `size` bytes, which no other code accesses meanwhile.
    pub unsafe fn recv(&self, ptr: u64, size: usize, src: Rank, tag: u32) -> Result<()> {
        const NAME: &str = "recv";
        let (peer, tag) = (self.peer(src)?, self.tag(NAME, tag)?);
        let mut memory = Memory::to_write(&*self.adapter, ptr, size)?;
        let (address, code, comm) = (memory.address().cast(), DataType::U8.code(), self.comm.get());
        // SAFETY: as the caller vouches.
        let code = unsafe { nexarRecvTag(address, size, code, peer, tag, comm, null_mut()) };
        self.check(NAME, code)?;
        // SAFETY: as the caller vouches.
        unsafe { memory.deliver(&*self.adapter, ptr) }
    }
}

/// Address and number of blocks of the buffer that a call reads, and of the one that it writes.
struct SendRecv {
    send: (u64, u32),
    recv: (u64, u32),
}

impl SyncClient {
    /// # Safety
    /// `ptr` is the address of `count` elements, which no other code accesses meanwhile,
    /// and `call` accesses no other memory.
    unsafe fn in_place(
        &self,
        name: &'static str,
        ptr: u64,
        count: usize,
        dtype: DataType,
        call: impl FnOnce(*mut c_void) -> Code,
    ) -> Result<()> {
        let bytes = self.bytes(name, count, dtype, 1)?;
        // SAFETY: as the caller vouches.
        let mut memory = unsafe { Memory::in_place(&*self.adapter, ptr, bytes) }?;
        self.check(name, call(memory.address().cast()))?;
        // SAFETY: as the caller vouches.
        unsafe { memory.deliver(&*self.adapter, ptr) }
    }

    /// # Safety
    /// Each address of `buffers` has its number of blocks of `count` elements, which no other code
    /// accesses meanwhile, and `call` accesses no other memory.
    unsafe fn between(
        &self,
        name: &'static str,
        buffers: SendRecv,
        count: usize,
        dtype: DataType,
        call: impl FnOnce(*const c_void, *mut c_void) -> Code,
    ) -> Result<()> {
        let SendRecv { send: (send, sent), recv: (recv, received) } = buffers;
        let sent = self.bytes(name, count, dtype, sent)?;
        let received = self.bytes(name, count, dtype, received)?;
        let adapter = &*self.adapter;
        // SAFETY: as the caller vouches.
        let mut input = unsafe { Memory::to_read(adapter, send, sent, (recv, received)) }?;
        let mut output = Memory::to_write(adapter, recv, received)?;
        self.check(name, call(input.address().cast(), output.address().cast()))?;
        // SAFETY: as the caller vouches.
        unsafe { output.deliver(adapter, recv) }
    }

    fn bytes(
        &self,
        name: &'static str,
        count: usize,
        dtype: DataType,
        blocks: u32,
    ) -> Result<usize> {
        let block = count.checked_mul(dtype.size_in_bytes());
        let all = block.and_then(|block| block.checked_mul(blocks as usize));
        all.filter(|all| isize::try_from(*all).is_ok()).ok_or_else(|| {
            let what =
                format!("{blocks} blocks of {count} elements of {dtype} exceed the host's memory");
            self.failed(name, what)
        })
    }

    fn member(&self, rank: Rank) -> Result<c_int> {
        match rank < self.world_size {
            true => Ok(rank.cast_signed()),
            false => Err(NexarError::InvalidRank { rank, world_size: self.world_size }),
        }
    }

    fn peer(&self, rank: Rank) -> Result<c_int> {
        match rank == self.rank {
            true => Err(NexarError::UnknownPeer { rank }),
            false => self.member(rank),
        }
    }

    fn tag(&self, name: &'static str, tag: u32) -> Result<c_int> {
        c_int::try_from(tag).map_err(|_| {
            let what = format!("tag {tag} is larger than the largest allowed, {}", c_int::MAX);
            self.failed(name, what)
        })
    }

    fn check(&self, operation: &'static str, code: Code) -> Result<()> {
        answer(code).map_err(|reason| self.failed(operation, reason))
    }

    fn failed(&self, operation: &'static str, reason: String) -> NexarError {
        NexarError::CollectiveFailed { operation, rank: self.rank, reason }
    }
}

impl Drop for SyncClient {
    /// Waits until the sent messages are received, at most `DROP_TIMEOUT`. If some are not, aborts
    /// the communicator, and its other ranks get an error.
    fn drop(&mut self) {
        let limit =
            config::get().map_or(DROP_TIMEOUT, |config| config.op_timeout.min(DROP_TIMEOUT));
        let comm = self.comm.get();
        if self.outbox.drain(limit) {
            self.outbox.close();
            let _ = nexarCommDestroy(comm);
        } else {
            let _ = nexarCommAbort(comm);
            self.outbox.close();
        }
    }
}
