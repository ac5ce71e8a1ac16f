//! Communicators: create, ask, end.

use std::ffi::{c_char, c_int};

use crate::comm::{create_in_process, deliver_faults, join, join_environment};
use crate::error::{Code, Error, Result};
use crate::{bootstrap, config};

use super::arguments::{self, Out};
use super::boundary::{boundary, on_communicator, with_communicator};
use super::communicators::{self, Handled};
use super::submit::initialise;
use super::types::{nexarComm_t, nexarConfig_t, nexarUniqueId};
use super::{memory, operators};

/// Ranks that one process may hold in one communicator.
const MOST_RANKS: c_int = 256;

/// Makes a communicator of ndev ranks that all live in this process, and writes their handles to
/// comms[0] ... comms[ndev - 1], ndev at most 256. Each rank is to be used by a thread of its own.
/// devlist gives the CUDA device of each rank, all different (else nexarInvalidUsage, as in NCCL);
/// NULL means 0 ... ndev - 1. On host memory the numbers mean nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommInitAll(
    comms: *mut nexarComm_t,
    ndev: c_int,
    devlist: *const c_int,
) -> Code {
    boundary("nexarCommInitAll", || {
        if !(1..=MOST_RANKS).contains(&ndev) {
            return Err(Error::Argument(format!("ndev {ndev} is not from 1 to {MOST_RANKS}")));
        }
        // SAFETY: the caller passes NULL or ndev device numbers.
        let devices = unsafe { devices(devlist, ndev as usize) }?;
        // SAFETY: the caller passes NULL or a place for ndev handles.
        let slots = unsafe { slots(comms, ndev as usize) }?;
        let communicators = create_in_process(ndev as usize, config::get()?)?;
        let mut wanted = communicators.iter().zip(&devices);
        wanted.try_for_each(|(one, device)| one.want_device(*device)).inspect_err(|_| {
            communicators.iter().for_each(|one| one.close());
        })?;
        for ((slot, communicator), device) in slots.into_iter().zip(communicators).zip(devices) {
            slot.set(communicators::insert(communicator, Some(device)));
        }
        Ok(())
    })
}

/// # Safety
/// `devlist` is NULL or points to `count` ints.
unsafe fn devices(devlist: *const c_int, count: usize) -> Result<Vec<c_int>> {
    if devlist.is_null() {
        return Ok((0..count as c_int).collect());
    }
    // SAFETY: `devlist` has `count` ints; `index` stays below.
    let device = |index: usize| unsafe { devlist.add(index).read_unaligned() };
    let devices: Vec<_> = (0..count).map(device).collect();
    for (index, device) in devices.iter().enumerate() {
        if *device < 0 {
            return Err(Error::Argument(format!("devlist[{index}] is {device}")));
        }
        if devices[..index].contains(device) {
            return Err(Error::Usage(format!("devlist names device {device} twice")));
        }
    }
    Ok(devices)
}

/// # Safety
/// `comms` is NULL or points to a place for `count` handles.
unsafe fn slots(comms: *mut nexarComm_t, count: usize) -> Result<Vec<Out<nexarComm_t>>> {
    let slot = |index: usize| {
        // SAFETY: the caller vouches for `count` places from `comms`; NULL stays NULL.
        unsafe { Out::new("comms", if comms.is_null() { comms } else { comms.add(index) }) }
    };
    (0..count).map(slot).collect()
}

/// Makes an id with which nranks processes find each other. One process calls it and hands the
/// 128 bytes to all ranks by any means; that process serves the id until the communicator is made,
/// or until the process ends. An id makes one communicator. Keep it as secret as the data. If
/// NEXAR_COMM_SECRET is set, a rank refuses an id that was made without it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarGetUniqueId(uniqueId: *mut nexarUniqueId) -> Code {
    boundary("nexarGetUniqueId", || {
        // SAFETY: the caller passes NULL or a place for an id.
        let out = unsafe { Out::new("uniqueId", uniqueId) }?;
        let id = bootstrap::create_id(config::get()?)?;
        out.set(nexarUniqueId { internal: id.map(|byte| byte as c_char) });
        Ok(())
    })
}

/// Joins the communicator of commId as rank of nranks, and writes its handle to comm. Returns when
/// all ranks have come, or at most 500 ms after NEXAR_INIT_TIMEOUT_MS with an error that names the
/// missing ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommInitRank(
    comm: *mut nexarComm_t,
    nranks: c_int,
    commId: nexarUniqueId,
    rank: c_int,
) -> Code {
    initialise("nexarCommInitRank", comm, || {
        let (world, id) = (arguments::world(rank, nranks)?, id_bytes(&commId));
        let config = config::get()?;
        Ok((true, move |device| join(&id, world, config, device)))
    })
}

/// As nexarCommInitRank, with settings of this communicator; config may be NULL.
///
/// With config.blocking == 0 it returns nexarInProgress at once. The handle can be asked with
/// nexarCommGetAsyncError, which gives nexarInProgress until the communicator has been made, then
/// nexarSuccess or what it failed with; nexarCommAbort does not wait for it, nexarCommDestroy does.
/// Any other use before that is nexarInvalidArgument. The handle must be destroyed, also if its
/// communicator could not be made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommInitRankConfig(
    comm: *mut nexarComm_t,
    nranks: c_int,
    commId: nexarUniqueId,
    rank: c_int,
    config: *const nexarConfig_t,
) -> Code {
    initialise("nexarCommInitRankConfig", comm, || {
        let (world, id) = (arguments::world(rank, nranks)?, id_bytes(&commId));
        // SAFETY: the caller passes NULL or a nexarConfig_t as long as its size field says.
        let (config, blocking) = unsafe { arguments::config(config, config::get()?) }?;
        Ok((blocking, move |device| join(&id, world, &config, device)))
    })
}

