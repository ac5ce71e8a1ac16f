//! The entry of every operation, split and creation of a communicator. They are executed at once,
//! in the background, on a stream, or at the end of a group.
//!
//! Leaves to `comm::submit` how an operation is executed, and to `group` the end of a group.
//! Invariant: a call that fails inside a group is recorded in the group.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::comm::{
    self, Communicator, CurrentDevice, FastPath, QueuedCreation, Request, SplitRequest,
    TryFastPath, Work, current_device, request_at_once, share_cuda_stream, try_at_once,
    try_messages_at_once,
};
use crate::error::{Code, Error, Result};

use super::arguments::Out;
use super::boundary::{boundary, recording, thin_boundary, with_communicator};
use super::group::{QueuedSplit, inside, is_inside, note_failure, split_all};
use super::types::{nexarComm_t, nexarStream_t};
use super::{communicators, process, stream};

/// The boundary of an operation, which `body` parses from its arguments: executes it, queues it on
/// its stream or adds it to the group that this thread is inside. The fast path completes inside
/// `peek`, under the lock of the handle table: it takes no lock that another thread keeps, and
/// waits at most for the spin limit and, with more ranks than processors, for three yields.
pub(super) fn operation<W: Into<Work<'static>> + TryFastPath>(
    function: &'static str,
    comm: nexarComm_t,
    stream: nexarStream_t,
    body: impl FnOnce(&Communicator) -> Result<W>,
) -> Code {
    thin_boundary(function, || {
        let parsed = communicators::peek(comm, |communicator| {
            let mut work = body(communicator)?;
            let not_eligible = FastPath::NotEligible;
            let tried = match (stream.is_null(), is_inside()) {
                (true, false) => try_at_once(communicator, &mut work),
                (true, true) => match request_at_once(communicator, work) {
                    Ok(request) => {
                        inside(|group| group.requests.push(request));
                        return Ok(None);
                    }
                    Err(same) => {
                        work = same;
                        not_eligible
                    }
                },
                (false, _) => not_eligible,
            };
            match tried {
                FastPath::Done => Ok(None),
                tried => Ok(Some((Arc::clone(communicator), work, tried))),
            }
        });
        if let Ok(None) = parsed {
            return Ok(());
        }
        process::without_cancellation(|| {
            let result = recording(function, comm, || match parsed? {
                None => Ok(()),
                Some((_, work, FastPath::Pending(pending))) => pending.resume(work.into()),
                Some((communicator, work, _)) => {
                    submit(request(communicator, stream, work.into())?)
                }
            });
            result.inspect_err(|error| note_failure(function, error))
        })
    })
}

