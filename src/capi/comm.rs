//! Communicators: create, query, finalize, destroy, abort.

use std::ffi::{c_char, c_int};

use crate::comm::{create_in_process, deliver_faults, join, join_environment};
use crate::error::{Code, Error, Result};
use crate::{bootstrap, config};

use super::arguments::{self, Out};
use super::boundary::{boundary, on_communicator, with_communicator};
use super::communicators::{self, Handled};
use super::submit::initialise;
use super::types::{nexarComm_t, nexarConfig_t, nexarUniqueId};
use super::{datatypes, memory, operators};

/// The largest number of ranks that nexarCommInitAll creates.
const MAX_RANKS: c_int = 256;

/// Creates a communicator whose ndev ranks are all in this process, and writes their handles to
/// comms[0] ... comms[ndev - 1]. ndev is at most 256. Use each rank in a thread of its own, or put
/// the calls of all ranks into one group.
///
/// devlist: the CUDA device of each rank, all different (otherwise nexarInvalidUsage, as in NCCL).
/// NULL means 0 ... ndev - 1. Without CUDA the numbers are only stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommInitAll(
    comms: *mut nexarComm_t,
    ndev: c_int,
    devlist: *const c_int,
) -> Code {
    boundary("nexarCommInitAll", || {
        if !(1..=MAX_RANKS).contains(&ndev) {
            return Err(Error::Argument(format!("ndev {ndev} is not from 1 to {MAX_RANKS}")));
        }
        // SAFETY: the caller passes NULL or ndev device numbers.
        let devices = unsafe { devices(devlist, ndev as usize) }?;
        // SAFETY: the caller passes NULL or a pointer to ndev handles.
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
            return Err(Error::Argument(format!("devlist[{index}] is {device}, below 0")));
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

/// Creates an id by which the processes of one new communicator find each other. One process calls
/// it and passes the 128 bytes to all ranks by any means, such as a file or another library. This
/// process serves the id until the communicator has been created or the process ends. An id creates
/// one communicator.
///
/// Keep the id as secret as the data: any process that has it can join. If NEXAR_COMM_SECRET is
/// set, ranks refuse an id that was created without it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarGetUniqueId(uniqueId: *mut nexarUniqueId) -> Code {
    boundary("nexarGetUniqueId", || {
        // SAFETY: the caller passes NULL or a pointer to an id.
        let out = unsafe { Out::new("uniqueId", uniqueId) }?;
        let id = bootstrap::create_id(config::get()?)?;
        out.set(nexarUniqueId { internal: id.map(|byte| byte as c_char) });
        Ok(())
    })
}

/// Joins the communicator of commId as rank rank of nranks, and writes its handle to comm. The call
/// returns when all ranks have joined. If some have not after NEXAR_INIT_TIMEOUT_MS, it is
/// nexarTimeout on every rank, at most 500 ms later, and the text names the missing ranks.
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

/// As nexarCommInitRank, with settings for this communicator. config may be NULL.
///
/// With config.blocking == 0 the call returns nexarInProgress at once, and the communicator is
/// created in the background. Until then nexarCommGetAsyncError gives nexarInProgress,
/// nexarCommAbort does not wait for it, nexarCommDestroy does, and any other use of the handle is
/// nexarInvalidArgument. Destroy or abort the handle also if the creation fails.
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

/// Joins the communicator that the environment describes: NEXAR_RANK, NEXAR_NRANKS, NEXAR_COMM_ID
/// and NEXAR_COMM_SECRET or NEXAR_COMM_SECRET_FILE, as nexar-run sets them. Without the first
/// three, or with NEXAR_NRANKS=1, the communicator has one rank. If only some of them are set, it
/// is nexarInvalidUsage.
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

/// Writes the number of ranks of comm to count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommCount(comm: nexarComm_t, count: *mut c_int) -> Code {
    on_communicator("nexarCommCount", comm, |communicator| {
        // SAFETY: the caller passes NULL or a pointer to an int.
        let count = unsafe { Out::new("count", count) }?;
        count.set(communicator.me().size as c_int);
        Ok(())
    })
}

/// Writes this process's rank in comm, 0 ... nranks - 1, to rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommUserRank(comm: nexarComm_t, rank: *mut c_int) -> Code {
    on_communicator("nexarCommUserRank", comm, |communicator| {
        // SAFETY: the caller passes NULL or a pointer to an int.
        let rank = unsafe { Out::new("rank", rank) }?;
        rank.set(communicator.me().rank.0 as c_int);
        Ok(())
    })
}

