//! Chooses the path of an operation: the fast path, a batch on threads of this process, or a CUDA
//! stream.
//!
//! Only here the paths of calls on host memory and of calls on device memory diverge. Leaves the
//! execution to `fast_path`, `run` and `cuda`. Invariant: a call tries the fast path at most once,
//! and only when its buffers are known to be host memory.

use std::ffi::c_void;
use std::sync::Arc;

use tracing::{Level, enabled};

use crate::error::{Error, Result};

use super::Communicator;
use super::cuda::{self, CudaStream};
use super::fast_path::{FastPath, TryFastPath};
use super::request::{Destination, Request};
use super::run::{Stream, Work, run_alone, run_batch};

/// Tries the fast path for a call that is on no stream and in no group, before a `Request` is
/// created. Does nothing if a driver is loaded: the driver must first be queried for the kind of
/// memory, which may block, so `submit` tries later.
#[inline(always)]
pub fn try_at_once(communicator: &Arc<Communicator>, work: &mut impl TryFastPath) -> FastPath {
    if communicator.queries_driver || enabled!(Level::TRACE) {
        FastPath::NotEligible
    } else {
        work.try_on(communicator)
    }
}

/// As `try_at_once`, for messages that begin together. Returns those that have not completed.
#[inline]
pub fn try_messages_at_once<const N: usize>(
    communicator: &Communicator,
    mut messages: [Work<'static>; N],
) -> Vec<Work<'static>> {
    if communicator.queries_driver || enabled!(Level::TRACE) {
        return messages.into();
    }
    let completed = communicator.try_messages(&mut messages, |message| message);
    completed.left(messages, |message| message)
}

/// The request of an operation that is on no stream, to be added to a group. `Err`: the operation,
/// because the driver must be queried for the kind of its memory.
#[inline]
pub fn request_at_once<W: Into<Work<'static>>>(
    communicator: &Arc<Communicator>,
    work: W,
) -> std::result::Result<Request, W> {
    if communicator.queries_driver {
        return Err(work);
    }
    let (communicator, work) = (Arc::clone(communicator), work.into());
    Ok(Request { communicator, work, destination: Destination::Caller })
}

/// Creates the request of an operation. `stream`: the host stream that the caller's handle names,
/// none for NULL. `foreign`: that handle, if it was never the handle of a host stream.
pub fn request(
    communicator: Arc<Communicator>,
    work: Work<'static>,
    stream: Result<Option<Arc<Stream>>>,
    foreign: Option<*mut c_void>,
) -> Result<Request> {
    if !communicator.queries_driver {
        let destination = stream?.map_or(Destination::Caller, Destination::Stream);
        return Ok(Request { communicator, work, destination });
    }
    // A foreign handle can only be a CUDA stream. CUDA has no way to validate such a handle.
    let cuda = communicator.on_cuda(&work, foreign.map(CudaStream))?;
    let stream = if foreign.is_some() { None } else { stream? };
    let destination = match (cuda, stream) {
        (None, None) => Destination::Caller,
        (None, Some(stream)) => Destination::Stream(stream),
        (Some(on), None) => Destination::Cuda(on),
        (Some(_), Some(_)) => {
            let what = "memory of a device needs a CUDA stream, not one of nexarStreamCreate";
            return Err(Error::Argument(what.to_owned()));
        }
    };
    Ok(Request { communicator, work, destination })
}

/// Moves operations of one call to its CUDA stream: if one operation is on a CUDA stream, those
/// that the caller would wait for are enqueued there too.
pub fn share_cuda_stream(requests: &mut [Request]) -> Result<()> {
    let stream = requests.iter().find_map(|one| match &one.destination {
        Destination::Cuda(on) => Some(on.stream()),
        Destination::Caller | Destination::Stream(_) => None,
    });
    if stream.is_none() {
        return Ok(());
    }
    for one in requests.iter_mut() {
        if let Destination::Caller = one.destination
            && let Some(on) = one.communicator.on_cuda(&one.work, stream)?
        {
            one.destination = Destination::Cuda(on);
        }
    }
    Ok(())
}

/// Executes an operation, or queues it on its stream.
pub fn submit(request: Request) -> Result<()> {
    let Destination::Caller = request.destination else { return submit_all(vec![request]) };
    let Request { communicator, mut work, .. } = request;
    // Without a driver, `try_at_once` has tried already.
    let tried = if communicator.queries_driver && !enabled!(Level::TRACE) {
        work.try_on(&communicator)
    } else {
        FastPath::NotEligible
    };
    match tried {
        FastPath::Done => Ok(()),
        FastPath::Pending(pending) => pending.resume(work),
        FastPath::NotEligible => run_alone(communicator, work),
    }
}

/// Gives all requests their sequence numbers in this order, starts them all, and waits for those
/// that are on no stream. Returns the first error of a start, else the first of those completed
/// here.
pub fn submit_all(requests: Vec<Request>) -> Result<()> {
    if requests.iter().any(Request::is_on_cuda) {
        return cuda::enqueue_all(requests);
    }
    let left = complete_at_once(requests);
    run_batch(left.into_iter().map(|request| request.into_host().0).collect())
}

/// Completes those of the requests that need no ticket, if all are messages of one communicator
/// that the caller waits for. Returns the others.
fn complete_at_once(mut requests: Vec<Request>) -> Vec<Request> {
    let Some(first) = requests.first() else { return requests };
    let communicator = Arc::clone(&first.communicator);
    let is_eligible = requests.iter().all(|request| {
        matches!(request.destination, Destination::Caller)
            && matches!(request.work, Work::Send(_) | Work::Recv(_))
            && Arc::ptr_eq(&request.communicator, &communicator)
    });
    if !is_eligible || enabled!(Level::TRACE) {
        return requests;
    }
    // Another thread may end the communicator meanwhile, and must wait.
    let _running = communicator.keep_running();
    let completed = communicator.try_messages(&mut requests, |request| &mut request.work);
    completed.left(requests, |request| &request.work)
}

#[cfg(feature = "testing")]
impl Communicator {
    /// Executes one operation on host memory on the calling thread.
    pub fn run<'a>(self: &Arc<Self>, work: impl Into<Work<'a>>) -> Result<()> {
        run_alone(Arc::clone(self), work.into())
    }

    /// Executes one operation on host memory as a future without a deadline. It must be polled to
    /// completion.
    pub async fn run_async<'a>(self: &Arc<Self>, work: impl Into<Work<'a>>) -> Result<()> {
        let work = work.into();
        let ticket = work.begin(Arc::clone(self))?;
        let result = work.perform(&ticket).await;
        ticket.end(result)
    }
}
