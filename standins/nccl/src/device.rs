//! Functions for kernels on a GPU. Each is refused, because nexar runs no kernels.
//!
//! Their parameters are not declared, because they are not read; the C calling convention allows
//! it.

use std::ffi::c_int;

use crate::boundary::{boundary, wrong_usage};
use crate::types::{ncclResult_t, ncclTeam_t};

fn refuse(function: &'static str) -> ncclResult_t {
    boundary(function, || Err(wrong_usage("this is for kernels on a GPU, and nexar runs none")))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclDevCommCreate() -> ncclResult_t {
    refuse("ncclDevCommCreate")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclDevCommDestroy() -> ncclResult_t {
    refuse("ncclDevCommDestroy")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetCftDeviceLeInfo() -> ncclResult_t {
    refuse("ncclGetCftDeviceLeInfo")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLsaDevicePointer() -> ncclResult_t {
    refuse("ncclGetLsaDevicePointer")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLsaMultimemDevicePointer() -> ncclResult_t {
    refuse("ncclGetLsaMultimemDevicePointer")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetMultimemDeviceLeInfo() -> ncclResult_t {
    refuse("ncclGetMultimemDeviceLeInfo")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetMultimemDevicePointer() -> ncclResult_t {
    refuse("ncclGetMultimemDevicePointer")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetPeerDeviceLeInfo() -> ncclResult_t {
    refuse("ncclGetPeerDeviceLeInfo")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetPeerDevicePointer() -> ncclResult_t {
    refuse("ncclGetPeerDevicePointer")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGinBarrierCreateRequirement() -> ncclResult_t {
    refuse("ncclGinBarrierCreateRequirement")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGinInboxA2ACreateRequirement() -> ncclResult_t {
    refuse("ncclGinInboxA2ACreateRequirement")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGinOutboxCreateRequirement() -> ncclResult_t {
    refuse("ncclGinOutboxCreateRequirement")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclLLA2ACreateRequirement() -> ncclResult_t {
    refuse("ncclLLA2ACreateRequirement")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclLsaBarrierCreateRequirement() -> ncclResult_t {
    refuse("ncclLsaBarrierCreateRequirement")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclPutSignal() -> ncclResult_t {
    refuse("ncclPutSignal")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclSignal() -> ncclResult_t {
    refuse("ncclSignal")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclWaitSignal() -> ncclResult_t {
    refuse("ncclWaitSignal")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclTeamCft() -> ncclTeam_t {
    refuse("ncclTeamCft");
    ncclTeam_t::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclTeamCftMultimem() -> ncclTeam_t {
    refuse("ncclTeamCftMultimem");
    ncclTeam_t::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclTeamLsa() -> ncclTeam_t {
    refuse("ncclTeamLsa");
    ncclTeam_t::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclTeamRail() -> ncclTeam_t {
    refuse("ncclTeamRail");
    ncclTeam_t::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclTeamWorld() -> ncclTeam_t {
    refuse("ncclTeamWorld");
    ncclTeam_t::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclLLA2ACalcSlots() -> c_int {
    refuse("ncclLLA2ACalcSlots");
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclTeamRankToLsa() -> c_int {
    refuse("ncclTeamRankToLsa");
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclTeamRankToWorld() -> c_int {
    refuse("ncclTeamRankToWorld");
    0
}
