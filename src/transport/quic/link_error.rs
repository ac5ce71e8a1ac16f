//! What can go wrong on a stream of a link.
//!
//! Leaves to `context` which rank is to blame and how the communicator fails.

use quinn::{ConnectionError, ReadError, WriteError};

/// Why a stream cannot be read or written any more.
#[derive(Debug)]
pub enum LinkError {
    /// The connection is gone. The end of the peer says why.
    Lost,
    /// The peer has sent what no nexar sends.
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
