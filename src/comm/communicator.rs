//! A communicator from creation to destruction: its sequence numbers, its failure and its end.
//!
//! Leaves to `run` the execution of operations, to `cuda` the memory of devices, and to the mesh
//! the exchange of calls and faults between ranks. Invariants:
//! - an operation takes its sequence number before any byte of it is sent, and every rank numbers
//!   its operations alike;
//! - after the first failure every operation returns that failure, on every rank;
//! - the mesh is left (`Drop`) only when no operation of the communicator runs in this process.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::{info, warn};

use crate::collective::select::Selection;
use crate::collective::table;
use crate::config::Config;
use crate::error::{Doing, Error, Result};
use crate::rank::RankOf;
use crate::transport::{CallHistory, Demand, Mesh, Waiting};

use super::cuda::{CudaState, DEVICE_POLL, Ending, has_driver};
use super::leave::deliver_faults;
use super::request_set::RequestSet;
use super::run::{LaneQueues, StreamCounts, StreamOrder, of_message, of_straggling, of_timeout};

pub struct Communicator {
    /// The name in the log: that of `Config::name`, or a number.
    pub(super) name: String,
    pub(super) mesh: Mesh,
    pub(super) selection: Selection,
    /// Whether short calls try the fast path.
    pub(super) has_fast_path: bool,
    /// Whether a buffer may be in the memory of a device, so that the driver must be queried first.
    pub(super) queries_driver: bool,
    /// Whether large calls are cut into pieces, because some rank has CUDA devices.
    pub(super) cuts: bool,
    /// The state of this rank's device, once it has one.
    pub(super) cuda: OnceLock<Arc<CudaState>>,
    /// Held by the thread that sets `cuda` in a call.
    pub(super) attaching: Mutex<()>,
    /// The device that the program named for this rank.
    pub(super) wanted_device: OnceLock<i32>,
    pub(super) config: Config,
    pub(super) lanes: LaneQueues,
    pub(super) stream_order: Arc<StreamOrder>,
    /// Messages that no call waited for when they were issued.
    pub(super) requests: RequestSet,
    state: Mutex<CommState>,
    /// Whether the stage of `state` is `Open`, for messages that do not take its lock.
    is_open: AtomicBool,
    /// How many operations have completed.
    completed: AtomicU64,
    /// Whether a thread waits in `drain` until every operation that has begun is completed; `idle`
    /// must then be signalled.
    is_draining: AtomicBool,
    idle: Condvar,
}

pub(super) struct CommState {
    stage: LifeStage,
    pub(super) next_seq: u64,
    /// The calls that have sequence numbers already.
    pub(super) history: CallHistory,
    /// How many operations have begun.
    pub(super) begun: u64,
    /// The stream batches that were submitted.
    pub(super) queued: StreamCounts,
    /// The text of the last error of a call, and whether the communicator had failed by then.
    last_error: Option<(String, bool)>,
}

