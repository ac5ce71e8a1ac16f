//! Allocation of buffers, and their registration.
//!
//! Allocated memory is in the process's arena, which other processes of the host can read. The
//! arena recognises it by its address, so registration has no effect; it exists for programs
//! written for NCCL.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arena;
use crate::error::{Code, Error, Result};

use super::arguments::Out;
use super::boundary::{boundary, on_communicator};
use super::handle::{HandleKind, HandleTable};
use super::types::nexarComm_t;

/// The memory that nexarMemAlloc has allocated outside of the arena: lengths by address.
static ALLOCATED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn allocated() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner)
}

static REGISTERED: HandleTable<Registration> = HandleTable::new(HandleKind::Registration);

#[derive(Clone, Copy)]
struct Registration {
    comm: usize,
    buff: usize,
}

/// Allocates size bytes of zeroed, page-aligned host memory and writes its address to ptr: host
/// memory also if a CUDA device is current. Any memory can be a buffer; the other processes of the
/// host map this kind, which saves a copy of a large sendbuff (not in place, and not with the ops
/// Avg of floats and PreMulSum). It belongs to the process, not to a communicator. A forked child
/// does not inherit it: an access there raises SIGSEGV. For a size of 0, ptr is set to NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarMemAlloc(ptr: *mut *mut c_void, size: usize) -> Code {
    boundary("nexarMemAlloc", || {
        // SAFETY: the caller passes NULL or a pointer to a pointer.
        let out = unsafe { Out::new("ptr", ptr) }?;
        out.set(if size == 0 { std::ptr::null_mut() } else { map(size)? });
        Ok(())
    })
}

/// Frees memory of nexarMemAlloc. No operation may be using it. NULL is nexarSuccess; any other
/// pointer is nexarInvalidArgument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarMemFree(ptr: *mut c_void) -> Code {
    boundary("nexarMemFree", || {
        if ptr.is_null() {
            return Ok(());
        }
        if arena::own().is_ok_and(|arena| arena.free(ptr.addr())) {
            return Ok(());
        }
        let Some(size) = allocated().remove(&ptr.addr()) else {
            let what = "ptr was not allocated by nexarMemAlloc, or was freed before";
            return Err(Error::Argument(what.to_owned()));
        };
        // SAFETY: exactly this was mapped. It was just removed, so no other call unmaps it.
        unsafe { libc::munmap(ptr, size) };
        Ok(())
    })
}

fn map(size: usize) -> Result<*mut c_void> {
    if let Some(memory) = arena::own().ok().and_then(|arena| arena.allocate(size)) {
        return Ok(memory.as_ptr().cast());
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
    let flags = flags | libc::MAP_ANONYMOUS;
    // SAFETY: new anonymous memory at an address of the kernel's choice.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(Error::out_of_memory(size));
    }
    // SAFETY: exactly this was just mapped. If it fails, a child gets a copy, which is harmless.
    unsafe { libc::madvise(memory, size, libc::MADV_DONTFORK) };
    allocated().insert(memory.addr(), size);
    Ok(memory)
}

/// Accepts a buffer of size bytes for use with comm, and writes a handle to handle, as NCCL's
/// programs expect. In this version registration has no effect: any memory can be a buffer, and it
/// may be freed at any time. nexarCommDestroy and nexarCommAbort free the handles that are left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommRegister(
    comm: nexarComm_t,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> Code {
    on_communicator("nexarCommRegister", comm, |_| {
        // SAFETY: the caller passes NULL or a pointer to a handle.
        let out = unsafe { Out::new("handle", handle) }?;
        if buff.is_null() || size == 0 {
            return Err(Error::Argument("buff is NULL or size is 0".to_owned()));
        }
        out.set(REGISTERED.insert(Registration { comm: comm.addr(), buff: buff.addr() }));
        Ok(())
    })
}

/// Frees a handle of nexarCommRegister. A handle of another communicator, or one that was freed, is
/// nexarInvalidArgument.
#[unsafe(no_mangle)]
pub extern "C" fn nexarCommDeregister(comm: nexarComm_t, handle: *mut c_void) -> Code {
    on_communicator("nexarCommDeregister", comm, |_| {
        registered(comm, handle)?;
        REGISTERED.remove(handle).map(drop)
    })
}

/// The address of the memory of a registration. Fails if it is of another communicator.
pub fn registered(comm: nexarComm_t, handle: *mut c_void) -> Result<*mut c_void> {
    let registration = REGISTERED.find(handle)?;
    if registration.comm != comm.addr() {
        return Err(Error::Argument("handle was registered with another communicator".to_owned()));
    }
    Ok(without_provenance_mut(registration.buff))
}

/// Frees the registrations of a destroyed communicator.
pub(super) fn forget(comm: nexarComm_t) {
    REGISTERED.retain(|registration| registration.comm != comm.addr());
}
