//! Types and constants of the header that no other module of the crate uses.
#![allow(non_camel_case_types, reason = "names as in the header")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// Bytes of a nexarUniqueId.
pub const NEXAR_UNIQUE_ID_BYTES: usize = 128;

/// Color in nexarCommSplit of a rank that gets no communicator.
pub const NEXAR_SPLIT_NOCOLOR: c_int = -1;

/// Peer in nexarRecvTag, nexarRecvTagStatus, nexarIrecvTag and nexarProbeTag: any rank.
pub const NEXAR_ANY_SOURCE: c_int = -1;

/// Tag in nexarRecvTag, nexarRecvTagStatus, nexarIrecvTag and nexarProbeTag: any tag.
pub const NEXAR_ANY_TAG: c_int = -1;

/// Marks a nexarConfig_t that was initialised. In the header it is a hexadecimal macro of
/// cmake/cbindgen.toml.
pub const NEXAR_API_MAGIC: c_uint = 0xcafebeef;

/// One rank of a communicator. Opaque; the library never dereferences a pointer to it.
pub struct nexarComm;

/// Handle of one rank of a communicator.
pub type nexarComm_t = *mut nexarComm;

/// Handle of a stream that orders operations: of nexarStreamCreate, or a CUDA stream. NULL: the
/// call returns when the result is there; with device memory, CUDA's default stream. Any
/// other value is nexarInvalidArgument without CUDA; with CUDA, a value that was never a host
/// stream is taken for a CUDA stream.
pub type nexarStream_t = *mut c_void;

/// A send or a receive that was not waited for. Opaque; the library never dereferences a pointer to
/// it.
pub struct nexarRequest;

/// Handle of a send or a receive that nexarIsendTag or nexarIrecvTag has begun, until a call has
/// consumed it.
pub type nexarRequest_t = *mut nexarRequest;

/// Id by which the ranks of one new communicator find each other. Keep it as secret as the data:
/// any process that has it can join.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nexarUniqueId {
    pub internal: [c_char; NEXAR_UNIQUE_ID_BYTES],
}

/// Settings of one communicator. Initialise it with NEXAR_CONFIG_INITIALIZER, then set fields. A
/// field that is not set takes its value from the environment, else the default; in nexarCommSplit
/// from comm. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nexarConfig_t {
    /// Set by the initialiser.
    pub size: usize,
    /// Set by the initialiser.
    pub magic: c_uint,
    /// Set by the initialiser.
    pub version: c_uint,
    /// 1 (default): calls that create the communicator wait. 0: it is created in the background.
    pub blocking: c_int,
    /// Milliseconds for all ranks to join; NEXAR_INIT_TIMEOUT_MS, 60,000 by default.
    pub initTimeoutMs: c_int,
    /// Milliseconds for one operation; NEXAR_OP_TIMEOUT_MS, 600,000 by default.
    pub opTimeoutMs: c_int,
    /// Milliseconds of silence after which a rank is lost; NEXAR_PEER_TIMEOUT_MS, 5,000 by
    /// default.
    pub peerTimeoutMs: c_int,
    /// 0 or 1. Has no effect: a split always shares connections.
    pub splitShare: c_int,
    /// Name of the communicator in logs. The library copies it. NULL: a number.
    pub name: *const c_char,
}

impl nexarConfig_t {
    /// The value of a field that was not set.
    pub(super) const UNDEF_INT: c_int = c_int::MIN;
}

/// A message, as nexarRecvTagStatus, nexarProbeTag and consumed requests report it. Initialise it
/// with NEXAR_STATUS_INITIALIZER. Later versions may add fields at the end: no byte beyond size is
/// written.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nexarStatus_t {
    /// Set by the initialiser: sizeof(nexarStatus_t). No call changes it.
    pub size: usize,
    /// The rank that has sent the message.
    pub source: c_int,
    /// Its tag.
    pub tag: c_int,
    /// The number of its elements.
    pub count: usize,
    /// The type of its elements.
    pub datatype: DataTypeCode,
}

impl nexarStatus_t {
    /// The size of the first version, which ended with `datatype`, padding included: 32 bytes on
    /// 64-bit targets. So a new field must not be in that padding.
    pub(super) const FIRST_SIZE: usize = (offset_of!(Self, datatype) + size_of::<DataTypeCode>())
        .next_multiple_of(align_of::<Self>());
}

/// When nexarRedOpCreatePreMulSum reads its scalar. Values are NCCL's.
/// cbindgen:rename-all=prefix:nexar
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarResidence {
    /// By each call that uses the operator: host memory when the operation is called, device and
    /// pinned memory in stream order.
    ScalarDevice = 0,
    /// By nexarRedOpCreatePreMulSum. Host memory only.
    ScalarHostImmediate = 1,
}

/// A `nexarScalarResidence_t` as C passes it: any integer.
pub type ResidenceCode = c_int;
/// A `nexarDataType_t` as C passes it: any integer.
pub type DataTypeCode = c_int;
/// A `nexarRedOp_t` as C passes it: any integer.
pub type RedOpCode = c_int;
/// A `nexarResult_t` as C passes it: any integer.
pub type ResultCode = c_int;
