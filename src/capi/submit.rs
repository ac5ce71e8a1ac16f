//! The door of every operation, split and making of a communicator: done at once, queued on a stream, in
//! the background, or kept for the end of a group.
//!
//! Leaves to `group` what becomes of a group. Invariant: a call that fails inside a group is noted there.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::comm::{Communicator, OnCuda, Queued, Request, SplitRequest, Tried, Work, run_together};
use crate::device::{self, CudaStream, Device};
use crate::error::{Code, Error, Result};

use super::arguments::Out;
use super::boundary::{boundary, remembering, thin_boundary, with_communicator};
use super::group::{Splitting, inside, is_inside, note_failure, split_all};
use super::types::{nexarComm_t, nexarStream_t};
use super::{comm, process, stream};

/// As `boundary`, for an operation, which `body` makes of its arguments: runs it, queues it on its
/// stream or adds it to the group that this thread is inside. One that is brief may end while its communicator
/// is only peeked at: it asks for no lock that another thread keeps, and waits no longer than it looks and, in a
/// crowd, gives way three times.
pub(super) fn operation<W: Into<Work<'static>>>(
    function: &'static str,
    comm: nexarComm_t,
    stream: nexarStream_t,
    body: impl FnOnce(&Communicator) -> Result<W>,
) -> Code {
    thin_boundary(function, || {
        let parsed = comm::peek(comm, |communicator| {
            let mut work = body(communicator)?.into();
            let is_alone = stream.is_null() && !is_inside();
            match if is_alone { communicator.make_briefly(&mut work) } else { Tried::Refused } {
                Tried::Ended => Ok(None),
                tried => Ok(Some((Arc::clone(communicator), work, tried))),
            }
        });
        if let Ok(None) = parsed {
            return Ok(());
        }
        process::uncancelled(|| {
            let result = remembering(function, comm, || match parsed? {
                None => Ok(()),
                Some((_, work, Tried::Begun(begun))) => begun.go_on(work),
                Some((communicator, work, _)) => submit(request(communicator, stream, work)?),
            });
            result.inspect_err(|error| note_failure(function, error))
        })
    })
}

/// As `operation`, for several that are started together.
pub(super) fn operations(
    function: &'static str,
    comm: nexarComm_t,
    stream: nexarStream_t,
    body: impl FnOnce(&Communicator) -> Result<Vec<Work<'static>>>,
) -> Code {
    boundary(function, || {
        let result = with_communicator(function, comm, |communicator| {
            let request = |work| request(Arc::clone(&communicator), stream, work);
            let requests = body(&communicator)?.into_iter().map(request);
            let mut requests = requests.collect::<Result<Vec<_>>>()?;
            on_one_stream(&mut requests)?;
            submit_all(requests)
        });
        result.inspect_err(|error| note_failure(function, error))
    })
}

/// As `boundary`, for a split, which `parse` makes of its arguments: at once, or at the end of the
/// group that this thread is inside.
pub(super) fn splitting(
    function: &'static str,
    comm: nexarComm_t,
    newcomm: *mut nexarComm_t,
    parse: impl FnOnce(&Arc<Communicator>) -> Result<SplitRequest>,
) -> Code {
    boundary(function, || {
        let result = with_communicator(function, comm, |communicator| {
            // SAFETY: the caller passes NULL or a place for a handle, inside a group until its end.
            let out = unsafe { Out::new("newcomm", newcomm) }?;
            let request = parse(&communicator)?;
            let mut splitting = Some(Splitting { request, out, device: comm::device(comm)? });
            inside(|group| {
                group.splits.extend(splitting.take().inspect(|one| one.out.set(null_mut())));
            });
            split_all(splitting.into_iter().collect())
        });
        result.inspect_err(|error| note_failure(function, error))
    })
}

/// As `boundary`, for a call that makes a communicator: whether it waits, and how it is made for the device of
/// this thread. Does so at once, in the background or at the end of the group that this thread is inside.
pub(super) fn initialise<M>(
    function: &'static str,
    comm: *mut nexarComm_t,
    parse: impl FnOnce() -> Result<(bool, M)>,
) -> Code
where
    M: FnOnce(Result<Option<Arc<Device>>>) -> Result<Arc<Communicator>> + Send + 'static,
{
    boundary(function, || {
        let begin = || {
            // SAFETY: the caller passes NULL or a place for a handle.
            let out = unsafe { Out::new("comm", comm) }?;
            let (waits, make) = parse()?;
            // Asked here: the thread that makes it may have another device, or none.
            let device = Device::current().map(|device| device.map(Arc::new));
            make_now_or_later(out, waits, move || make(device))
        };
        begin().inspect_err(|error| note_failure(function, error))
    })
}

fn make_now_or_later<M>(out: Out<nexarComm_t>, waits: bool, make: M) -> Result<()>
where
    M: FnOnce() -> Result<Arc<Communicator>> + Send + 'static,
{
    let is_inside = inside(|_| ()).is_some();
    if waits && !is_inside {
        out.set(comm::insert(make()?, None));
        return Ok(());
    }
    let queued = Queued::new(make);
    if !is_inside {
        out.set(comm::insert_in_making(queued.making()));
        queued.start();
        return Err(Error::InProgress);
    }
    let kept = inside(|group| {
        if group.waits.is_some_and(|others| others != waits) {
            let what = "a group makes either blocking communicators or others, not both";
            return Err(Error::Argument(what.to_owned()));
        }
        group.waits = Some(waits);
        out.set(comm::insert_in_making(queued.making()));
        group.queued.push(queued);
        Ok(())
    });
    kept.expect("this thread is inside a group")
}

/// An operation of a caller: on one of our streams, in the order of one of CUDA's, or neither.
fn request(
    communicator: Arc<Communicator>,
    stream: nexarStream_t,
    work: Work<'static>,
) -> Result<Request<'static>> {
    let ours = stream::find(stream);
    if device::driver().is_none() {
        return Ok(Request { communicator, stream: ours?, cuda: None, work });
    }
    // What was never one of ours can only be one of CUDA's, whose handles nobody can check.
    let is_theirs = ours.is_err() && !stream::may_be_ours(stream);
    let cuda = communicator.on_cuda(&work, is_theirs.then_some(CudaStream(stream)))?;
    let ours = if is_theirs { None } else { ours? };
    if cuda.is_some() && ours.is_some() {
        let what = "memory of a device needs a CUDA stream, not one of nexarStreamCreate";
        return Err(Error::Argument(what.to_owned()));
    }
    Ok(Request { communicator, stream: ours, cuda, work })
}

/// Halves of one call: if one is on a device, and so on CUDA's stream NULL, the others are in its order too.
fn on_one_stream(requests: &mut [Request<'static>]) -> Result<()> {
    let stream = requests.iter().find_map(|one| one.cuda.as_ref()).map(OnCuda::stream);
    for one in requests.iter_mut().filter(|one| one.stream.is_none() && one.cuda.is_none()) {
        if stream.is_some() {
            one.cuda = one.communicator.on_cuda(&one.work, stream)?;
        }
    }
    Ok(())
}

fn submit(request: Request<'static>) -> Result<()> {
    let mut request = Some(request);
    inside(|group| group.requests.extend(request.take()));
    request.map_or(Ok(()), Request::run)
}

fn submit_all(mut requests: Vec<Request<'static>>) -> Result<()> {
    inside(|group| group.requests.append(&mut requests));
    if requests.is_empty() { Ok(()) } else { run_together(requests) }
}
