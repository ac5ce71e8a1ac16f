//! An operation that a caller has submitted and that has no sequence number yet.
//!
//! Leaves to `submit` how it is executed. Invariant: a request has one destination.

use std::sync::Arc;

use super::Communicator;
use super::cuda::OnCuda;
use super::run::{HostRequest, Stream, Work};

pub struct Request {
    pub communicator: Arc<Communicator>,
    pub work: Work<'static>,
    pub destination: Destination,
}

/// Where a request is executed, and what the caller waits for.
pub enum Destination {
    /// On the caller's thread, which waits for its completion.
    Caller,
    /// On the thread of a host stream.
    Stream(Arc<Stream>),
    /// In the order of a CUDA stream.
    Cuda(OnCuda),
}

impl Request {
    pub fn is_on_cuda(&self) -> bool {
        matches!(self.destination, Destination::Cuda(_))
    }

    /// The request as threads of this process execute it, where its buffers are in host memory; on
    /// a CUDA stream, also what the device has to do.
    pub(super) fn into_host(self) -> (HostRequest, Option<OnCuda>) {
        let Self { communicator, work, destination } = self;
        let (stream, cuda) = match destination {
            Destination::Caller => (None, None),
            Destination::Stream(stream) => (Some(stream), None),
            Destination::Cuda(on) => (None, Some(on)),
        };
        let is_for_caller = stream.is_none() && cuda.is_none();
        (HostRequest { communicator, stream, is_for_caller, work }, cuda)
    }
}
