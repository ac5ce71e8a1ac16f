//! Adapters: access to memory that a program passes by address.
//!
//! Memory of an adapter with `supports_host_offload` is host memory, which libnexar reads and
//! writes in place. All other memory is copied to the host before a call and back after it.

use nexar_capi::op::Fold;
use nexar_capi::reduce;

use crate::error::{NexarError, Result};
use crate::types::{DataType, IoVec, ReduceOp};

/// Moves data between a device and the host.
pub trait DeviceAdapter: Send + Sync {
    /// Whether addresses are of host memory.
    fn supports_host_offload(&self) -> bool {
        false
    }

    /// Copies device memory to the host.
    ///
    /// # Safety
    /// `ptr` is the address of `size_bytes` bytes of the device.
    unsafe fn stage_for_send(&self, ptr: u64, size_bytes: usize) -> Result<Vec<u8>>;

    /// Copies host memory to the device.
    ///
    /// # Safety
    /// `dst_ptr` is the address of `data.len()` bytes of the device.
    unsafe fn receive_to_device(&self, data: &[u8], dst_ptr: u64) -> Result<()>;

    /// Replaces each element at `dst_ptr` by `op` of it and that of `src`. No call of this crate
    /// needs it.
    ///
    /// # Safety
    /// `dst_ptr` is the address of `count` elements of the device.
    unsafe fn reduce_inplace(
        &self,
        dst_ptr: u64,
        src: &[u8],
        count: usize,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()>;

    /// Copies several regions of the device to contiguous host memory.
    ///
    /// # Safety
    /// As for `stage_for_send`, for each region.
    unsafe fn stage_for_send_iov(&self, regions: &[IoVec]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for region in regions {
            // SAFETY: the caller vouches for each region.
            all.append(&mut unsafe { self.stage_for_send(region.ptr, region.len) }?);
        }
        Ok(all)
    }

    /// As `stage_for_send`, in the order of a stream of the device, if the adapter has streams.
    ///
    /// # Safety
    /// As for `stage_for_send`.
    unsafe fn stage_for_send_on_stream(
        &self,
        ptr: u64,
        size_bytes: usize,
        _stream: u64,
    ) -> Result<Vec<u8>> {
        // SAFETY: as the caller vouches.
        unsafe { self.stage_for_send(ptr, size_bytes) }
    }

    /// As `receive_to_device`, in the order of a stream of the device, if the adapter has streams.
    ///
    /// # Safety
    /// As for `receive_to_device`.
    unsafe fn receive_to_device_on_stream(
        &self,
        data: &[u8],
        dst_ptr: u64,
        _stream: u64,
    ) -> Result<()> {
        // SAFETY: as the caller vouches.
        unsafe { self.receive_to_device(data, dst_ptr) }
    }

    /// Copies host memory to several regions of the device. Fails if their lengths do not add up to
    /// that of `data`.
    ///
    /// # Safety
    /// As for `receive_to_device`, for each region.
    unsafe fn receive_to_device_iov(&self, data: &[u8], regions: &[IoVec]) -> Result<()> {
        let expected = regions.iter().map(|region| region.len).sum();
        if data.len() != expected {
            return Err(NexarError::BufferSizeMismatch { expected, actual: data.len() });
        }
        let mut rest = data;
        for region in regions {
            let (part, remaining) = rest.split_at(region.len);
            // SAFETY: the caller vouches for each region.
            unsafe { self.receive_to_device(part, region.ptr) }?;
            rest = remaining;
        }
        Ok(())
    }
}

/// Host memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuAdapter;

impl CpuAdapter {
    pub fn new() -> Self {
        Self
    }
}

impl DeviceAdapter for CpuAdapter {
    fn supports_host_offload(&self) -> bool {
        true
    }

    unsafe fn stage_for_send(&self, ptr: u64, size_bytes: usize) -> Result<Vec<u8>> {
        // SAFETY: as the caller vouches.
        let bytes = unsafe { slice(ptr, size_bytes) };
        copied(bytes)
    }

    unsafe fn receive_to_device(&self, data: &[u8], dst_ptr: u64) -> Result<()> {
        if !data.is_empty() {
            // SAFETY: the caller vouches for the destination, which may overlap `data`.
            unsafe { std::ptr::copy(data.as_ptr(), dst_ptr as *mut u8, data.len()) };
        }
        Ok(())
    }

