//! Types and constants of the header that are not vocabulary of the crate.
#![allow(non_camel_case_types, reason = "names as in the header")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Bytes of a nexarUniqueId.
pub const NEXAR_UNIQUE_ID_BYTES: usize = 128;

/// The color of a rank that takes part in nexarCommSplit but wants no communicator.
pub const NEXAR_SPLIT_NOCOLOR: c_int = -1;

/// The peer of nexarRecvTag that is any rank.
pub const NEXAR_ANY_SOURCE: c_int = -1;

/// The tag of nexarRecvTag that is any tag.
pub const NEXAR_ANY_TAG: c_int = -1;

/// First field after the size of a nexarConfig_t; set by NEXAR_CONFIG_INITIALIZER.
pub const NEXAR_API_MAGIC: c_uint = 0xcafebeef;

/// A member of a communicator: one rank's end of it. Opaque, never dereferenced.
pub struct nexarComm;

/// Handle of a communicator. A destroyed, foreign or random one is nexarInvalidArgument.
pub type nexarComm_t = *mut nexarComm;

/// Handle of a stream that orders operations: of nexarStreamCreate, or of CUDA. NULL: the call
/// returns when the result is there; with memory of a device, CUDA's default stream. A destroyed,
/// foreign or random one is nexarInvalidArgument, where there is no CUDA.
pub type nexarStream_t = *mut c_void;

/// What the ranks of a future communicator share to find each other. Keep it as secret as the
/// data: who has it may join.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nexarUniqueId {
    pub internal: [c_char; NEXAR_UNIQUE_ID_BYTES],
}

/// Settings of one communicator. Initialise with NEXAR_CONFIG_INITIALIZER, then set fields; a
/// field left at NEXAR_CONFIG_UNDEF_INT or NULL takes its value from the environment or default, in
/// nexarCommSplit from comm.
/// The structure grows at its end in later versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nexarConfig_t {
    /// Set by the initialiser.
    pub size: usize,
    /// Set by the initialiser.
    pub magic: c_uint,
    /// Set by the initialiser.
    pub version: c_uint,
    /// 1, the default: initialisation waits. 0: it goes on in the background.
    pub blocking: c_int,
    /// Longest time for all ranks to come, in milliseconds.
    pub initTimeoutMs: c_int,
    /// Longest time for one operation, in milliseconds.
    pub opTimeoutMs: c_int,
    /// A rank not heard from for this long is lost, in milliseconds.
    pub peerTimeoutMs: c_int,
    /// 0 or 1; has no effect, as communicators made by a split always share connections.
    pub splitShare: c_int,
    /// Name in logs. Copied; may be NULL.
    pub name: *const c_char,
}

impl nexarConfig_t {
    /// A field that was not set.
    pub(super) const UNDEF_INT: c_int = c_int::MIN;
}

/// Where the scalar of nexarRedOpCreatePreMulSum is. Values are NCCL's.
/// cbindgen:rename-all=prefix:nexar
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarResidence {
    /// Read by each call that uses the operator, also in a group or on a stream.
    ScalarDevice = 0,
    /// Read by nexarRedOpCreatePreMulSum, at once.
    ScalarHostImmediate = 1,
}

/// A `nexarScalarResidence_t` as it comes from C: any integer.
pub type ResidenceCode = c_int;
/// A `nexarDataType_t` as it comes from C: any integer.
pub type DataTypeCode = c_int;
/// A `nexarRedOp_t` as it comes from C: any integer.
pub type RedOpCode = c_int;
/// A `nexarResult_t` as it comes from C: any integer.
pub type ResultCode = c_int;
