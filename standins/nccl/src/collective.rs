//! Collectives. Each has a variant with a config for one call. Configs are checked but not used,
//! because they tune GPU kernels.

use std::ffi::{c_int, c_void};

use nexar::capi::collective::{
    nexarAllGather, nexarAllReduce, nexarAllToAll, nexarBcast, nexarBroadcast, nexarGather,
    nexarReduce, nexarReduceScatter, nexarScatter,
};

use crate::boundary::{Answer, answer, operation, stream_of, wrong_argument};
use crate::config::check_call;
use crate::types::{
    cudaStream_t, ncclCollConfig_t, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t,
};

/// Refuses types that only nexar has, because NCCL may use their numbers for other types.
pub(crate) fn check_type(datatype: ncclDataType_t) -> Answer {
    const TYPES: ncclDataType_t = 12;
    if datatype < TYPES {
        return Ok(());
    }
    Err(wrong_argument(format!("datatype {datatype} is not a ncclDataType_t")))
}

fn check_fold(datatype: ncclDataType_t, op: ncclRedOp_t) -> Answer {
    const OPERATORS: ncclRedOp_t = 5;
    const FIRST_CREATED: ncclRedOp_t = 0x10000;
    check_type(datatype)?;
    if (OPERATORS..FIRST_CREATED).contains(&op) {
        return Err(wrong_argument(format!("op {op} is not a ncclRedOp_t")));
    }
    Ok(())
}

/// Checks the config of a call, then makes the call without it.
///
/// # Safety
/// `config` is NULL or points to a ncclCollConfig_t as long as its size says.
unsafe fn configured(
    function: &'static str,
    config: *const ncclCollConfig_t,
    call: impl FnOnce() -> ncclResult_t,
) -> ncclResult_t {
    // SAFETY: as the caller vouches.
    match operation(function, || unsafe { check_call(config) }) {
        ncclResult_t::Success => call(),
        refused => refused,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclAllReduce", || {
        check_fold(datatype, op)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduceConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclAllReduce.
    let call = || unsafe { ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclAllReduceConfig", config, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclReduce", || {
        check_fold(datatype, op)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclReduce.
    let call =
        || unsafe { ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclReduceConfig", config, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclBroadcast", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcastConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclBroadcast.
    let call = || unsafe { ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclBroadcastConfig", config, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBcast(
    buff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclBcast", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe { nexarBcast(buff, count, datatype, root, comm, stream_of(stream)) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclAllGather", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGatherConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclAllGather.
    let call = || unsafe { ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclAllGatherConfig", config, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclReduceScatter", || {
        check_fold(datatype, op)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatterConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclReduceScatter.
    let call =
        || unsafe { ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclReduceScatterConfig", config, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAlltoAll(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclAlltoAll", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarAllToAll(sendbuff, recvbuff, count, datatype, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAlltoAllConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclAlltoAll.
    let call = || unsafe { ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclAlltoAllConfig", config, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclGather", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarGather(sendbuff, recvbuff, count, datatype, root, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGatherConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclGather.
    let call = || unsafe { ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclGatherConfig", config, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    operation("ncclScatter", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarScatter(sendbuff, recvbuff, count, datatype, root, comm, stream_of(stream))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclScatterConfig(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
    config: *const ncclCollConfig_t,
) -> ncclResult_t {
    // SAFETY: the caller keeps to the contract of ncclScatter.
    let call = || unsafe { ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream) };
    // SAFETY: the caller passes NULL or a config as long as its size says.
    unsafe { configured("ncclScatterConfig", config, call) }
}