    unsafe fn reduce_inplace(
        &self,
        dst_ptr: u64,
        src: &[u8],
        count: usize,
        dtype: DataType,
        op: ReduceOp,
    ) -> Result<()> {
        let expected = count.saturating_mul(dtype.size_in_bytes());
        if src.len() != expected {
            return Err(NexarError::BufferSizeMismatch { expected, actual: src.len() });
        }
        if expected == 0 {
            return Ok(());
        }
        let fold = Fold::new(dtype.native(), op.native());
        let fold = fold.map_err(|error| NexarError::device(error.to_string()))?;
        // SAFETY: the caller vouches for `count` elements.
        let into = unsafe { std::slice::from_raw_parts_mut(dst_ptr as *mut u8, expected) };
        reduce::fold(fold, into, src);
        Ok(())
    }
}

/// # Safety
/// `ptr` is the address of `bytes` bytes that do not change for `'a`.
unsafe fn slice<'a>(ptr: u64, bytes: usize) -> &'a [u8] {
    match bytes {
        0 => &[],
        // SAFETY: as the caller vouches.
        _ => unsafe { std::slice::from_raw_parts(ptr as *const u8, bytes) },
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = with_capacity(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Fails if no memory is available, instead of aborting the process.
fn with_capacity(bytes: usize) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    let reserved = memory.try_reserve_exact(bytes);
    reserved.map_err(|_| NexarError::device(format!("out of host memory: {bytes} bytes")))?;
    Ok(memory)
}

/// The host memory that a call of libnexar uses for memory of the program.
pub(crate) enum Memory {
    /// The program's own, at this address.
    InPlace(u64),
    /// A copy on the host.
    Copy(Vec<u8>),
}

impl Memory {
    /// For a call that reads `bytes` bytes at `ptr` and writes `written`. A copy if the adapter
    /// needs one, or if the two overlap.
    ///
    /// # Safety
    /// `ptr` is the address of `bytes` bytes of the adapter's device.
    pub(crate) unsafe fn to_read(
        adapter: &dyn DeviceAdapter,
        ptr: u64,
        bytes: usize,
        written: (u64, usize),
    ) -> Result<Self> {
        let end = |(start, bytes): (u64, usize)| start.saturating_add(bytes as u64);
        let overlaps = ptr < end(written) && written.0 < end((ptr, bytes));
        // NULL is passed on: libnexar refuses it.
        if bytes == 0 || ptr == 0 || (adapter.supports_host_offload() && !overlaps) {
            return Ok(Self::InPlace(ptr));
        }
        // SAFETY: as the caller vouches.
        unsafe { staged(adapter, ptr, bytes) }.map(Self::Copy)
    }

    /// For a call that only writes.
    pub(crate) fn to_write(adapter: &dyn DeviceAdapter, ptr: u64, bytes: usize) -> Result<Self> {
        if bytes == 0 || ptr == 0 || adapter.supports_host_offload() {
            return Ok(Self::InPlace(ptr));
        }
        let mut memory = with_capacity(bytes)?;
        memory.resize(bytes, 0);
        Ok(Self::Copy(memory))
    }

    /// For a call that reads and writes the same memory.
    ///
    /// # Safety
    /// As for `to_read`.
    pub(crate) unsafe fn in_place(
        adapter: &dyn DeviceAdapter,
        ptr: u64,
        bytes: usize,
    ) -> Result<Self> {
        // SAFETY: as the caller vouches.
        unsafe { Self::to_read(adapter, ptr, bytes, (0, 0)) }
    }

    pub(crate) fn address(&mut self) -> *mut u8 {
        match self {
            Self::InPlace(ptr) => *ptr as *mut u8,
            Self::Copy(copy) => copy.as_mut_ptr(),
        }
    }

    /// Copies the result of a call to the program's memory, if the call used a copy.
    ///
    /// # Safety
    /// `ptr` is the address of device memory that is as long as the copy.
    pub(crate) unsafe fn deliver(self, adapter: &dyn DeviceAdapter, ptr: u64) -> Result<()> {
        match self {
            Self::InPlace(_) => Ok(()),
            // SAFETY: as the caller vouches.
            Self::Copy(copy) => unsafe { adapter.receive_to_device(&copy, ptr) },
        }
    }
}

/// A host copy of `bytes` bytes at `ptr`. Fails if the adapter returns another number of bytes.
///
/// # Safety
/// `ptr` is the address of `bytes` bytes of the adapter's device.
pub(crate) unsafe fn staged(
    adapter: &dyn DeviceAdapter,
    ptr: u64,
    bytes: usize,
) -> Result<Vec<u8>> {
    // SAFETY: as the caller vouches.
    let copy = unsafe { adapter.stage_for_send(ptr, bytes) }?;
    match copy.len() {
        length if length == bytes => Ok(copy),
        actual => Err(NexarError::BufferSizeMismatch { expected: bytes, actual }),
    }
}
