//! Memory for buffers, registration of it, and windows, which are registrations that remember where
//! their memory is.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nexar::capi::memory::{nexarCommDeregister, nexarCommRegister, nexarMemAlloc, nexarMemFree};

use crate::border::{answer, border, set, through, wrong_argument};
use crate::comm::check;
use crate::types::{ncclComm_t, ncclResult_t, ncclWindow_t};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a place for a pointer.
    through("ncclMemAlloc", || unsafe { nexarMemAlloc(ptr, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t {
    // SAFETY: the caller passes what ncclMemAlloc gave and nobody uses any more.
    through("ncclMemFree", || unsafe { nexarMemFree(ptr) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a place for a handle.
    through("ncclCommRegister", || unsafe { nexarCommRegister(comm, buff, size, handle) })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t {
    through("ncclCommDeregister", || nexarCommDeregister(comm, handle))
}

/// The memory of each window, by the handle of its registration, and its communicator.
static WINDOWS: Mutex<BTreeMap<usize, Window>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Window {
    comm: usize,
    memory: usize,
}

fn windows() -> MutexGuard<'static, BTreeMap<usize, Window>> {
    WINDOWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The windows of a communicator that ends.
pub(crate) fn forget(comm: ncclComm_t) {
    windows().retain(|_, window| window.comm != comm.addr());
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
        let mut handle = null_mut();
        // SAFETY: the place is ours.
        answer(unsafe { nexarCommRegister(comm, buff, size, &mut handle) })?;
        // SAFETY: the caller passes NULL or a place for a window.
        unsafe { set("win", win, handle) }?;
        windows().insert(handle.addr(), Window { comm: comm.addr(), memory: buff.addr() });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t {
    border("ncclCommWindowDeregister", || {
        check(comm)?;
        if win.is_null() {
            return Ok(());
        }
        answer(nexarCommDeregister(comm, win))?;
        windows().remove(&win.addr());
        Ok(())
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
        let window = windows().get(&win.addr()).copied();
        let Some(window) = window.filter(|window| window.comm == comm.addr()) else {
            return Err(wrong_argument("win is not a window of comm"));
        };
        let memory = without_provenance_mut(window.memory);
        // SAFETY: the caller passes NULL or a place for a pointer.
        unsafe { set("outUserPtr", outUserPtr, memory) }
    })
}
