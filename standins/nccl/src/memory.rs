//! Allocation of buffers, their registration, and windows, which are registrations too.
//!
//! As in NCCL, memory is allocated on the current device; without a current CUDA device, on the
//! host.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nexar::capi::memory::{
    nexarCommDeregister, nexarCommRegister, nexarMemAlloc, nexarMemFree, registered,
};
use nexar::device::Device;

use crate::boundary::{answer, boundary, set, wrong_argument};
use crate::comm::check;
use crate::types::{ncclComm_t, ncclResult_t, ncclWindow_t};

/// Device memory that ncclMemAlloc has allocated, by address. The entry retains the primary context
/// of its device.
static ON_DEVICE: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());

fn on_device() -> MutexGuard<'static, BTreeMap<usize, Device>> {
    ON_DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t {
    boundary("ncclMemAlloc", || {
        let Some(device) = Device::current()? else {
            // SAFETY: the caller passes NULL or a pointer to a pointer.
            return answer(unsafe { nexarMemAlloc(ptr, size) });
        };
        // SAFETY: the caller passes NULL or a pointer to a pointer.
        unsafe { set("ptr", ptr, null_mut()) }?;
        if size == 0 {
            return Ok(());
        }
        let address = device.allocate_memory(size)? as usize;
        on_device().insert(address, device);
        // SAFETY: as above.
        unsafe { set("ptr", ptr, with_exposed_provenance_mut(address)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t {
    boundary("ncclMemFree", || {
        let address = ptr.addr();
        // Freed without the lock of the table, because the driver may wait for work of the device.
        let Some(device) = on_device().remove(&address) else {
            // SAFETY: the caller passes an address of ncclMemAlloc that is no longer used.
            return answer(unsafe { nexarMemFree(ptr) });
        };
        device.free_memory(address as u64).map_err(|error| {
            on_device().insert(address, device);
            error.into()
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a pointer to a handle.
    boundary("ncclCommRegister", || answer(unsafe { nexarCommRegister(comm, buff, size, handle) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t {
    boundary("ncclCommDeregister", || answer(nexarCommDeregister(comm, handle)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommWindowRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    win: *mut ncclWindow_t,
    winFlags: c_int,
) -> ncclResult_t {
    const FLAGS: c_int = 0xf;
    boundary("ncclCommWindowRegister", || {
        check(comm)?;
        if winFlags & !FLAGS != 0 {
            return Err(wrong_argument(format!("winFlags {winFlags:#x} has unknown flags")));
        }
        if win.is_null() {
            return Err(wrong_argument("win is NULL"));
        }
        // SAFETY: the caller passes a pointer to a window.
        answer(unsafe { nexarCommRegister(comm, buff, size, win) })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t {
    boundary("ncclCommWindowDeregister", || {
        check(comm)?;
        if win.is_null() {
            return Ok(());
        }
        answer(nexarCommDeregister(comm, win))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclWinGetUserPtr(
    comm: ncclComm_t,
    win: ncclWindow_t,
    outUserPtr: *mut *mut c_void,
) -> ncclResult_t {
    boundary("ncclWinGetUserPtr", || {
        check(comm)?;
        let memory = registered(comm, win)?;
        // SAFETY: the caller passes NULL or a pointer to a pointer.
        unsafe { set("outUserPtr", outUserPtr, memory) }
    })
}
