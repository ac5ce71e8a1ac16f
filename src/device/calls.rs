//! The calls of the driver that are made, each once, and the handles that pass through them.
//!
//! Leaves to others when they are made and what follows if one fails. Invariant: what the driver
//! writes goes into memory of the right size. Addresses on which a stream is to work are the
//! caller's word: the driver checks them, or the work fails.
#![expect(unsafe_code, reason = "functions of the driver are called")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUevent, CUevent_flags, CUmemorytype, CUpointer_attribute,
    CUresult, CUstream, CUstream_flags, CUstreamWaitValue_flags, CUstreamWriteValue_flags,
};

use crate::device::driver::{Driver, Failed};
use crate::error::{self, Error};

type DriverResult<T> = Result<T, Failed>;

/// The error of who made the call. Not a `From`: with a second one for `Error`, `?` no longer says
/// which type an `Ok` has.
pub(super) trait Told<T> {
    fn told(self) -> error::Result<T>;
}

impl<T> Told<T> for DriverResult<T> {
    fn told(self) -> error::Result<T> {
        self.map_err(|failed| Error::Cuda(failed.to_string()))
    }
}

/// A CUDA stream of the caller's: NULL and 1 are the legacy one, 2 the per-thread one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaStream(pub *mut c_void);

// SAFETY: a bare handle, which only the driver follows; it takes calls from all threads.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    fn handle(self) -> CUstream {
        self.0.cast()
    }
}

/// A place in the order of a stream, which others can wait for. Ended by `Device::destroy_event`.
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

/// Rows of memory, `pitch` bytes from the begin of one to that of the next.
#[derive(Clone, Copy)]
pub(super) struct DriverRows {
    pub(super) address: u64,
    pub(super) pitch: usize,
}

/// What the driver says of an address.
pub(super) struct Attributes {
    /// 0 for memory that it does not know.
    pub(super) memory_type: u64,
    pub(super) is_managed: bool,
    pub(super) ordinal: i32,
    /// Where the processor finds it; 0 if it cannot.
    pub(super) host: u64,
}

/// Whether a stream is being captured into a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Capture {
    None,
    Active,
    /// It is not, but waits for streams of which one is.
    Implicit,
}

/// A thread may make calls that would disturb the captures of others.
pub(super) const RELAXED: u32 = 2;

