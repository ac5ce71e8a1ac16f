//! Groups: calls of one thread that are begun together.
//!
//! Between nexarGroupStart and the outermost nexarGroupEnd, operations are parsed and kept without a
//! number. Invariant: a group in which a call failed is dropped as a whole, before anything of it
//! was told to another rank.

use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::comm::{Communicator, Part, Queued, Request, Work, run_together, split as comm_split};
use crate::error::{Code, Error, Result};
use crate::op::Op;

use super::arguments::Out;
use super::boundary::{boundary, with_communicator};
use super::types::{nexarComm_t, nexarStream_t};
use super::{comm, stream};

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

#[derive(Default)]
struct Group {
    /// How many starts have no end yet.
    depth: usize,
    /// Communicators to be made.
    queued: Vec<Queued>,
    /// Whether the end of the group waits until they are made: the same for all of them.
    waits: Option<bool>,
    splits: Vec<Splitting>,
    requests: Vec<Request<'static>>,
    /// The last call that failed, and how.
    failed: Option<(&'static str, Error)>,
}

/// A communicator to be split, and where the handle of the new one goes.
struct Splitting {
    part: Part,
    place: Out<nexarComm_t>,
    device: Option<c_int>,
}

/// Begins a group. Groups nest; only the outermost end acts.
///
/// Until then operations of this thread return at once, and their buffers, streams and
/// communicators must stay as they are. They may use any communicators and streams, in any order.
/// nexarCommInitRank, nexarCommInitRankConfig (all with the same config.blocking) and
/// nexarCommInitFromEnv write their handles at once; the communicators are made at the end of the
/// group and cannot be used before. nexarCommSplit writes its handle at the end of the
/// group, until when there must be a place for it. Every other call acts at once.
#[unsafe(no_mangle)]
pub extern "C" fn nexarGroupStart() -> Code {
    boundary("nexarGroupStart", || {
        let started = GROUP.try_with(|group| group.borrow_mut().depth += 1);
        started.map_err(|_| Error::Usage("the thread is ending".to_owned()))
    })
}

/// Ends a group. The outermost end first makes the communicators of the group, all at once; with
/// config.blocking == 0 it does not wait for them and returns nexarInProgress. Then it splits
/// communicators, as if that had been called before the operations. Then it starts all
/// operations of the group before it waits for any, and returns when those on stream NULL have their
/// results and the others are queued on their streams. Operations on one communicator count as
/// called in the order in which they were, messages only those that are on one stream.
///
/// If an operation, an initialisation or a split inside the group was refused, that error is returned
/// once more (of several, the last), and nothing of the group is begun; the communicators that it
/// would have made have failed. Otherwise the result is the first failure: of an initialisation, of a
/// split, of an operation on stream NULL. A handle that was written must be destroyed, also if its
/// communicator could not be made. Without a nexarGroupStart it is nexarInvalidUsage.
#[unsafe(no_mangle)]
pub extern "C" fn nexarGroupEnd() -> Code {
    boundary("nexarGroupEnd", || {
        let group = GROUP.try_with(|group| group.borrow_mut().end());
        match group.unwrap_or_else(|_| Ok(None))? {
            Some(group) => group.run(),
            None => Ok(()),
        }
    })
}

impl Group {
    /// The whole group, if this was its outermost end.
    fn end(&mut self) -> Result<Option<Self>> {
        match self.depth {
            0 => Err(Error::Usage("this thread is not inside a group".to_owned())),
            1 => Ok(Some(std::mem::take(self))),
            _ => {
                self.depth -= 1;
                Ok(None)
            }
        }
    }

