//! Collectives. Each has a form with a config for one call, of which only the general rules are checked:
//! what it tunes are GPU kernels.

use std::ffi::{c_int, c_void};

use nexar::capi::collective::{
    nexarAllGather, nexarAllReduce, nexarAllToAll, nexarBcast, nexarBroadcast, nexarGather,
    nexarReduce, nexarReduceScatter, nexarScatter,
};

use crate::border::{answer, border, stream, through};
use crate::config::check_call;
use crate::types::{
    cudaStream_t, ncclCollConfig_t, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t,
};

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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclAllReduce", || unsafe {
        nexarAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream)
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
    border("ncclAllReduceConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarAllReduce(sendbuff, recvbuff, count, datatype, op, comm, self::stream(stream))
        })
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclReduce", || unsafe {
        nexarReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream)
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
    border("ncclReduceConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarReduce(sendbuff, recvbuff, count, datatype, op, root, comm, self::stream(stream))
        })
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclBroadcast", || unsafe {
        nexarBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream)
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
    border("ncclBroadcastConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarBroadcast(sendbuff, recvbuff, count, datatype, root, comm, self::stream(stream))
        })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclAllGather", || unsafe {
        nexarAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream)
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
    border("ncclAllGatherConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarAllGather(sendbuff, recvbuff, sendcount, datatype, comm, self::stream(stream))
        })
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclReduceScatter", || unsafe {
        nexarReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream)
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
    border("ncclReduceScatterConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarReduceScatter(
                sendbuff,
                recvbuff,
                recvcount,
                datatype,
                op,
                comm,
                self::stream(stream),
            )
        })
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclAlltoAll", || unsafe {
        nexarAllToAll(sendbuff, recvbuff, count, datatype, comm, stream)
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
    border("ncclAlltoAllConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarAllToAll(sendbuff, recvbuff, count, datatype, comm, self::stream(stream))
        })
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclGather", || unsafe {
        nexarGather(sendbuff, recvbuff, count, datatype, root, comm, stream)
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
    border("ncclGatherConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarGather(sendbuff, recvbuff, count, datatype, root, comm, self::stream(stream))
        })
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclScatter", || unsafe {
        nexarScatter(sendbuff, recvbuff, count, datatype, root, comm, stream)
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
    border("ncclScatterConfig", || {
        // SAFETY: the caller passes NULL or a config as long as its size says.
        unsafe { check_call(config) }?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe {
            nexarScatter(sendbuff, recvbuff, count, datatype, root, comm, self::stream(stream))
        })
    })
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
    let stream = self::stream(stream);
    // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
    through("ncclBcast", || unsafe { nexarBcast(buff, count, datatype, root, comm, stream) })
}