impl CommState {
    /// Advances the sequence number, for a call that has taken it. `history`: the calls before the
    /// next one.
    #[inline]
    pub(super) fn count(&mut self, history: CallHistory) {
        self.next_seq += 1;
        self.history = history;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LifeStage {
    Open,
    /// No further operations; those that run complete as usual.
    Finalized,
    /// Operations that run complete with an error.
    Aborted,
}

impl Communicator {
    pub(super) fn new(name: &str, mesh: Mesh, config: &Config) -> Result<Arc<Self>> {
        let selection = table::parse(&config.algo)?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            has_fast_path: selection.is_free() && mesh.memory.fast.is_some(),
            queries_driver: has_driver(),
            cuts: mesh.has_cuda.unwrap_or_else(has_driver),
            cuda: OnceLock::new(),
            attaching: Mutex::new(()),
            wanted_device: OnceLock::new(),
            mesh,
            selection,
            config: config.clone(),
            lanes: LaneQueues::default(),
            stream_order: Arc::default(),
            is_open: AtomicBool::new(true),
            requests: RequestSet::default(),
            state: Mutex::new(CommState {
                stage: LifeStage::Open,
                next_seq: 0,
                history: CallHistory::default(),
                begun: 0,
                queued: StreamCounts::default(),
                last_error: None,
            }),
            completed: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            idle: Condvar::new(),
        }))
    }

    /// The settings with which the communicator was created.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn me(&self) -> RankOf {
        self.mesh.me
    }

    /// How a thread waits for an operation of this communicator.
    pub(super) fn waiting(&self, demand: Demand) -> Waiting {
        self.mesh.waiting(demand)
    }

    /// Fails if the communicator accepts no more operations. `call`: for the error text.
    pub(super) fn check_open(&self, state: &CommState, call: &dyn fmt::Display) -> Result<()> {
        match state.stage {
            LifeStage::Open => self.mesh.membership.fault().map_or(Ok(()), Err),
            LifeStage::Finalized => {
                Err(Error::Usage(format!("{call} on a communicator that was finalized")))
            }
            LifeStage::Aborted => Err(Error::Aborted),
        }
    }

    /// Whether a message may begin and complete without a ticket: the communicator is open, and the
    /// message waits for no stream. Its queues know of earlier messages and of a failure. Takes no
    /// lock: the caller keeps other threads from leaving the mesh meanwhile.
    #[inline]
    pub(super) fn accepts_message(&self) -> bool {
        self.is_open.load(Ordering::Acquire) && self.stream_order.is_idle()
    }

    fn enter(&self, state: &mut CommState, stage: LifeStage) {
        state.stage = stage;
        self.is_open.store(stage == LifeStage::Open, Ordering::Release);
    }

    /// Counts a completed operation.
    pub(super) fn ended(&self) {
        self.completed.fetch_add(1, Ordering::SeqCst);
        // Dekker handshake with `drain`: this thread stores `completed`, then reads `is_draining`;
        // the draining thread stores `is_draining`, then reads `completed`.
        if self.is_draining.load(Ordering::SeqCst) {
            drop(self.lock()); // the draining thread has checked before, or waits by now
            self.idle.notify_all();
        }
    }

    /// Begins a running operation, which completes when the guard is dropped.
    pub(super) fn keep_running(self: &Arc<Self>) -> Running {
        self.lock().begun += 1;
        Running(Arc::clone(self))
    }

    /// Fails the communicator on all ranks, because a call of this rank failed. Returns the error
    /// to report to the caller.
    pub(super) fn failed(&self, doing: Doing, cause: Error) -> Error {
        let rank = self.me().rank;
        let fault = self.mesh.membership.fail(cause.during(rank, doing));
        // A fault outside of any operation, such as a lost connection, is reported with the
        // operation that it ended.
        let fault = fault.during(rank, doing);
        warn!(rank = rank.0 as u64, "communicator {}: {rank} failed: {fault}", self.name);
        self.stream_order.dissolve();
        self.as_reported(fault)
    }

    /// The error to report to the caller: `Aborted` after an abort by this process, although the
    /// peers see a fault.
    pub(super) fn as_reported(&self, fault: Error) -> Error {
        if self.is_aborted() { Error::Aborted } else { fault }
    }

    /// The error of an operation that has reached its deadline.
    pub(super) fn timeout(&self, doing: Doing) -> Error {
        let blame = match doing {
            Doing::Collective { seq, .. } => of_timeout(&self.mesh.membership.missing(seq)),
            Doing::Message(call) => of_message(&call),
        };
        Error::Timeout { limit_ms: self.config.op_timeout.as_millis(), blame }
    }

    /// Writes to the log which ranks an operation waits for.
    pub(super) fn report_stragglers(&self, doing: Doing) {
        let (name, rank) = (&self.name, self.me().rank.0 as u64);
        match doing {
            Doing::Collective { seq, call } => {
                let call = call.name().to_ascii_lowercase();
                let blame = of_straggling(&self.mesh.membership.missing(seq));
                warn!(rank, "{call} #{seq} on communicator {name} {blame}");
            }
            Doing::Message(call) => {
                let blame = of_message(&call);
                warn!(rank, "{call} on communicator {name} waits: {blame}");
            }
        }
    }

    /// Accepts no further operations, and waits for the running ones. Fails if the communicator was
    /// finalized before.
    pub fn finalize(&self) -> Result<()> {
        let mut state = self.lock();
        if state.stage == LifeStage::Finalized {
            return Err(Error::Argument("the communicator was finalized before".to_owned()));
        }
        if state.stage == LifeStage::Open {
            self.enter(&mut state, LifeStage::Finalized);
        }
        drop(state);
        self.requests.end(&Self::ended_before_requests());
        self.drain(self.lock());
        Ok(())
    }

    /// Finalizes the communicator, also after a failure or an abort, and leaves the mesh. The
    /// caller gives up its handle.
    pub fn close(&self) {
        let mut state = self.lock();
        if state.stage == LifeStage::Open {
            self.enter(&mut state, LifeStage::Finalized);
        }
        drop(state);
        self.requests.end(&Self::ended_before_requests());
        self.drain(self.lock());
        // Before the memory of the device: a driver may free it only when no stream of this process
        // waits for a rank any more.
        self.mesh.membership.leave();
        if let Some(cuda) = self.cuda.get() {
            cuda.close(Ending::Destroyed);
        }
        info!(
            rank = self.me().rank.0 as u64,
            "communicator {}: {} is closed",
            self.name,
            self.me().rank
        );
    }

    /// Ends running operations at once, here and on all ranks.
    pub fn abort(&self) {
        self.enter(&mut self.lock(), LifeStage::Aborted);
        let rank = self.me().rank;
        self.mesh
            .membership
            .fail(Error::PeerLost { peer: rank, how: "aborted the communicator".to_owned() });
        self.stream_order.dissolve();
        self.requests.end(&Error::Aborted);
        if let Some(cuda) = self.cuda.get() {
            cuda.release();
            cuda.close(Ending::Aborted);
        }
        deliver_faults();
        warn!(rank = rank.0 as u64, "communicator {}: {rank} aborted", self.name);
    }

    /// The error of requests that were live when the communicator was finalized.
    pub(super) fn ended_before_requests() -> Error {
        let what = "the communicator was finalized or destroyed before the request had completed";
        Error::Usage(what.to_owned())
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().stage == LifeStage::Open
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.lock().stage == LifeStage::Aborted
    }

    /// Fails the communicator on all ranks because its device failed in `what`. Returns the error
    /// to report to the caller.
    pub(super) fn fail_on_device(&self, what: &str, cause: &Error) -> Error {
        let rank = self.me().rank;
        let fault = self.mesh.membership.fail(Error::Cuda(format!("{rank}, {what}: {cause}")));
        warn!(rank = rank.0 as u64, "communicator {}: {rank} failed: {fault}", self.name);
        self.stream_order.dissolve();
        self.as_reported(fault)
    }

    /// The failure of the communicator, if it has failed.
    pub fn fault(&self) -> Option<Error> {
        self.mesh.membership.fault()
    }

    /// Stores the text of an error of a call on this communicator, for `last_error`.
    pub fn remember(&self, error: String) {
        let failed = self.fault().is_some();
        self.lock().last_error = Some((error, failed));
    }

    /// The text of the last error of a call on this communicator, or of its failure if that came
    /// later.
    pub fn last_error(&self) -> Option<String> {
        let last = self.lock().last_error.clone();
        match (last, self.fault()) {
            (Some((_, false)) | None, Some(fault)) => Some(fault.to_string()),
            (last, _) => last.map(|(text, _)| text),
        }
    }

    /// Waits until every operation that has begun is completed: each has its own deadline, so this
    /// wait is bounded. A broken device never executes what was enqueued on its streams: the
    /// communicator is then failed, which ends those operations.
    fn drain<'a>(&'a self, mut state: MutexGuard<'a, CommState>) {
        self.is_draining.store(true, Ordering::SeqCst);
        let is_running =
            |state: &mut CommState| self.completed.load(Ordering::SeqCst) < state.begun;
        loop {
            let idle = self.idle.wait_timeout_while(state, DEVICE_POLL, is_running);
            let (before, waited) = idle.unwrap_or_else(PoisonError::into_inner);
            drop(before);
            if !waited.timed_out() {
                return;
            }
            let broken = self.cuda.get().and_then(|cuda| cuda.why_broken());
            if let (Some(cause), None) = (broken, self.fault()) {
                self.fail_on_device("ending, with calls in progress", &cause);
            }
            state = self.lock();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, CommState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as a running operation until dropped: `finalize` and `close` wait for it.
pub(super) struct Running(Arc<Communicator>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended();
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.mesh.membership.leave();
    }
}