/// Pinned memory counts as such in all contexts, and devices reach it.
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
        // SAFETY: takes a number; one retain is given back.
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
        // SAFETY: a handle that the driver gave; one that is too old it refuses.
        let code = unsafe { (self.functions.cuCtxPushCurrent_v2)(context.0) };
        self.check("cuCtxPushCurrent_v2", code)
    }

    pub(super) fn pop(&self) -> DriverResult<()> {
        let mut popped = null_mut();
        // SAFETY: writes the one handle.
        let code = unsafe { (self.functions.cuCtxPopCurrent_v2)(&raw mut popped) };
        self.check("cuCtxPopCurrent_v2", code)
    }

    /// Gives this thread another mode of disturbing captures and returns the one it had.
    pub(super) fn exchange_capture_mode(&self, mut mode: u32) -> DriverResult<u32> {
        // SAFETY: reads and writes the one number.
        let code = unsafe { (self.functions.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", code).map(|()| mode)
    }

    pub(super) fn attributes(&self, address: u64) -> DriverResult<Attributes> {
        let mut asked = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER as u32,
        ];
        // As wide as the widest, and zeroed: a boolean's width is not written down anywhere.
        let mut answers = [0_u64; 4];
        let mut places = answers.each_mut().map(|answer| (&raw mut *answer).cast::<c_void>());
        let (asked, places) = (asked.as_mut_ptr(), places.as_mut_ptr());
        // SAFETY: four questions, and for each a place that is wide enough.
        let code = unsafe { (self.functions.cuPointerGetAttributes)(4, asked, places, address) };
        self.check("cuPointerGetAttributes", code)?;
        let [memory_type, is_managed, ordinal, host] = answers;
        Ok(Attributes { memory_type, is_managed: is_managed != 0, ordinal: ordinal as i32, host })
    }

    /// A number that no other memory of this process has or had; 0 if nothing is there.
    pub(super) fn buffer_id(&self, host: NonNull<u8>) -> DriverResult<u64> {
        let mut asked = CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as u32;
        let mut id = 0_u64;
        let mut place = (&raw mut id).cast::<c_void>();
        let address = host.as_ptr().addr() as u64;
        let call = self.functions.cuPointerGetAttributes;
        // SAFETY: one question, and a place for its answer, which is of 64 bits.
        let code = unsafe { call(1, &raw mut asked, &raw mut place, address) };
        self.check("cuPointerGetAttributes", code).map(|()| id)
    }

    /// Memory of the device whose context is current.
    pub(super) fn allocate_on_device(&self, bytes: usize) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: writes the one address.
        let code = unsafe { (self.functions.cuMemAlloc_v2)(&raw mut address, bytes) };
        self.check("cuMemAlloc_v2", code).map(|()| address)
    }

    /// Memory of `allocate_on_device` that neither the program nor a device uses any more.
    pub(super) fn free_on_device(&self, address: u64) -> DriverResult<()> {
        // SAFETY: the caller answers for that nobody uses it; the driver checks that it is there.
        let code = unsafe { (self.functions.cuMemFree_v2)(address) };
        self.check("cuMemFree_v2", code)
    }

    /// Memory that the program and all devices reach.
    pub(super) fn allocate_host(&self, bytes: usize) -> DriverResult<NonNull<u8>> {
        let mut host = null_mut();
        let flags = PORTABLE | DEVICE_MAP;
        // SAFETY: writes the one address.
        let code = unsafe { (self.functions.cuMemHostAlloc)(&raw mut host, bytes, flags) };
        self.check("cuMemHostAlloc", code)?;
        Ok(NonNull::new(host.cast()).expect("what the driver has allocated is somewhere"))
    }

    /// Where the device finds it.
    pub(super) fn device_address(&self, host: NonNull<u8>) -> DriverResult<u64> {
        let mut address = 0;
        let call = self.functions.cuMemHostGetDevicePointer_v2;
        // SAFETY: writes the one address.
        let code = unsafe { call(&raw mut address, host.as_ptr().cast(), 0) };
        self.check("cuMemHostGetDevicePointer_v2", code).map(|()| address)
    }

    /// Memory of `allocate_host` that neither the program nor a device uses any more.
    pub(super) fn free_host(&self, host: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: who gives it back answers for that nobody uses it; it is freed once.
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
        // SAFETY: the driver checks the addresses; who asks answers for what lies there.
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

    /// A stream that waits for no other.
    pub(super) fn create_stream(&self) -> DriverResult<CudaStream> {
        let mut stream: CUstream = null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: writes the one handle.
        let code = unsafe { (self.functions.cuStreamCreate)(&raw mut stream, flags) };
        self.check("cuStreamCreate", code).map(|()| CudaStream(stream.cast()))
    }

    pub(super) fn destroy_stream(&self, stream: CudaStream) -> DriverResult<()> {
        // SAFETY: a handle that `create_stream` gave, which is not used again.
        let code = unsafe { (self.functions.cuStreamDestroy_v2)(stream.handle()) };
        self.check("cuStreamDestroy_v2", code)
    }

    pub(super) fn synchronize(&self, stream: CudaStream) -> DriverResult<()> {
        // SAFETY: a handle, which the driver checks.
        let code = unsafe { (self.functions.cuStreamSynchronize)(stream.handle()) };
        self.check("cuStreamSynchronize", code)
    }

    /// Whether the stream has done all that was put on it.
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
        // One that was disturbed has not ended.
        Ok(if status == 0 { Capture::None } else { Capture::Active })
    }

    /// After all that was put on the stream before.
    pub(super) fn write_value(&self, to: u64, value: u32, stream: CudaStream) -> DriverResult<()> {
        const CALL: &str = "cuStreamWriteValue32_v2";
        let Some(operations) = &self.memory_operations else { return self.lacks(CALL) };
        let flags = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as c_uint;
        let call = operations.cuStreamWriteValue32_v2;
        // SAFETY: the address is that of a cell, which outlives the work of the stream.
        let code = unsafe { call(stream.handle(), to, value, flags) };
        self.check(CALL, code)
    }

    /// What is put on the stream later waits until the number there, counted cyclically, has come
    /// to the value.
    pub(super) fn wait_value(&self, at: u64, value: u32, stream: CudaStream) -> DriverResult<()> {
        const CALL: &str = "cuStreamWaitValue32_v2";
        let Some(operations) = &self.memory_operations else { return self.lacks(CALL) };
        let flags = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as c_uint;
        let call = operations.cuStreamWaitValue32_v2;
        // SAFETY: as above.
        let code = unsafe { call(stream.handle(), at, value, flags) };
        self.check(CALL, code)
    }

    /// As if an older driver had said so itself.
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
        // SAFETY: a handle that `create_event` gave, which nobody has any more.
        let code = unsafe { (self.functions.cuEventDestroy_v2)(event.0) };
        self.check("cuEventDestroy_v2", code)
    }

    pub(super) fn record(&self, event: &Event, stream: CudaStream) -> DriverResult<()> {
        // SAFETY: handles, which the driver checks.
        let code = unsafe { (self.functions.cuEventRecord)(event.0, stream.handle()) };
        self.check("cuEventRecord", code)
    }

    /// Whether the device has come to it.
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

/// Both sides are given by address alone: the driver knows what lies there.
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
    fn a_copy_of_rows_is_laid_out_as_the_driver_reads_it() {
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
    fn numbers_that_pass_through_calls_are_those_of_the_driver() {
        assert_eq!(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32, 2);
        assert_eq!(CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32, 8);
        assert_eq!(CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32, 9);
        assert_eq!(CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32, 0);
        assert_eq!(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as u32, 906);
        assert_eq!(CUresult::CUDA_ERROR_NOT_READY as u32, 600);
        assert_eq!(CUresult::CUDA_ERROR_NOT_SUPPORTED as u32, 801);
    }
}
