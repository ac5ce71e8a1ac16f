//! Communicators: create, query, split, destroy.

use std::ffi::{c_int, c_uint};
use std::ptr::{from_ref, null, null_mut};

use nexar::capi::comm::{
    nexarCommAbort, nexarCommCount, nexarCommCuDevice, nexarCommDestroy, nexarCommFinalize,
    nexarCommGetAsyncError, nexarCommInitAll, nexarCommInitRank, nexarCommInitRankConfig,
    nexarCommUserRank, nexarGetUniqueId,
};
use nexar::capi::split::nexarCommSplit;
use nexar::device;
use nexar::error::Error;

use crate::boundary::{
    Answer, Failure, answer, boundary, operation, record_error, set, wrong_argument, wrong_usage,
};
use crate::config;
use crate::types::{Head, MAGIC, ncclComm_t, ncclConfig_t, ncclResult_t, ncclUniqueId};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(uniqueId: *mut ncclUniqueId) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a pointer to an id.
    boundary("ncclGetUniqueId", || answer(unsafe { nexarGetUniqueId(uniqueId) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    comm: *mut ncclComm_t,
    nranks: c_int,
    commId: ncclUniqueId,
    rank: c_int,
) -> ncclResult_t {
    operation("ncclCommInitRank", || {
        // SAFETY: the caller passes NULL or a pointer to a handle.
        unsafe { write_null(comm) };
        // SAFETY: as above.
        answer(unsafe { nexarCommInitRank(comm, nranks, commId, rank) })
    })
}

/// Writes NULL, as NCCL does if it cannot create the communicator.
///
/// # Safety
/// `comm` is NULL or can be written.
unsafe fn write_null(comm: *mut ncclComm_t) {
    if !comm.is_null() {
        // SAFETY: the caller vouches for the pointer, which may be unaligned.
        unsafe { comm.write_unaligned(null_mut()) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut ncclComm_t,
    nranks: c_int,
    commId: ncclUniqueId,
    rank: c_int,
    config: *const ncclConfig_t,
) -> ncclResult_t {
    operation("ncclCommInitRankConfig", || {
        // SAFETY: the caller passes NULL or a pointer to a handle, and NULL or a config.
        unsafe { init(comm, nranks, &commId, rank, config) }
    })
}

/// Uses the first id: one root serves all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankScalable(
    newcomm: *mut ncclComm_t,
    nranks: c_int,
    myrank: c_int,
    nId: c_int,
    commIds: *const ncclUniqueId,
    config: *const ncclConfig_t,
) -> ncclResult_t {
    operation("ncclCommInitRankScalable", || {
        if nId < 1 || nId > nranks {
            return Err(wrong_argument(format!("nId {nId} is not from 1 to nranks, {nranks}")));
        }
        if commIds.is_null() {
            return Err(wrong_argument("commIds is NULL"));
        }
        // SAFETY: the caller passes nId ids, at least one.
        let id = unsafe { commIds.read_unaligned() };
        // SAFETY: the caller passes NULL or a pointer to a handle, and NULL or a config.
        unsafe { init(newcomm, nranks, &id, myrank, config) }
    })
}

/// # Safety
/// `comm` is NULL or can be written, `config` is NULL or as long as its size says.
unsafe fn init(
    comm: *mut ncclComm_t,
    nranks: c_int,
    id: &ncclUniqueId,
    rank: c_int,
    config: *const ncclConfig_t,
) -> Answer {
    // SAFETY: as the caller vouches.
    unsafe { write_null(comm) };
    // SAFETY: as the caller vouches.
    let mut config = unsafe { config::parse(config) }?;
    // NCCL_COMM_BLOCKING takes precedence over the program's config.
    if let Some(blocking) = nexar::config::get()?.blocking {
        config.get_or_insert(config::UNSET).blocking = blocking.into();
    }
    let config = config.as_ref().map_or(null(), from_ref);
    // SAFETY: as the caller vouches; the config is a local variable.
    answer(unsafe { nexarCommInitRankConfig(comm, nranks, *id, rank, config) })
}

/// The number of devices, and its source. Fails if there is neither a CUDA driver nor the setting.
fn devices() -> Result<(usize, &'static str), Failure> {
    if let Some(driver) = device::driver() {
        return Ok((driver.device_count(), "the CUDA driver"));
    }
    let fake = nexar::config::get()?.fake_devices.ok_or_else(|| {
        let why = device::unavailable_reason();
        Error::Cuda(format!("{why}; NEXAR_FAKE_DEVICES=n gives n devices that work on host memory"))
    })?;
    Ok((fake, "NEXAR_FAKE_DEVICES"))
}

/// Its devices are those of the CUDA driver or, without a driver, of NEXAR_FAKE_DEVICES.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(
    comm: *mut ncclComm_t,
    ndev: c_int,
    devlist: *const c_int,
) -> ncclResult_t {
    boundary("ncclCommInitAll", || {
        let (devices, origin) = devices()?;
        let listed = |index: usize| {
            if devlist.is_null() {
                return index as c_int;
            }
            // SAFETY: the caller passes ndev device numbers; `index` stays below.
            unsafe { devlist.add(index).read_unaligned() }
        };
        let beyond = (0..usize::try_from(ndev).unwrap_or(0))
            .map(listed)
            .find(|device| usize::try_from(*device).is_ok_and(|device| device >= devices));
        if let Some(device) = beyond {
            let what = format!("device {device} is beyond the {devices} of {origin}");
            return Err(wrong_argument(what));
        }
        // SAFETY: the caller passes NULL or ndev device numbers, and NULL or an array of ndev
        // handles.
        answer(unsafe { nexarCommInitAll(comm, ndev, devlist) })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t {
    boundary("ncclCommFinalize", || answer(nexarCommFinalize(comm)))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t {
    boundary("ncclCommDestroy", || answer(nexarCommDestroy(comm)))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t {
    boundary("ncclCommAbort", || answer(nexarCommAbort(comm)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    comm: ncclComm_t,
    color: c_int,
    key: c_int,
    newcomm: *mut ncclComm_t,
    config: *const ncclConfig_t,
) -> ncclResult_t {
    operation("ncclCommSplit", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        let config = unsafe { config::parse(config) }?;
        let config = config.as_ref().map_or(null(), from_ref);
        // SAFETY: the caller passes NULL or a pointer to a handle; the config is a local variable.
        answer(unsafe { nexarCommSplit(comm, color, key, newcomm, config) })
    })
}

/// Fails if `comm` is not a created communicator. For functions that do not use it otherwise.
pub(crate) fn check(comm: ncclComm_t) -> Answer {
    let mut rank = 0;
    // SAFETY: a pointer to a local variable.
    answer(unsafe { nexarCommUserRank(comm, &mut rank) })
}

fn not_yet(function: &'static str, comm: ncclComm_t) -> ncclResult_t {
    boundary(function, || {
        check(comm)?;
        Err(wrong_usage("nexar cannot do that yet; create a new communicator instead"))
    })
}

/// NULL is a success, as in NCCL.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommRevoke(comm: ncclComm_t, _revokeFlags: c_int) -> ncclResult_t {
    if comm.is_null() {
        return ncclResult_t::Success;
    }
    not_yet("ncclCommRevoke", comm)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommShrink(
    comm: ncclComm_t,
    _excludeRanksList: *mut c_int,
    _excludeRanksCount: c_int,
    _newcomm: *mut ncclComm_t,
    _config: *const ncclConfig_t,
    _shrinkFlags: c_int,
) -> ncclResult_t {
    not_yet("ncclCommShrink", comm)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommGetUniqueId(
    comm: ncclComm_t,
    _uniqueId: *mut ncclUniqueId,
) -> ncclResult_t {
    not_yet("ncclCommGetUniqueId", comm)
}

/// Does not check comm, which is NULL on new ranks.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommGrow(
    _comm: ncclComm_t,
    _nRanks: c_int,
    _uniqueId: *const ncclUniqueId,
    _rank: c_int,
    _newcomm: *mut ncclComm_t,
    _config: *const ncclConfig_t,
) -> ncclResult_t {
    boundary("ncclCommGrow", || {
        Err(wrong_usage("nexar cannot do that yet; create a new communicator instead"))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(
    comm: ncclComm_t,
    asyncError: *mut ncclResult_t,
) -> ncclResult_t {
    boundary("ncclCommGetAsyncError", || {
        let mut found = ncclResult_t::Success;
        // SAFETY: a pointer to a local variable.
        answer(unsafe { nexarCommGetAsyncError(comm, &mut found) })?;
        if !matches!(found, ncclResult_t::Success | ncclResult_t::InProgress) {
            record_error("ncclCommGetAsyncError", comm);
        }
        // SAFETY: the caller passes NULL or a pointer to a result.
        unsafe { set("asyncError", asyncError, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(comm: ncclComm_t, count: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a pointer to an int.
    boundary("ncclCommCount", || answer(unsafe { nexarCommCount(comm, count) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(comm: ncclComm_t, rank: *mut c_int) -> ncclResult_t {
    // SAFETY: the caller passes NULL or a pointer to an int.
    boundary("ncclCommUserRank", || answer(unsafe { nexarCommUserRank(comm, rank) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCuDevice(comm: ncclComm_t, device: *mut c_int) -> ncclResult_t {
    boundary("ncclCommCuDevice", || {
        let known = self::device(comm)?;
        // SAFETY: the caller passes NULL or a pointer to an int.
        unsafe { set("device", device, known) }
    })
}

/// The CUDA device of a communicator. 0 if it has none, because programs use the number as that of
/// a device.
fn device(comm: ncclComm_t) -> Result<c_int, Failure> {
    let mut device = 0;
    // SAFETY: a pointer to a local variable.
    answer(unsafe { nexarCommCuDevice(comm, &mut device) })?;
    Ok(device.max(0))
}

/// The beginning of ncclCommProperties_t, which nexar fills in. The other fields are 0 or false:
/// those about GPUs, and commHash, which nexar does not have.
#[repr(C)]
pub struct ncclCommProperties_t {
    head: Head,
    rank: c_int,
    nRanks: c_int,
    cudaDev: c_int,
    nvmlDev: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommQueryProperties(
    comm: ncclComm_t,
    props: *mut ncclCommProperties_t,
) -> ncclResult_t {
    boundary("ncclCommQueryProperties", || {
        check(comm)?;
        if props.is_null() {
            return Err(wrong_argument("props is NULL"));
        }
        // SAFETY: every version of the structure begins with a head.
        let head = unsafe { props.cast::<Head>().read_unaligned() };
        if head.magic != MAGIC || head.size < size_of::<ncclCommProperties_t>() {
            let what = "props was not initialised with NCCL_COMM_PROPERTIES_INITIALIZER";
            return Err(wrong_argument(what));
        }
        let (mut rank, mut nRanks) = (0, 0);
        // SAFETY: a pointer to a local variable.
        answer(unsafe { nexarCommUserRank(comm, &mut rank) })?;
        // SAFETY: a pointer to a local variable.
        answer(unsafe { nexarCommCount(comm, &mut nRanks) })?;
        let cudaDev = device(comm)?;
        // SAFETY: the structure is as long as its size says.
        unsafe { props.cast::<u8>().write_bytes(0, head.size) };
        let known = ncclCommProperties_t { head, rank, nRanks, cudaDev, nvmlDev: cudaDev };
        // SAFETY: the structure is at least as long as this one; it may be unaligned.
        unsafe { props.write_unaligned(known) };
        Ok(())
    })
}

/// Has no effect: nexar keeps no device memory that it could release.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommSuspend(comm: ncclComm_t, flags: c_int) -> ncclResult_t {
    const SUSPEND_MEM: c_int = 1;
    boundary("ncclCommSuspend", || {
        check(comm)?;
        match flags {
            SUSPEND_MEM => Ok(()),
            _ => Err(wrong_argument(format!("flags {flags} is not NCCL_SUSPEND_MEM"))),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommResume(comm: ncclComm_t) -> ncclResult_t {
    boundary("ncclCommResume", || check(comm))
}

/// Writes 0: nexar keeps no device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommMemStats(
    comm: ncclComm_t,
    stat: c_uint,
    value: *mut u64,
) -> ncclResult_t {
    const LAST_STAT: c_uint = 3;
    boundary("ncclCommMemStats", || {
        check(comm)?;
        if stat > LAST_STAT {
            return Err(wrong_argument(format!("stat {stat} is not a ncclCommMemStat_t")));
        }
        // SAFETY: the caller passes NULL or a pointer to a number.
        unsafe { set("value", value, 0) }
    })
}