/// Writes the CUDA device of this rank to device, or -1 if it has none. It is devlist[rank] of
/// nexarCommInitAll (rank if devlist was NULL); otherwise the device that was current when the
/// communicator was created, or the one whose memory was used first. A split keeps the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommCuDevice(comm: nexarComm_t, device: *mut c_int) -> Code {
    on_communicator("nexarCommCuDevice", comm, |communicator| {
        // SAFETY: the caller passes NULL or a pointer to an int.
        let out = unsafe { Out::new("device", device) }?;
        out.set(communicators::device(comm)?.or(communicator.cuda_device()).unwrap_or(-1));
        Ok(())
    })
}

/// Writes the state of comm to asyncError, without waiting for operations: nexarSuccess while it
/// works, nexarInProgress while it is being created, otherwise the failure that all its operations
/// return from then on. If it reports a failure, it first waits until the peers know, at most 50
/// ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarCommGetAsyncError(comm: nexarComm_t, asyncError: *mut Code) -> Code {
    const NAME: &str = "nexarCommGetAsyncError";
    boundary(NAME, || {
        // SAFETY: the caller passes NULL or a pointer to a result.
        let result = unsafe { Out::new("asyncError", asyncError) };
        if let Handled::InCreation(creation) = communicators::handled(comm)? {
            let not_created = match creation.result() {
                None => Some(Code::InProgress),
                Some(Err(error)) => Some(error.code()),
                Some(Ok(_)) => None,
            };
            if let Some(code) = not_created {
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

/// Waits until this rank's operations have completed. Further operations on comm are
/// nexarInvalidUsage; other ranks can go on with theirs. A second call is nexarInvalidArgument.
/// NULL is nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarCommFinalize(comm: nexarComm_t) -> Code {
    if comm.is_null() {
        return boundary("nexarCommFinalize", || Ok(()));
    }
    on_communicator("nexarCommFinalize", comm, |communicator| communicator.finalize())
}

/// Frees the operators, data types and registrations of a destroyed communicator.
fn forget(comm: nexarComm_t) {
    operators::forget(comm);
    datatypes::forget(comm);
    memory::forget(comm);
}

/// Finalizes comm if the program has not, and frees it. The handle is invalid from the start of the
/// call. It works on a failed communicator. If comm is being created or split, the call waits for
/// that. It does not wait for operations of other ranks: one that still needs this rank is
/// nexarRemoteError there. What this rank has sent still arrives, so no barrier is needed before. A
/// program that exits without it still delivers what it has sent, for at most 30 s. NULL is
/// nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarCommDestroy(comm: nexarComm_t) -> Code {
    boundary("nexarCommDestroy", || {
        if !comm.is_null() {
            match communicators::remove(comm)? {
                Handled::Created(communicator) => communicator.close(),
                Handled::InCreation(creation) => creation.close(),
            }
            forget(comm);
        }
        Ok(())
    })
}

/// Ends this rank's operations on comm at once, in whatever thread they run, and frees comm. Those
/// operations return nexarInvalidUsage; their buffers belong to them until they do. Other ranks get
/// nexarRemoteError that names this rank, unless comm had failed before. The call waits until they
/// know, at most 50 ms, so the program may exit when it returns. A communicator that is being
/// created is aborted once it exists; the call does not wait for that. NULL is nexarSuccess.
#[unsafe(no_mangle)]
pub extern "C" fn nexarCommAbort(comm: nexarComm_t) -> Code {
    boundary("nexarCommAbort", || {
        if !comm.is_null() {
            match communicators::remove(comm)? {
                Handled::Created(communicator) => communicator.abort(),
                Handled::InCreation(creation) => creation.abort(),
            }
            forget(comm);
        }
        Ok(())
    })
}