/// Joins the communicator that a launcher such as nexar-run has described in the environment:
/// NEXAR_RANK, NEXAR_NRANKS, NEXAR_COMM_ID and NEXAR_COMM_SECRET. Without any of them, a world of
/// one rank; some but not all of them is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommInitFromEnv(comm: *mut nexarComm_t) -> Code {
    initialise("nexarCommInitFromEnv", comm, || {
        let config = config::get()?;
        Ok((true, move |device| join_environment(config, device)))
    })
}

fn id_bytes(id: &nexarUniqueId) -> [u8; bootstrap::BYTES] {
    id.internal.map(|byte| byte as u8)
}

/// Gives the number of ranks of the communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommCount(comm: nexarComm_t, count: *mut c_int) -> Code {
    on_communicator("nexarCommCount", comm, |communicator| {
        // SAFETY: the caller passes NULL or a place for an int.
        let count = unsafe { Out::new("count", count) }?;
        count.set(communicator.me().size as c_int);
        Ok(())
    })
}

/// Gives this rank's number, from 0 to the number of ranks less 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommUserRank(comm: nexarComm_t, rank: *mut c_int) -> Code {
    on_communicator("nexarCommUserRank", comm, |communicator| {
        // SAFETY: the caller passes NULL or a place for an int.
        let rank = unsafe { Out::new("rank", rank) }?;
        rank.set(communicator.me().rank.0 as c_int);
        Ok(())
    })
}

/// Gives the CUDA device of this rank: devlist[rank] of nexarCommInitAll, or rank if devlist was
/// NULL; otherwise the one that was current when it was made, or whose memory it was first used on.
/// What is split off keeps it. -1 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommCuDevice(comm: nexarComm_t, device: *mut c_int) -> Code {
    on_communicator("nexarCommCuDevice", comm, |communicator| {
        // SAFETY: the caller passes NULL or a place for an int.
        let out = unsafe { Out::new("device", device) }?;
        out.set(communicators::device(comm)?.or(communicator.cuda_device()).unwrap_or(-1));
        Ok(())
    })
}

/// Gives nexarSuccess while the communicator works, or what it failed with: the result its
/// operations return from then on, at most 50 ms after the failure. nexarInProgress while it is
/// being made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommGetAsyncError(comm: nexarComm_t, asyncError: *mut Code) -> Code {
    const NAME: &str = "nexarCommGetAsyncError";
    boundary(NAME, || {
        // SAFETY: the caller passes NULL or a place for a result.
        let result = unsafe { Out::new("asyncError", asyncError) };
        if let Handled::InCreation(making) = communicators::handled(comm)? {
            let unmade = match making.result() {
                None => Some(Code::InProgress),
                Some(Err(error)) => Some(error.code()),
                Some(Ok(_)) => None,
            };
            if let Some(code) = unmade {
                result?.set(code);
                return Ok(());
            }
        }
        with_communicator(NAME, comm, |communicator| {
            let (result, fault) = (result?, communicator.fault());
            if fault.is_some() {
                deliver_faults();
            }
            result.set(fault.map_or(Code::Success, |fault| fault.code()));
            Ok(())
        })
    })
}

/// Waits for this rank's operations; further ones are nexarInvalidUsage. Peers may still be
/// using theirs. A second time is nexarInvalidArgument. NULL is nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarCommFinalize(comm: nexarComm_t) -> Code {
    if comm.is_null() {
        return boundary("nexarCommFinalize", || Ok(()));
    }
    on_communicator("nexarCommFinalize", comm, |communicator| communicator.finalize())
}

/// What a communicator that is no more leaves behind.
fn forget(comm: nexarComm_t) {
    operators::forget(comm);
    memory::forget(comm);
}

/// Finalizes if that was not done, and frees the communicator: its handle is dead from the
/// beginning of the call. Works on a failed one; one that is being made is waited for. NULL is
/// nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarCommDestroy(comm: nexarComm_t) -> Code {
    boundary("nexarCommDestroy", || {
        if !comm.is_null() {
            match communicators::remove(comm)? {
                Handled::Created(communicator) => communicator.close(),
                Handled::InCreation(making) => making.close(),
            }
            forget(comm);
        }
        Ok(())
    })
}

/// Ends this rank's operations at once, whatever thread is inside them, and frees the communicator.
/// It waits at most 50 ms, until the other ranks know: the program may exit as soon as it returns.
/// The operations return nexarInvalidUsage; other ranks get nexarRemoteError naming this one,
/// unless the communicator had failed before. A communicator that is still being made is aborted as
/// soon as it has been made. NULL is nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarCommAbort(comm: nexarComm_t) -> Code {
    boundary("nexarCommAbort", || {
        if !comm.is_null() {
            match communicators::remove(comm)? {
                Handled::Created(communicator) => communicator.abort(),
                Handled::InCreation(making) => making.abort(),
            }
            forget(comm);
        }
        Ok(())
    })
}
