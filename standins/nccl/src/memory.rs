//! Memory for buffers, registration of it, and windows, which are registrations under another name.

use std::ffi::{c_int, c_void};

use nexar::capi::memory::{
    nexarCommDeregister, nexarCommRegister, nexarMemAlloc, nexarMemFree, registered,
};

use crate::border::{answer, border, set, wrong_argument};
use crate::comm::check;
use crate::types::{ncclComm_t, ncclResult_t, ncclWindow_t};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a place for a pointer.
    border("ncclMemAlloc", || answer(unsafe { nexarMemAlloc(ptr, size) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t {
    // SAFETY: the caller passes what ncclMemAlloc gave and nobody uses any more.
    border("ncclMemFree", || answer(unsafe { nexarMemFree(ptr) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a place for a handle.
    border("ncclCommRegister", || answer(unsafe { nexarCommRegister(comm, buff, size, handle) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t {
    border("ncclCommDeregister", || answer(nexarCommDeregister(comm, handle)))
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
    border("ncclCommWindowRegister", || {
        check(comm)?;
        if winFlags & !FLAGS != 0 {
            return Err(wrong_argument(format!("winFlags {winFlags:#x} has unknown flags")));
        }
        if win.is_null() {
            return Err(wrong_argument("win is NULL"));
        }
        // SAFETY: the caller passes a place for a window.
        answer(unsafe { nexarCommRegister(comm, buff, size, win) })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t {
    border("ncclCommWindowDeregister", || {
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
    border("ncclWinGetUserPtr", || {
        check(comm)?;
        let memory = registered(comm, win)?;
        // SAFETY: the caller passes NULL or a place for a pointer.
        unsafe { set("outUserPtr", outUserPtr, memory) }
    })
}