/// The boundary of several messages that begin together. As in `operation`, short ones complete
/// inside `peek`: each receive waits at most for the spin limit, and the sends together for a few
/// hundred polls.
pub(super) fn messages<const N: usize>(
    function: &'static str,
    comm: nexarComm_t,
    stream: nexarStream_t,
    body: impl FnOnce(&Communicator) -> Result<[Work<'static>; N]>,
) -> Code {
    thin_boundary(function, || {
        let parsed = communicators::peek(comm, |communicator| {
            let all = body(communicator)?;
            let is_alone = stream.is_null() && !is_inside();
            let left = if is_alone { try_messages_at_once(communicator, all) } else { all.into() };
            Ok((!left.is_empty()).then(|| (Arc::clone(communicator), left)))
        });
        if let Ok(None) = parsed {
            return Ok(());
        }
        process::without_cancellation(|| {
            let result = recording(function, comm, || {
                let Some((communicator, left)) = parsed? else { return Ok(()) };
                let request = |work| request(Arc::clone(&communicator), stream, work);
                let mut requests = left.into_iter().map(request).collect::<Result<Vec<_>>>()?;
                share_cuda_stream(&mut requests)?;
                submit_all(requests)
            });
            result.inspect_err(|error| note_failure(function, error))
        })
    })
}

/// The boundary of an operation that completes in the call, and so cannot be part of a group.
pub(super) fn outside_groups(
    function: &'static str,
    comm: nexarComm_t,
    body: impl FnOnce(Arc<Communicator>) -> Result<()>,
) -> Code {
    boundary(function, || {
        let result = with_communicator(function, comm, |communicator| {
            refuse_in_group()?;
            body(communicator)
        });
        result.inspect_err(|error| note_failure(function, error))
    })
}

/// Fails if this thread is inside a group.
pub(super) fn refuse_in_group() -> Result<()> {
    if is_inside() {
        let what = "called inside a group, of which it cannot be a part: it acts in the call";
        return Err(Error::Usage(what.to_owned()));
    }
    Ok(())
}

/// The boundary of a split, which `parse` parses from its arguments: executed at once, or at the
/// end of the group that this thread is inside.
pub(super) fn splitting(
    function: &'static str,
    comm: nexarComm_t,
    newcomm: *mut nexarComm_t,
    parse: impl FnOnce(&Arc<Communicator>) -> Result<SplitRequest>,
) -> Code {
    boundary(function, || {
        let result = with_communicator(function, comm, |communicator| {
            // SAFETY: the caller passes NULL or a writable pointer, in a group valid until its end.
            let out = unsafe { Out::new("newcomm", newcomm) }?;
            let request = parse(&communicator)?;
            let mut splitting =
                Some(QueuedSplit { request, out, device: communicators::device(comm)? });
            inside(|group| {
                group.splits.extend(splitting.take().inspect(|one| one.out.set(null_mut())));
            });
            split_all(splitting.into_iter().collect())
        });
        result.inspect_err(|error| note_failure(function, error))
    })
}

/// The boundary of a call that creates a communicator. `parse` returns whether the call waits, and
/// how the communicator is created for the device of this thread: at once, in the background or at
/// the end of the group that this thread is inside.
pub(super) fn initialise<M>(
    function: &'static str,
    comm: *mut nexarComm_t,
    parse: impl FnOnce() -> Result<(bool, M)>,
) -> Code
where
    M: FnOnce(CurrentDevice) -> Result<Arc<Communicator>> + Send + 'static,
{
    boundary(function, || {
        let begin = || {
            // SAFETY: the caller passes NULL or a pointer to a handle.
            let out = unsafe { Out::new("comm", comm) }?;
            let (waits, create) = parse()?;
            // Read on this thread: the thread that creates the communicator may have another
            // device.
            let device = current_device();
            create_now_or_later(out, waits, move || create(device))
        };
        begin().inspect_err(|error| note_failure(function, error))
    })
}

fn create_now_or_later<M>(out: Out<nexarComm_t>, waits: bool, create: M) -> Result<()>
where
    M: FnOnce() -> Result<Arc<Communicator>> + Send + 'static,
{
    let is_inside = inside(|_| ()).is_some();
    if waits && !is_inside {
        out.set(communicators::insert(create()?, None));
        return Ok(());
    }
    let queued = QueuedCreation::new(create);
    if !is_inside {
        out.set(communicators::insert_in_creation(queued.creation()));
        queued.start();
        return Err(Error::InProgress);
    }
    let kept = inside(|group| {
        if group.waits.is_some_and(|others| others != waits) {
            let what = "config.blocking must be the same for all communicators of a group";
            return Err(Error::Argument(what.to_owned()));
        }
        group.waits = Some(waits);
        out.set(communicators::insert_in_creation(queued.creation()));
        group.queued.push(queued);
        Ok(())
    });
    kept.expect("this thread is inside a group")
}

/// A request for an operation on the stream of a handle.
fn request(
    communicator: Arc<Communicator>,
    stream: nexarStream_t,
    work: Work<'static>,
) -> Result<Request> {
    let ours = stream::find(stream);
    let is_foreign = ours.is_err() && !stream::may_be_ours(stream);
    comm::request(communicator, work, ours, is_foreign.then_some(stream))
}

fn submit(request: Request) -> Result<()> {
    let mut request = Some(request);
    inside(|group| group.requests.extend(request.take()));
    request.map_or(Ok(()), comm::submit)
}

fn submit_all(mut requests: Vec<Request>) -> Result<()> {
    inside(|group| group.requests.append(&mut requests));
    if requests.is_empty() { Ok(()) } else { comm::submit_all(requests) }
}
