//! The errors of a stream of a link.
//!
//! Leaves to `context` which rank is to blame and how the communicator fails.

use quinn::{ConnectionError, ReadError, WriteError};

/// Why a stream can no longer be read or written.
#[derive(Debug)]
pub enum LinkError {
    /// The connection is lost. `Peer` records the reason.
    Lost,
    /// The peer has violated the protocol.
    Protocol(String),
}

impl From<WriteError> for LinkError {
    fn from(_: WriteError) -> Self {
        Self::Lost
    }
}

impl From<ReadError> for LinkError {
    fn from(_: ReadError) -> Self {
        Self::Lost
    }
}

impl From<ConnectionError> for LinkError {
    fn from(_: ConnectionError) -> Self {
        Self::Lost
    }
}
