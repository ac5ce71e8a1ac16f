//! Groups, and messages between two ranks.

use std::ffi::{c_int, c_void};

use nexar::capi::group::{drop_group, nexarGroupEnd, nexarGroupStart};
use nexar::capi::message::{nexarRecv, nexarSend};

use crate::border::{answer, border, stream, through, wrong_argument};
use crate::types::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclResult_t, ncclSimInfo_t};

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> ncclResult_t {
    through("ncclGroupStart", || nexarGroupStart())
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> ncclResult_t {
    through("ncclGroupEnd", || nexarGroupEnd())
}

const SIM_INFO_MAGIC: u32 = 0x7468_5283;

/// Ends the group and does nothing of it. How long it would have taken is not known: the estimate
/// stays what it was, NCCL_UNDEF_FLOAT if initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupSimulateEnd(simInfo: *mut ncclSimInfo_t) -> ncclResult_t {
    border("ncclGroupSimulateEnd", || {
        // SAFETY: the caller passes NULL or a ncclSimInfo_t.
        let magic = (!simInfo.is_null()).then(|| unsafe { simInfo.read_unaligned() }.head.magic);
        if magic.is_some_and(|magic| magic != SIM_INFO_MAGIC) {
            let what = "simInfo was not initialised with NCCL_SIM_INFO_INITIALIZER";
            return Err(wrong_argument(what));
        }
        answer(drop_group("nexarGroupSimulateEnd"))
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of ncclSend, which is that of nexarSend.
    through("ncclSend", || unsafe { nexarSend(sendbuff, count, datatype, peer, comm, stream) })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of ncclRecv, which is that of nexarRecv.
    through("ncclRecv", || unsafe { nexarRecv(recvbuff, count, datatype, peer, comm, stream) })
}
