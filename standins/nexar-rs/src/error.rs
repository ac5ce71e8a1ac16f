//! Errors. The variants are those of the published crate that this one can return; `reason` or
//! `message` has the text of libnexar.

use std::ffi::CStr;
use std::fmt;
use std::ptr::null_mut;

use nexar_capi::capi::version::nexarGetLastError;
use nexar_capi::error::Code;

use crate::types::Rank;

pub type Result<T> = std::result::Result<T, NexarError>;

type Source = Option<Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug)]
pub enum NexarError {
    /// The peer of a message is this rank itself.
    UnknownPeer { rank: Rank },
    /// A buffer or the result of an adapter does not have the length that the call needs.
    BufferSizeMismatch { expected: usize, actual: usize },
    /// A peer or root is not a rank of the communicator.
    InvalidRank { rank: Rank, world_size: u32 },
    /// A communicator could not be created.
    Transport { message: String, source: Source },
    /// An adapter could not move data between device and host.
    DeviceError { message: String, source: Source },
    /// A call failed on this rank. `reason` names the rank that caused it, if another one did.
    CollectiveFailed { operation: &'static str, rank: Rank, reason: String },
}

impl NexarError {
    pub fn transport(message: impl Into<String>) -> Self {
        Self::Transport { message: message.into(), source: None }
    }

    pub fn transport_with_source(
        message: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Transport { message: message.into(), source: Some(Box::new(source)) }
    }

    pub fn device(message: impl Into<String>) -> Self {
        Self::DeviceError { message: message.into(), source: None }
    }

    pub fn device_with_source(
        message: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::DeviceError { message: message.into(), source: Some(Box::new(source)) }
    }
}

impl fmt::Display for NexarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPeer { rank } => {
                write!(f, "rank {rank} cannot exchange messages with itself")
            }
            Self::BufferSizeMismatch { expected, actual } => {
                write!(f, "a buffer has {actual} bytes where the call needs {expected}")
            }
            Self::InvalidRank { rank, world_size } => {
                write!(f, "rank {rank} does not exist: the communicator has {world_size} ranks")
            }
            Self::Transport { message, .. } => f.write_str(message),
            Self::DeviceError { message, .. } => write!(f, "device adapter: {message}"),
            Self::CollectiveFailed { operation, rank, reason } => {
                write!(f, "{operation} failed on rank {rank}: {reason}")
            }
        }
    }
}

impl std::error::Error for NexarError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transport { source, .. } | Self::DeviceError { source, .. } => {
                source.as_deref().map(|source| source as _)
            }
            _ => None,
        }
    }
}

/// The result of a function of libnexar, with the error's text.
pub(crate) fn answer(code: Code) -> std::result::Result<(), String> {
    if code == Code::Success {
        return Ok(());
    }
    // SAFETY: libnexar returns a string that lives until this thread's next call of the function.
    let text = unsafe { CStr::from_ptr(nexarGetLastError(null_mut())) }.to_string_lossy();
    // It begins with the name of the C function, which the program has not called.
    Err(text.split_once(": ").map_or(&*text, |(_, what)| what).to_owned())
}
