//! Operators: create, destroy.

use std::ffi::c_void;

use nexar::capi::redop::{nexarRedOpCreatePreMulSum, nexarRedOpDestroy};

use crate::boundary::{answer, boundary};
use crate::collective::check_type;
use crate::types::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclScalarResidence_t};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    op: *mut ncclRedOp_t,
    scalar: *mut c_void,
    datatype: ncclDataType_t,
    residence: ncclScalarResidence_t,
    comm: ncclComm_t,
) -> ncclResult_t {
    boundary("ncclRedOpCreatePreMulSum", || {
        check_type(datatype)?;
        // SAFETY: the caller keeps to the contract of NCCL, which is that of nexar.
        answer(unsafe { nexarRedOpCreatePreMulSum(op, scalar, datatype, residence, comm) })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) -> ncclResult_t {
    boundary("ncclRedOpDestroy", || answer(nexarRedOpDestroy(op, comm)))
}
