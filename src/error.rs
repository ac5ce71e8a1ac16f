//! All errors of the library: one enum, with one text and one code for each variant.
//!
//! `Code` is also `nexarResult_t` of the header.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::message::{Envelope, MessageCall, RecvCall};
use crate::op::Call;
use crate::rank::Rank;

/// Result of a call. Values are NCCL's.
/// cbindgen:rename-all=prefix:nexar
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Success = 0,
    /// A call of the CUDA driver failed.
    UnhandledCudaError = 1,
    /// Sockets, memory or files of a host failed; the text names the rank if it is another's.
    SystemError = 2,
    /// A defect of nexar. Report it with the text of nexarGetLastError.
    InternalError = 3,
    /// An argument is wrong. Nothing has changed; the communicator still works.
    InvalidArgument = 4,
    /// The call is not allowed here, or other ranks made a different call.
    InvalidUsage = 5,
    /// Another rank was lost, aborted, or violated the protocol.
    RemoteError = 6,
    /// The communicator is being created, or the stream is busy. Not an error.
    InProgress = 7,
    /// An operation, or the creation of a communicator, met its deadline.
    Timeout = 8,
}

impl Code {
    /// cbindgen:ignore
    pub const ALL: [Self; 9] = [
        Self::Success,
        Self::UnhandledCudaError,
        Self::SystemError,
        Self::InternalError,
        Self::InvalidArgument,
        Self::InvalidUsage,
        Self::RemoteError,
        Self::InProgress,
        Self::Timeout,
    ];

    /// The code of a failure that another rank has reported. `None` for `Success` and `InProgress`,
    /// so that a call that failed never returns them, whatever the peer has sent.
    pub fn of_failure(byte: u8) -> Option<Self> {
        let is_failure = |code: &Self| !matches!(code, Self::Success | Self::InProgress);
        Self::ALL.into_iter().filter(is_failure).find(|code| *code as u8 == byte)
    }
}

/// A failure. Clone, because every call of a failed communicator returns the same one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Argument(String),
    #[error("{what} is not a live {kind} handle: it was destroyed, or never was a handle")]
    Handle { what: &'static str, kind: &'static str },
    #[error("{0}")]
    Usage(String),
    #[error(
        "this process was forked after its parent first called nexar; call nexar only in the \
         parent, or fork before its first call"
    )]
    Forked,
    #[error("this process aborted the communicator")]
    Aborted,
    #[error("the group was dropped, because {function} in it failed: {cause}")]
    GroupDropped { function: &'static str, cause: Arc<Self> },
    /// Not a failure: the operation continues.
    #[error("still in progress")]
    InProgress,
    #[error(
        "ranks disagree on call #{seq}: {} called {}, {} called {}",
        .one.0, .one.1, .other.0, .other.1
    )]
    Mismatch { seq: u64, one: (Rank, Call), other: (Rank, Call) },
    #[error(
        "ranks disagree on call #{seq}, {call}: {from} sends {sent} bytes to {to}, \
         which expects {expected}"
    )]
    Lengths { seq: u64, call: Call, from: Rank, to: Rank, sent: usize, expected: usize },
    #[error(
        "{from} called {}, but {to} called {wanted}",
        MessageCall::Send { to: *.to, envelope: *.sent }
    )]
    MessageMismatch { from: Rank, sent: Envelope, to: Rank, wanted: MessageCall },
    /// An error of the receive alone: the message has not been received.
    #[error(
        "{from} called {}, which is too long for {} of {to}: call again with a capacity of at \
         least {}, the message can still be received",
        MessageCall::Send { to: *.to, envelope: *.sent }, MessageCall::Recv(*.call), .sent.count
    )]
    TooLong { from: Rank, sent: Envelope, to: Rank, call: RecvCall },
    /// Found after the call itself was forgotten: only the digests of all earlier calls differ.
    #[error("{one} and {other} disagree on a call before #{}", .seq - 1)]
    CallHistory { seq: u64, one: Rank, other: Rank },
    #[error("{peer} {how}")]
    PeerLost { peer: Rank, how: String },
    #[error("{peer} broke the protocol: {what}")]
    Protocol { peer: Rank, what: String },
    #[error("no result within {limit_ms} ms; {blame}")]
    Timeout { limit_ms: u128, blame: String },
    #[error("{0}")]
    System(String),
    #[error("{0}")]
    Cuda(String),
    #[error("a panic inside nexar: {0}")]
    Panic(String),
    /// A failure that another process has reported, with its text.
    #[error("{text}")]
    Reported { code: Code, text: String },
    /// A failure of `rank` during a call. Every rank reports the first one.
    #[error("{rank}, {doing}: {cause}")]
    During { rank: Rank, doing: Doing, cause: Arc<Self> },
}

/// The call that a rank was executing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The collective call number `seq`.
    Collective {
        seq: u64,
        call: Call,
    },
    Message(MessageCall),
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective { seq, call } => write!(f, "{call} #{seq}"),
            Self::Message(call) => call.fmt(f),
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The peer that was lost or broke the protocol. `None` for other failures.
    pub fn culprit(&self) -> Option<Rank> {
        match self {
            Self::Protocol { peer, .. } | Self::PeerLost { peer, .. } => Some(*peer),
            Self::During { cause, .. } => cause.culprit(),
            _ => None,
        }
    }

    pub fn code(&self) -> Code {
        match self {
            Self::Argument(_) | Self::Handle { .. } | Self::TooLong { .. } => Code::InvalidArgument,
            Self::Usage(_) | Self::Forked | Self::Aborted => Code::InvalidUsage,
            Self::Mismatch { .. } | Self::Lengths { .. } | Self::CallHistory { .. } => {
                Code::InvalidUsage
            }
            Self::MessageMismatch { .. } => Code::InvalidUsage,
            Self::PeerLost { .. } | Self::Protocol { .. } => Code::RemoteError,
            Self::Timeout { .. } => Code::Timeout,
            Self::Cuda(_) => Code::UnhandledCudaError,
            Self::System(_) => Code::SystemError,
            Self::Panic(_) => Code::InternalError,
            Self::Reported { code, .. } => *code,
            Self::During { cause, .. } | Self::GroupDropped { cause, .. } => cause.code(),
            Self::InProgress => Code::InProgress,
        }
    }

    /// Adds the rank and the call in which this happened, unless the error names them already:
    /// a mismatch names both calls, and a reported failure those of the reporting rank.
    pub fn during(self, rank: Rank, doing: Doing) -> Self {
        match self {
            Self::During { .. } | Self::Mismatch { .. } | Self::Lengths { .. } => self,
            Self::MessageMismatch { .. } | Self::CallHistory { .. } | Self::Reported { .. } => self,
            cause => Self::During { rank, doing, cause: Arc::new(cause) },
        }
    }

    /// Whether only the call has failed: nothing has changed, and its communicator works.
    pub fn is_of_call_alone(&self) -> bool {
        matches!(self, Self::TooLong { .. })
    }

    /// Whether the calls of two ranks contradict each other. Several ranks may detect it, each with
    /// a text of its own.
    pub fn is_disagreement(&self) -> bool {
        matches!(
            self,
            Self::Mismatch { .. }
                | Self::Lengths { .. }
                | Self::MessageMismatch { .. }
                | Self::CallHistory { .. }
        )
    }

    /// The error of a caught panic, with the panic's message.
    pub fn from_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panic(text.unwrap_or_else(|| "no message".to_owned()))
    }

    /// A failed allocation, which must not abort the process.
    pub fn out_of_memory(bytes: usize) -> Self {
        Self::System(format!("out of memory: {bytes} bytes cannot be allocated"))
    }
}
