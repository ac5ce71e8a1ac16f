//! One method for each function of the driver that the library uses, and the types of their
//! arguments.
//!
//! Leaves to others when a function is called and what follows if it fails. Invariant: every
//! out-parameter has the size that the driver writes. The addresses on which a stream works are the
//! caller's responsibility: the driver checks them, or the work fails.
#![expect(unsafe_code, reason = "functions of the driver are called")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUevent, CUevent_flags, CUmemorytype, CUpointer_attribute,
    CUresult, CUstream, CUstream_flags, CUstreamWaitValue_flags, CUstreamWriteValue_flags,
};

use crate::device::driver::{Driver, DriverError};
use crate::error::{self, Error};

type DriverResult<T> = Result<T, DriverError>;

/// Converts a failed call of the driver into `Error::Cuda`. Not a `From`: with a second one for
/// `Error`, type inference of `?` becomes ambiguous.
pub(super) trait OrCudaError<T> {
    fn or_cuda_error(self) -> error::Result<T>;
}

impl<T> OrCudaError<T> for DriverResult<T> {
    fn or_cuda_error(self) -> error::Result<T> {
        self.map_err(|failed| Error::Cuda(failed.to_string()))
    }
}

/// A CUDA stream of the caller. NULL and 1: the legacy default stream; 2: the per-thread default
/// stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaStream(pub *mut c_void);

// SAFETY: a handle that only the driver dereferences; the driver accepts calls from all threads.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    fn handle(self) -> CUstream {
        self.0.cast()
    }
}

/// A CUDA event: a point in the order of a stream, for which other streams can wait.
/// `Device::destroy_event` destroys it.
pub struct Event(CUevent);

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// A context of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DriverContext(CUcontext);

// SAFETY: as for streams.
unsafe impl Send for DriverContext {}
// SAFETY: as above.
unsafe impl Sync for DriverContext {}

/// Rows of memory. `pitch`: bytes from the start of one row to the start of the next.
#[derive(Clone, Copy)]
pub(super) struct DriverRows {
    pub(super) address: u64,
    pub(super) pitch: usize,
}

/// The driver's attributes of an address.
pub(super) struct Attributes {
    /// 0 for memory that the driver does not know.
    pub(super) memory_type: u64,
    pub(super) is_managed: bool,
    pub(super) ordinal: i32,
    /// The host's address of the memory; 0 if the host cannot access it.
    pub(super) host: u64,
}

/// Whether a stream is being captured into a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Capture {
    None,
    Active,
    /// The legacy stream, which is not captured itself but would wait for a stream that is.
    Implicit,
}

/// The capture mode in which a thread may call any function during the captures of other threads.
pub(super) const RELAXED: u32 = 2;

/// Flags of pinned memory: pinned in all contexts; devices can access it.
const PORTABLE: c_uint = 1;
const DEVICE_MAP: c_uint = 2;

