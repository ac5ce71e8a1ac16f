//! Types of nccl.h. Handles and enums are nexar's: the values of the enums are the same, and
//! handles are opaque.

use std::ffi::{c_int, c_uint, c_void};

pub use nexar::capi::types::{
    DataTypeCode as ncclDataType_t, RedOpCode as ncclRedOp_t,
    ResidenceCode as ncclScalarResidence_t, nexarComm_t as ncclComm_t,
    nexarUniqueId as ncclUniqueId,
};
pub use nexar::error::Code as ncclResult_t;

pub type cudaStream_t = *mut c_void;
pub type ncclWindow_t = *mut c_void;

/// The value of `magic` in most structures of nccl.h.
pub const MAGIC: c_uint = 0xcafe_beef;

/// The first fields of every structure to which versions of NCCL add fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Head {
    pub size: usize,
    pub magic: c_uint,
    /// The version of the header that the program was compiled with.
    pub version: c_uint,
}

/// Any `ncclConfig_t`; `config` knows the fields of each version.
#[repr(C)]
pub struct ncclConfig_t {
    pub head: Head,
}

/// Any `ncclCollConfig_t`.
#[repr(C)]
pub struct ncclCollConfig_t {
    pub head: Head,
}

#[repr(C)]
pub struct ncclSimInfo_t {
    pub head: Head,
    pub estimatedTime: f32,
}

#[repr(C)]
pub struct ncclEncryptionConfig_t {
    pub head: Head,
    pub mode: c_int,
    pub psk: *const std::ffi::c_char,
}

/// A team of ranks of the device API. The stand-in only returns empty ones.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ncclTeam_t {
    pub nRanks: c_int,
    pub rank: c_int,
    pub stride: c_int,
}