    fn run(self) -> Result<()> {
        if let Some((function, cause)) = self.failed {
            let dropped = Error::GroupDropped { function, cause: Arc::new(cause) };
            self.queued.into_iter().for_each(|queued| queued.fail(dropped.clone()));
            return Err(dropped);
        }
        let making: Vec<_> = self.queued.iter().map(Queued::making).collect();
        self.queued.into_iter().for_each(Queued::start);
        let mut made = Ok(());
        match self.waits {
            Some(true) => {
                made = making.iter().map(|one| one.wait().map(drop)).fold(made, Result::and)
            }
            Some(false) => made = Err(Error::InProgress),
            None => {}
        }
        // Others may wait for this rank, also where nothing could be made.
        let split = split_all(self.splits);
        let ran = split.and(run_together(self.requests));
        match made {
            Err(Error::InProgress) => ran.and(made),
            made => made.and(ran),
        }
    }
}

/// As `boundary`, for an operation, which `body` makes of its arguments: runs it, queues it on its
/// stream or adds it to the group that this thread is inside.
pub(super) fn operation(
    function: &'static str,
    comm: nexarComm_t,
    stream: nexarStream_t,
    body: impl FnOnce(&Communicator) -> Result<Op<'static>>,
) -> Code {
    operations(function, comm, stream, |communicator| Ok(vec![body(communicator)?.into()]))
}

/// As `operation`, for several that are started together, or messages.
pub(super) fn operations(
    function: &'static str,
    comm: nexarComm_t,
    stream: nexarStream_t,
    body: impl FnOnce(&Communicator) -> Result<Vec<Work<'static>>>,
) -> Code {
    boundary(function, || {
        let result = with_communicator(function, comm, |communicator| {
            let stream = stream::find(stream)?;
            let request = |work| {
                let (communicator, stream) = (Arc::clone(communicator), stream.clone());
                Request { communicator, stream, work }
            };
            submit(body(communicator)?.into_iter().map(request).collect())
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
    parse: impl FnOnce(&Arc<Communicator>) -> Result<Part>,
) -> Code {
    boundary(function, || {
        let result = with_communicator(function, comm, |communicator| {
            // SAFETY: the caller passes NULL or a place for a handle, inside a group until its end.
            let place = unsafe { Out::new("newcomm", newcomm) }?;
            let part = parse(communicator)?;
            let mut splitting = Some(Splitting { part, place, device: comm::device(comm)? });
            // A thread that is ending is inside no group.
            let _ = GROUP.try_with(|group| {
                let mut group = group.borrow_mut();
                if group.depth > 0 {
                    group.splits.extend(splitting.take().inspect(|one| one.place.set(null_mut())));
                }
            });
            split_all(splitting.into_iter().collect())
        });
        result.inspect_err(|error| note_failure(function, error))
    })
}

fn split_all(splits: Vec<Splitting>) -> Result<()> {
    let (parts, answers): (Vec<_>, Vec<_>) =
        splits.into_iter().map(|one| (one.part, (one.place, one.device))).unzip();
    let mut result = Ok(());
    for (made, (place, device)) in comm_split(&parts).into_iter().zip(answers) {
        let handle = |communicator| comm::insert(communicator, device);
        let set = made.map(|made| place.set(made.map_or(null_mut(), handle)));
        result = result.and(set);
    }
    result
}

/// As `boundary`, for a call that makes a communicator: whether it waits, and how it is made. Does so
/// at once, in the background or at the end of the group that this thread is inside.
pub(super) fn initialise<M>(
    function: &'static str,
    comm: *mut nexarComm_t,
    parse: impl FnOnce() -> Result<(bool, M)>,
) -> Code
where
    M: FnOnce() -> Result<Arc<Communicator>> + Send + 'static,
{
    boundary(function, || {
        let begin = || {
            // SAFETY: the caller passes NULL or a place for a handle.
            let place = unsafe { Out::new("comm", comm) }?;
            let (waits, make) = parse()?;
            make_now_or_later(place, waits, make)
        };
        begin().inspect_err(|error| note_failure(function, error))
    })
}

fn make_now_or_later<M>(place: Out<nexarComm_t>, waits: bool, make: M) -> Result<()>
where
    M: FnOnce() -> Result<Arc<Communicator>> + Send + 'static,
{
    let is_inside = GROUP.try_with(|group| group.borrow().depth > 0).unwrap_or(false);
    if waits && !is_inside {
        place.set(comm::insert(make()?, None));
        return Ok(());
    }
    let queued = Queued::new(make);
    if !is_inside {
        place.set(comm::insert_in_making(queued.making()));
        queued.start();
        return Err(Error::InProgress);
    }
    GROUP.with_borrow_mut(|group| {
        if group.waits.is_some_and(|others| others != waits) {
            let what = "a group makes either blocking communicators or others, not both";
            return Err(Error::Argument(what.to_owned()));
        }
        group.waits = Some(waits);
        place.set(comm::insert_in_making(queued.making()));
        group.queued.push(queued);
        Ok(())
    })
}

fn submit(mut requests: Vec<Request<'static>>) -> Result<()> {
    // A thread that is ending is inside no group.
    let _ = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        if group.depth > 0 {
            group.requests.append(&mut requests);
        }
    });
    match requests.len() {
        0 => Ok(()),
        1 => requests.remove(0).run(),
        _ => run_together(requests),
    }
}

fn note_failure(function: &'static str, error: &Error) {
    if matches!(error, Error::InProgress) {
        return;
    }
    let _ = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        if group.depth > 0 {
            group.failed = Some((function, error.clone()));
        }
    });
}
