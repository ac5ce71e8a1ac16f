//! Groups, and messages between two ranks.

use std::ffi::{c_int, c_void};

use nexar::capi::group::{nexarGroupEnd, nexarGroupStart, simulate_end};
use nexar::capi::message::{nexarRecv, nexarSend};
use nexar::error::Error;

use crate::boundary::{answer, boundary, operation, stream_of};
use crate::collective::check_type;
use crate::types::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclResult_t, ncclSimInfo_t};

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> ncclResult_t {
    boundary("ncclGroupStart", || answer(nexarGroupStart()))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> ncclResult_t {
    boundary("ncclGroupEnd", || answer(nexarGroupEnd()))
}

const SIM_INFO_MAGIC: u32 = 0x7468_5283;

/// Ends the group without executing it. nexar has no estimate of its duration: the field is not
/// changed and stays NCCL_UNDEF_FLOAT if initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupSimulateEnd(simInfo: *mut ncclSimInfo_t) -> ncclResult_t {
    let check = || {
        // SAFETY: the caller passes NULL or a ncclSimInfo_t.
        if simInfo.is_null() || unsafe { simInfo.read_unaligned() }.head.magic == SIM_INFO_MAGIC {
            return Ok(());
        }
        let what = "simInfo was not initialised with NCCL_SIM_INFO_INITIALIZER";
        Err(Error::Argument(what.to_owned()))
    };
    boundary("ncclGroupSimulateEnd", || answer(simulate_end("nexarGroupSimulateEnd", check)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    sendbuff: *const c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclSend", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe { nexarSend(sendbuff, count, datatype, peer, comm, stream_of(stream)) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclRecv", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe { nexarRecv(recvbuff, count, datatype, peer, comm, stream_of(stream)) })
    })
}
