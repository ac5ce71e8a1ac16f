//! Groups: calls of one thread that start together.
//!
//! Leaves adding calls to `submit`. Between nexarGroupStart and the outermost nexarGroupEnd,
//! operations are parsed and kept without a sequence number. Invariant: a group in which a call
//! failed is dropped as a whole, before any of its operations is announced to another rank.

use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::comm::{QueuedCreation, Request, SplitRequest, split as comm_split, submit_all};
use crate::error::{Code, Error, Result};

use super::arguments::Out;
use super::boundary::{boundary, refuse};
use super::communicators;
use super::types::nexarComm_t;

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

#[derive(Default)]
pub(super) struct Group {
    /// The number of starts without an end.
    depth: usize,
    /// Communicators to create.
    pub queued: Vec<QueuedCreation>,
    /// Whether the end of the group waits for their creation. The same for all of them.
    pub waits: Option<bool>,
    pub splits: Vec<QueuedSplit>,
    pub requests: Vec<Request>,
    /// The last call that failed, and its error.
    failed: Option<(&'static str, Error)>,
}

/// A split, and the out-parameter for the new communicator.
pub(super) struct QueuedSplit {
    pub request: SplitRequest,
    pub out: Out<nexarComm_t>,
    pub device: Option<c_int>,
}

/// Begins a group of calls of this thread. Groups nest; only the outermost nexarGroupEnd acts.
///
/// Operations inside a group return at once and run at its end; their buffers, streams and
/// communicators must stay valid until then. They may be on any communicators and streams, in any
/// order.
///
/// nexarCommInitRank, nexarCommInitRankConfig (all with the same config.blocking) and
/// nexarCommInitFromEnv write their handles at once, and create the communicators at the end of the
/// group; these cannot be used inside it. nexarCommSplit writes its handle at the end of the group.
/// All other calls act at once.
#[unsafe(no_mangle)]
pub extern "C" fn nexarGroupStart() -> Code {
    boundary("nexarGroupStart", || {
        let started = GROUP.try_with(|group| group.borrow_mut().depth += 1);
        started.map_err(|_| Error::Usage("a thread that is ending cannot begin a group".to_owned()))
    })
}

/// Ends a group. The outermost end, in this order:
///  1. creates the communicators of the group, all at once; with config.blocking == 0 it returns
///     nexarInProgress without waiting for them;
///  2. executes the splits;
///  3. starts all operations before it waits for any, and returns when those on stream NULL have
///     completed and the others are queued on their streams.
///
/// Operations on one communicator are numbered in the order in which they were called, and run
/// concurrently: none may touch a buffer that another writes.
///
/// If a call inside the group returned an error, the end returns that error again (the last, if
/// there are several) and starts nothing; communicators that the group would have created have
/// failed. Otherwise it returns the first failure of a creation, of a split or of an operation on
/// stream NULL. Destroy every handle that was written, also if its creation failed. Without
/// nexarGroupStart it is nexarInvalidUsage.
#[unsafe(no_mangle)]
pub extern "C" fn nexarGroupEnd() -> Code {
    boundary("nexarGroupEnd", || match end()? {
        Some(group) => group.run(),
        None => Ok(()),
    })
}

/// As nexarGroupEnd, but executes no call of the group: for a stand-in whose interface can simulate
/// a group. The outermost end calls `check`.
pub fn simulate_end(function: &'static str, check: impl FnOnce() -> Result<()>) -> Code {
    boundary(function, || {
        let Some(mut group) = end()? else { return Ok(()) };
        if let Some((function, cause)) = group.failed.take() {
            return Err(group.drop_because_of(function, cause));
        }
        group.drop_because_of(function, Error::Usage("the group was only simulated".to_owned()));
        check()
    })
}

/// As `refuse`, for an operation: inside a group, the group fails too.
pub fn refuse_operation(function: &'static str, error: Error) -> Code {
    note_failure(function, &error);
    refuse(function, error)
}

fn end() -> Result<Option<Group>> {
    GROUP.try_with(|group| group.borrow_mut().end()).unwrap_or_else(|_| Ok(None))
}

/// Calls `body` with the group that this thread is inside. `None` if it is inside no group, as is a
/// thread that is ending.
pub(super) fn inside<T>(body: impl FnOnce(&mut Group) -> T) -> Option<T> {
    let output = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        (group.depth > 0).then(|| body(&mut group))
    });
    output.ok().flatten()
}

pub(super) fn is_inside() -> bool {
    GROUP.try_with(|group| group.borrow().depth > 0).unwrap_or(false)
}

/// Records a failure in the group that this thread is inside, if any. Its end will drop the group.
pub(super) fn note_failure(function: &'static str, error: &Error) {
    if !matches!(error, Error::InProgress) {
        inside(|group| group.failed = Some((function, error.clone())));
    }
}

impl Group {
    /// The whole group if this is its outermost end. Fails outside of a group.
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

    /// Drops the group without executing its calls. The communicators that it would have created
    /// fail.
    fn drop_because_of(self, function: &'static str, cause: Error) -> Error {
        let dropped = Error::GroupDropped { function, cause: Arc::new(cause) };
        self.queued.into_iter().for_each(|queued| queued.fail(dropped.clone()));
        dropped
    }

    fn run(mut self) -> Result<()> {
        if let Some((function, cause)) = self.failed.take() {
            return Err(self.drop_because_of(function, cause));
        }
        let creations: Vec<_> = self.queued.iter().map(QueuedCreation::creation).collect();
        self.queued.into_iter().for_each(QueuedCreation::start);
        let mut created = Ok(());
        match self.waits {
            Some(true) => {
                created =
                    creations.iter().map(|one| one.wait().map(drop)).fold(created, Result::and)
            }
            Some(false) => created = Err(Error::InProgress),
            None => {}
        }
        // Executed even if a creation failed, because other ranks may wait for this rank.
        let split = split_all(self.splits);
        let executed = split.and(submit_all(self.requests));
        match created {
            Err(Error::InProgress) => executed.and(created),
            created => created.and(executed),
        }
    }
}

pub(super) fn split_all(splits: Vec<QueuedSplit>) -> Result<()> {
    let (requests, outputs): (Vec<_>, Vec<_>) =
        splits.into_iter().map(|one| (one.request, (one.out, one.device))).unzip();
    let mut result = Ok(());
    for (created, (out, device)) in comm_split(&requests).into_iter().zip(outputs) {
        let handle = |communicator| communicators::insert(communicator, device);
        let set = created.map(|created| out.set(created.map_or(null_mut(), handle)));
        result = result.and(set);
    }
    result
}