impl Driver {
    pub(super) fn device(&self, ordinal: i32) -> DriverResult<CUdevice> {
        let mut device = 0;
        // SAFETY: writes the one number.
        let code = unsafe { (self.functions.cuDeviceGet)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", code).map(|()| device)
    }

    pub(super) fn primary_is_active(&self, device: CUdevice) -> DriverResult<bool> {
        let (mut flags, mut active): (c_uint, c_int) = (0, 0);
        let call = self.functions.cuDevicePrimaryCtxGetState;
        // SAFETY: writes the two numbers.
        let code = unsafe { call(device, &raw mut flags, &raw mut active) };
        self.check("cuDevicePrimaryCtxGetState", code).map(|()| active != 0)
    }

    pub(super) fn retain_primary(&self, device: CUdevice) -> DriverResult<DriverContext> {
        let mut context = null_mut();
        // SAFETY: writes the one handle.
        let code = unsafe { (self.functions.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code).map(|()| DriverContext(context))
    }

    pub(super) fn release_primary(&self, device: CUdevice) -> DriverResult<()> {
        // SAFETY: takes a number; undoes one retain.
        let code = unsafe { (self.functions.cuDevicePrimaryCtxRelease_v2)(device) };
        self.check("cuDevicePrimaryCtxRelease_v2", code)
    }

    pub(super) fn current_context(&self) -> DriverResult<Option<DriverContext>> {
        let mut context: CUcontext = null_mut();
        // SAFETY: writes the one handle.
        let code = unsafe { (self.functions.cuCtxGetCurrent)(&raw mut context) };
        self.check("cuCtxGetCurrent", code)?;
        Ok((!context.is_null()).then_some(DriverContext(context)))
    }

    pub(super) fn current_device(&self) -> DriverResult<CUdevice> {
        let mut device = 0;
        // SAFETY: writes the one number.
        let code = unsafe { (self.functions.cuCtxGetDevice)(&raw mut device) };
        self.check("cuCtxGetDevice", code).map(|()| device)
    }

    pub(super) fn push(&self, context: DriverContext) -> DriverResult<()> {
        // SAFETY: a handle that the driver returned; it refuses a stale one.
        let code = unsafe { (self.functions.cuCtxPushCurrent_v2)(context.0) };
        self.check("cuCtxPushCurrent_v2", code)
    }

    pub(super) fn pop(&self) -> DriverResult<()> {
        let mut popped = null_mut();
        // SAFETY: writes the one handle.
        let code = unsafe { (self.functions.cuCtxPopCurrent_v2)(&raw mut popped) };
        self.check("cuCtxPopCurrent_v2", code)
    }

    /// Sets this thread's capture mode and returns the previous one.
    pub(super) fn exchange_capture_mode(&self, mut mode: u32) -> DriverResult<u32> {
        // SAFETY: reads and writes the one number.
        let code = unsafe { (self.functions.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", code).map(|()| mode)
    }

    pub(super) fn attributes(&self, address: u64) -> DriverResult<Attributes> {
        let mut attributes = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER as u32,
        ];
        // As wide as the widest attribute, and zeroed: the width of a boolean is not documented.
        let mut values = [0_u64; 4];
        let mut pointers = values.each_mut().map(|value| (&raw mut *value).cast::<c_void>());
        let (list, pointers) = (attributes.as_mut_ptr(), pointers.as_mut_ptr());
        // SAFETY: four attributes, and for each a pointer to a value that is wide enough.
        let code = unsafe { (self.functions.cuPointerGetAttributes)(4, list, pointers, address) };
        self.check("cuPointerGetAttributes", code)?;
        let [memory_type, is_managed, ordinal, host] = values;
        Ok(Attributes { memory_type, is_managed: is_managed != 0, ordinal: ordinal as i32, host })
    }

    /// The id of an allocation, which no other memory of this process has or had; 0 if the driver
    /// does not know the address.
    pub(super) fn buffer_id(&self, host: NonNull<u8>) -> DriverResult<u64> {
        let mut attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as u32;
        let mut id = 0_u64;
        let mut pointer = (&raw mut id).cast::<c_void>();
        let address = host.as_ptr().addr() as u64;
        let call = self.functions.cuPointerGetAttributes;
        // SAFETY: one attribute, and a pointer to its value of 64 bits.
        let code = unsafe { call(1, &raw mut attribute, &raw mut pointer, address) };
        self.check("cuPointerGetAttributes", code).map(|()| id)
    }

    /// Allocates memory of the device whose context is current.
    pub(super) fn allocate_on_device(&self, bytes: usize) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: writes the one address.
        let code = unsafe { (self.functions.cuMemAlloc_v2)(&raw mut address, bytes) };
        self.check("cuMemAlloc_v2", code).map(|()| address)
    }

    /// Frees memory of `allocate_on_device` that neither the program nor a device uses any more.
    pub(super) fn free_on_device(&self, address: u64) -> DriverResult<()> {
        // SAFETY: the caller ensures that it is unused; the driver checks that it was allocated.
        let code = unsafe { (self.functions.cuMemFree_v2)(address) };
        self.check("cuMemFree_v2", code)
    }

    /// Allocates memory that the program and all devices can access.
    pub(super) fn allocate_host(&self, bytes: usize) -> DriverResult<NonNull<u8>> {
        let mut host = null_mut();
        let flags = PORTABLE | DEVICE_MAP;
        // SAFETY: writes the one address.
        let code = unsafe { (self.functions.cuMemHostAlloc)(&raw mut host, bytes, flags) };
        self.check("cuMemHostAlloc", code)?;
        Ok(NonNull::new(host.cast()).expect("an allocation that succeeded has an address"))
    }

    /// The device's address of pinned memory.
    pub(super) fn device_address(&self, host: NonNull<u8>) -> DriverResult<u64> {
        let mut address = 0;
        let call = self.functions.cuMemHostGetDevicePointer_v2;
        // SAFETY: writes the one address.
        let code = unsafe { call(&raw mut address, host.as_ptr().cast(), 0) };
        self.check("cuMemHostGetDevicePointer_v2", code).map(|()| address)
    }

    /// Frees memory of `allocate_host` that neither the program nor a device uses any more.
    pub(super) fn free_host(&self, host: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: the caller ensures that it is unused, and frees it once.
        let code = unsafe { (self.functions.cuMemFreeHost)(host.as_ptr().cast()) };
        self.check("cuMemFreeHost", code)
    }

    pub(super) fn copy(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: CudaStream,
    ) -> DriverResult<()> {
        // SAFETY: the driver checks the addresses; the caller is responsible for the memory there.
        let code = unsafe { (self.functions.cuMemcpyAsync)(to, from, bytes, stream.handle()) };
        self.check("cuMemcpyAsync", code)
    }

    pub(super) fn copy_rows(
        &self,
        to: DriverRows,
        from: DriverRows,
        width: usize,
        rows: usize,
        stream: CudaStream,
    ) -> DriverResult<()> {
        let copy = description(to, from, width, rows);
        let call = self.functions.cuMemcpy2DAsync_v2;
        // SAFETY: the description is read before the call returns; else as above.
        let code = unsafe { call(&raw const copy, stream.handle()) };
        self.check("cuMemcpy2DAsync_v2", code)
    }

    /// Creates a stream that does not wait for the default stream.
    pub(super) fn create_stream(&self) -> DriverResult<CudaStream> {
        let mut stream: CUstream = null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: writes the one handle.
        let code = unsafe { (self.functions.cuStreamCreate)(&raw mut stream, flags) };
        self.check("cuStreamCreate", code).map(|()| CudaStream(stream.cast()))
    }

    pub(super) fn destroy_stream(&self, stream: CudaStream) -> DriverResult<()> {
        // SAFETY: a handle of `create_stream`, which is not used again.
        let code = unsafe { (self.functions.cuStreamDestroy_v2)(stream.handle()) };
        self.check("cuStreamDestroy_v2", code)
    }

    pub(super) fn synchronize(&self, stream: CudaStream) -> DriverResult<()> {
        // SAFETY: a handle, which the driver checks.
        let code = unsafe { (self.functions.cuStreamSynchronize)(stream.handle()) };
        self.check("cuStreamSynchronize", code)
    }

    /// Whether the stream has executed all enqueued work.
    pub(super) fn is_idle(&self, stream: CudaStream) -> DriverResult<bool> {
        // SAFETY: as above.
        let code = unsafe { (self.functions.cuStreamQuery)(stream.handle()) };
        self.is_ready("cuStreamQuery", code)
    }

    fn is_ready(&self, call: &'static str, code: u32) -> DriverResult<bool> {
        const NOT_READY: u32 = CUresult::CUDA_ERROR_NOT_READY as u32;
        if code == NOT_READY { Ok(false) } else { self.check(call, code).map(|()| true) }
    }

    pub(super) fn capture(&self, stream: CudaStream) -> DriverResult<Capture> {
        const IMPLICIT: u32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as u32;
        let mut status = 0;
        let call = self.functions.cuStreamIsCapturing;
        // SAFETY: writes the one number.
        let code = unsafe { call(stream.handle(), &raw mut status) };
        if code == IMPLICIT {
            return Ok(Capture::Implicit);
        }
        self.check("cuStreamIsCapturing", code)?;
        // An invalidated capture has not ended.
        Ok(if status == 0 { Capture::None } else { Capture::Active })
    }

    /// Enqueues a write of the value.
    pub(super) fn write_value(&self, to: u64, value: u32, stream: CudaStream) -> DriverResult<()> {
        const CALL: &str = "cuStreamWriteValue32_v2";
        let Some(operations) = &self.memory_operations else { return self.lacks(CALL) };
        let flags = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as c_uint;
        let call = operations.cuStreamWriteValue32_v2;
        // SAFETY: the address is that of a semaphore, which outlives the work of the stream.
        let code = unsafe { call(stream.handle(), to, value, flags) };
        self.check(CALL, code)
    }

    /// Enqueues a wait until the semaphore there has reached the value, compared modulo 2^32.
    pub(super) fn wait_value(&self, at: u64, value: u32, stream: CudaStream) -> DriverResult<()> {
        const CALL: &str = "cuStreamWaitValue32_v2";
        let Some(operations) = &self.memory_operations else { return self.lacks(CALL) };
        let flags = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as c_uint;
        let call = operations.cuStreamWaitValue32_v2;
        // SAFETY: as above.
        let code = unsafe { call(stream.handle(), at, value, flags) };
        self.check(CALL, code)
    }

    /// The error of a driver without this function, as if the driver had returned it.
    fn lacks(&self, call: &'static str) -> DriverResult<()> {
        self.check(call, CUresult::CUDA_ERROR_NOT_SUPPORTED as u32)
    }

    pub(super) fn create_event(&self) -> DriverResult<Event> {
        let mut event = null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
        // SAFETY: writes the one handle.
        let code = unsafe { (self.functions.cuEventCreate)(&raw mut event, flags) };
        self.check("cuEventCreate", code).map(|()| Event(event))
    }

    pub(super) fn destroy_event(&self, event: Event) -> DriverResult<()> {
        // SAFETY: a handle of `create_event`, which is not used again.
        let code = unsafe { (self.functions.cuEventDestroy_v2)(event.0) };
        self.check("cuEventDestroy_v2", code)
    }

    pub(super) fn record(&self, event: &Event, stream: CudaStream) -> DriverResult<()> {
        // SAFETY: handles, which the driver checks.
        let code = unsafe { (self.functions.cuEventRecord)(event.0, stream.handle()) };
        self.check("cuEventRecord", code)
    }

    /// Whether the device has reached the event.
    pub(super) fn has_happened(&self, event: &Event) -> DriverResult<bool> {
        // SAFETY: a handle, which the driver checks.
        let code = unsafe { (self.functions.cuEventQuery)(event.0) };
        self.is_ready("cuEventQuery", code)
    }

    pub(super) fn wait_event(&self, stream: CudaStream, event: &Event) -> DriverResult<()> {
        // SAFETY: as above.
        let code = unsafe { (self.functions.cuStreamWaitEvent)(stream.handle(), event.0, 0) };
        self.check("cuStreamWaitEvent", code)
    }
}

/// Both sides are given by address alone: the driver knows the kind of memory there.
fn description(to: DriverRows, from: DriverRows, width: usize, rows: usize) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        srcHost: null_mut(),
        srcDevice: from.address,
        srcArray: null_mut(),
        srcPitch: from.pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstHost: null_mut(),
        dstDevice: to.address,
        dstArray: null_mut(),
        dstPitch: to.pitch,
        WidthInBytes: width,
        Height: rows,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_copy_of_rows_has_the_layout_that_the_driver_reads() {
        assert_eq!(size_of::<CUDA_MEMCPY2D>(), 128);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, srcMemoryType), 16);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, srcDevice), 32);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, srcPitch), 48);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, dstXInBytes), 56);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, dstMemoryType), 72);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, dstDevice), 88);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, dstPitch), 104);
        assert_eq!(offset_of!(CUDA_MEMCPY2D, Height), 120);
        assert_eq!(CUmemorytype::CU_MEMORYTYPE_UNIFIED as u32, 4);
    }

    #[test]
    fn constants_of_the_calls_have_the_values_of_the_driver() {
        assert_eq!(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32, 2);
        assert_eq!(CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32, 8);
        assert_eq!(CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32, 9);
        assert_eq!(CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32, 0);
        assert_eq!(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as u32, 906);
        assert_eq!(CUresult::CUDA_ERROR_NOT_READY as u32, 600);
        assert_eq!(CUresult::CUDA_ERROR_NOT_SUPPORTED as u32, 801);
    }
}
