//! A communicator from creation to destruction: numbers its operations, runs them in order,
//! and makes a failure of one the failure of all.
//!
//! Leaves to `Work` what an operation does, to `Batch` who waits for it, and to the mesh how ranks hear
//! of each other. Invariants:
//! - an operation takes its number before anything of it is sent, and every rank counts alike;
//! - after the first failure every operation returns that failure, on every rank;
//! - a communicator is left (`Drop`) only when no operation of it is running here.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, trace, warn};

use crate::bootstrap;
use crate::collective::select::Selection;
use crate::config::Config;
use crate::device;
use crate::error::{Doing, Error, Result};
use crate::message::MessageCall;
use crate::op::Call;
use crate::rank::Place;
use crate::runtime;
use crate::transport::quic;
use crate::transport::{AnyMesh, Mesh, Past};

use super::cuda::{Cuda, DEVICE_LOOK, Ending, release_all};
use super::run::{Backlog, Lanes, Ticket, Work, of_message, of_straggling, of_timeout, run_alone};

/// How often a call that reports a failure looks whether the peers know of it.
pub(super) const DELIVERY_LOOK: Duration = Duration::from_micros(500);

/// A process that ends waits no longer for its last messages to arrive, even if they flow.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Communicator {
    /// What logs call it: the name its user gave it, or a number.
    pub(super) name: String,
    pub(super) mesh: AnyMesh,
    pub(super) selection: Selection,
    /// Whether brief calls are tried.
    pub(super) brief: bool,
    /// Whether buffers may lie on a device, which the driver must be asked first.
    pub(super) asks_driver: bool,
    /// Whether large calls are cut, because some rank has CUDA devices.
    pub(super) cuts: bool,
    /// For the memory of this rank's device, once it has one.
    pub(super) cuda: OnceLock<Arc<Cuda>>,
    /// Held by who gives it one.
    pub(super) attaching: Mutex<()>,
    /// The one that the program named for it.
    pub(super) wanted_device: OnceLock<i32>,
    pub(super) config: Config,
    pub(super) lanes: Lanes,
    /// Messages are begun in the order in which they were issued, whichever thread does it.
    pub(super) messages: Lanes<1>,
    pub(super) backlog: Backlog,
    pub(super) state: Mutex<State>,
    /// How many operations have ended.
    pub(super) ended: AtomicU64,
    /// Whether somebody waits until all that have begun have ended; then `idle` is signalled.
    pub(super) is_draining: AtomicBool,
    pub(super) idle: Condvar,
}

pub(super) struct State {
    pub(super) stage: Stage,
    pub(super) next_seq: u64,
    pub(super) next_message: u64,
    /// The calls that have numbers already.
    pub(super) past: Past,
    /// How many operations have begun.
    pub(super) begun: u64,
    /// Batches of streams that have been given to it.
    pub(super) stream_batches: u64,
    /// The text of the last error of a call, and whether the communicator had failed by then.
    pub(super) last_error: Option<(String, bool)>,
}

impl State {
    /// A call has taken the next number; this is what those after it come behind.
    #[inline]
    pub(super) fn count(&mut self, past: Past) {
        self.next_seq += 1;
        self.past = past;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// No further operations; those running end as usual.
    Finalized,
    /// Running operations end with an error.
    Aborted,
}

/// Lets what finished operations have sent arrive, where a process ends without destroying its
/// communicators. Bounded; short if the process exits inside a call, whose locks this thread may hold.
pub fn leave_all(inside_a_call: bool) {
    if inside_a_call {
        runtime::tell_of_exit();
    } else if let Some(io) = runtime::io_if_started() {
        let leaving = io.spawn(async {
            quic::leave_all().await;
            bootstrap::leave().await;
        });
        if !runtime::wait_while_driven(leaving, Instant::now() + LEAVE_TIMEOUT) {
            runtime::tell_of_exit();
        }
    }
    release_all();
}

/// Waits until the peers know of every failure of this process's communicators, a moment at most:
/// a program may exit as soon as it has seen an error, and must not be taken for the culprit.
pub fn deliver_faults() {
    if quic::is_delivering_faults() {
        // Another thread sends them: one that drives on the program's thread may stand still.
        runtime::hand_over();
        while quic::is_delivering_faults() {
            std::thread::sleep(DELIVERY_LOOK);
        }
    }
}

impl Communicator {
    pub(super) fn new(name: &str, mesh: AnyMesh, config: &Config) -> Result<Arc<Self>> {
        let selection = Selection::parse(&config.algo)?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            brief: selection.is_free() && mesh.one_host().is_some(),
            asks_driver: device::driver().is_some(),
            cuts: match &mesh {
                AnyMesh::Mem(_) => device::driver().is_some(),
                AnyMesh::Quic(mesh) => mesh.has_cuda(),
            },
            cuda: OnceLock::new(),
            attaching: Mutex::new(()),
            wanted_device: OnceLock::new(),
            mesh,
            selection,
            config: config.clone(),
            lanes: Lanes::default(),
            messages: Lanes::default(),
            backlog: Backlog::default(),
            state: Mutex::new(State {
                stage: Stage::Open,
                next_seq: 0,
                next_message: 0,
                past: Past::default(),
                begun: 0,
                stream_batches: 0,
                last_error: None,
            }),
            ended: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            idle: Condvar::new(),
        }))
    }

    /// The settings it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn place(&self) -> Place {
        self.mesh.place()
    }

    /// Runs one operation to its end on the calling thread.
    pub fn run<'a>(self: &Arc<Self>, work: impl Into<Work<'a>>) -> Result<()> {
        run_alone(Arc::clone(self), work.into())
    }

    /// As `run`, but polled by whoever awaits it, without a deadline. Must be polled to its end.
    pub async fn run_async<'a>(self: &Arc<Self>, work: impl Into<Work<'a>>) -> Result<()> {
        let work = work.into();
        let ticket = work.begin(Arc::clone(self))?;
        let result = work.perform(&ticket).await;
        ticket.end(result)
    }

    pub(super) fn is_over_network(&self) -> bool {
        matches!(self.mesh, AnyMesh::Quic(_))
    }

    /// If ranks share memory, whether there are more of them on this host than processors.
    pub(super) fn is_crowded(&self) -> Option<bool> {
        match &self.mesh {
            AnyMesh::Quic(mesh) => mesh.is_crowded(),
            AnyMesh::Mem(_) => None,
        }
    }

    /// Gives the call its number and tells the others of it, unless the communicator takes no more.
    pub(super) fn begin(self: Arc<Self>, call: Call) -> Result<Ticket> {
        let mut state = self.lock();
        self.check_open(&state, &call)?;
        let (seq, past) = (state.next_seq, state.past);
        state.count(past.then(&call));
        self.mesh.announce(seq, call); // under the lock: in the order of the numbers
        state.begun += 1;
        let behind = state.stream_batches;
        drop(state);
        let doing = Doing::Collective { seq, call };
        Ok(Ticket::new(self, doing, past, behind))
    }

    /// Notes that a message is asked for, unless the communicator takes no more.
    pub(super) fn begin_message(self: Arc<Self>, call: MessageCall) -> Result<Ticket> {
        let mut state = self.lock();
        self.check_open(&state, &call)?;
        state.begun += 1;
        let (number, behind) = (state.next_message, state.stream_batches);
        state.next_message += 1;
        drop(state);
        let (name, rank) = (&self.name, self.place().rank);
        trace!(rank = rank.0 as u64, "communicator {name}: {rank}, {call}");
        Ok(Ticket::of_message(self, call, number, behind))
    }

    /// Whether it still takes operations.
    pub(super) fn check_open(&self, state: &State, call: &dyn fmt::Display) -> Result<()> {
        match state.stage {
            Stage::Open => self.mesh.fault().map_or(Ok(()), Err),
            Stage::Finalized => {
                Err(Error::Usage(format!("{call} on a communicator that was finalized")))
            }
            Stage::Aborted => Err(Error::Aborted),
        }
    }

    /// An operation that had begun has ended.
    pub(super) fn ended(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        // Either this sees who drains, or who drains sees that this has ended.
        if self.is_draining.load(Ordering::SeqCst) {
            drop(self.lock()); // who drains has looked before it, or waits by now
            self.idle.notify_all();
        }
    }

    /// Counts as an operation that runs, until it is dropped.
    pub(super) fn keep_running(self: &Arc<Self>) -> Running {
        self.lock().begun += 1;
        Running(Arc::clone(self))
    }

    /// Fails the communicator on all ranks, because a call of this one failed. What its caller is
    /// told.
    pub(super) fn failed(&self, doing: Doing, cause: Error) -> Error {
        let rank = self.place().rank;
        let fault = self.mesh.fail(cause.during(rank, doing));
        // One that no operation saw, such as a lost connection, is told with the one it ended.
        let fault = fault.during(rank, doing);
        warn!(rank = rank.0 as u64, "communicator {}: {rank} failed: {fault}", self.name);
        self.backlog.dissolve();
        self.as_caller_is_told(fault)
    }

    /// The peers see this rank's abort; here it is what this process wanted.
    pub(super) fn as_caller_is_told(&self, fault: Error) -> Error {
        if self.is_aborted() { Error::Aborted } else { fault }
    }

    pub(super) fn timeout(&self, doing: Doing) -> Error {
        let blame = match doing {
            Doing::Collective { seq, .. } => of_timeout(&self.mesh.missing(seq)),
            Doing::Message(call) => of_message(&call),
        };
        Error::Timeout { limit_ms: self.config.op_timeout.as_millis(), blame }
    }

    /// Says in the log who keeps a call waiting.
    pub(super) fn report_stragglers(&self, ticket: &Ticket) {
        let (name, rank) = (&self.name, self.place().rank.0 as u64);
        match ticket.doing {
            Doing::Collective { seq, call } => {
                let call = call.name().to_ascii_lowercase();
                let blame = of_straggling(&self.mesh.missing(seq));
                warn!(rank, "{call} #{seq} on communicator {name} {blame}");
            }
            Doing::Message(call) => {
                let blame = of_message(&call);
                warn!(rank, "{call} on communicator {name} waits: {blame}");
            }
        }
    }

    /// Takes no further operations and waits for those running.
    pub fn finalize(&self) -> Result<()> {
        let mut state = self.lock();
        if state.stage == Stage::Finalized {
            return Err(Error::Argument("the communicator was finalized before".to_owned()));
        }
        if state.stage == Stage::Open {
            state.stage = Stage::Finalized;
        }
        self.drain(state);
        Ok(())
    }

    /// As `finalize`, whatever happened before; the caller gives up its handle.
    pub fn close(&self) {
        let mut state = self.lock();
        if state.stage == Stage::Open {
            state.stage = Stage::Finalized;
        }
        self.drain(state);
        // First: a driver may free memory only when no stream of this process waits for a rank any more.
        self.mesh.leave();
        if let Some(cuda) = self.cuda.get() {
            cuda.close(Ending::Destroyed);
        }
        info!(
            rank = self.place().rank.0 as u64,
            "communicator {}: {} is closed",
            self.name,
            self.place().rank
        );
    }

    /// Ends running operations here and on all ranks at once.
    pub fn abort(&self) {
        self.lock().stage = Stage::Aborted;
        let rank = self.place().rank;
        self.mesh.fail(Error::PeerLost { peer: rank, how: "aborted the communicator".to_owned() });
        self.backlog.dissolve();
        if let Some(cuda) = self.cuda.get() {
            cuda.release();
            cuda.close(Ending::Aborted);
        }
        deliver_faults();
        warn!(rank = rank.0 as u64, "communicator {}: {rank} aborted", self.name);
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().stage == Stage::Open
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.lock().stage == Stage::Aborted
    }

    /// Lets the streams of its device go on with all that was enqueued.
    pub(super) fn release_device(&self) {
        if let Some(cuda) = self.cuda.get() {
            cuda.release();
        }
    }

    /// Whether it takes this operation.
    pub(super) fn check_takes(&self, work: &Work<'_>) -> Result<()> {
        self.check_open(&self.lock(), &work.words())
    }

    /// Fails it on all ranks because of this rank's device, which was to do something.
    pub(super) fn fail_on_device(&self, what: &str, cause: &Error) -> Error {
        let rank = self.place().rank;
        let fault = self.mesh.fail(Error::Cuda(format!("{rank}, {what}: {cause}")));
        warn!(rank = rank.0 as u64, "communicator {}: {rank} failed: {fault}", self.name);
        self.backlog.dissolve();
        self.as_caller_is_told(fault)
    }

    /// The failure of the communicator, if it has failed.
    pub fn fault(&self) -> Option<Error> {
        self.mesh.fault()
    }

    /// Keeps the text of an error of a call on this communicator.
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

    /// Every operation is bounded by its own deadline, and so is this wait. A device that has broken never comes
    /// to what was put on its streams: then nothing is waited for.
    fn drain<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        self.is_draining.store(true, Ordering::SeqCst);
        let is_running = |state: &mut State| self.ended.load(Ordering::SeqCst) < state.begun;
        loop {
            let idle = self.idle.wait_timeout_while(state, DEVICE_LOOK, is_running);
            let (before, waited) = idle.unwrap_or_else(PoisonError::into_inner);
            drop(before);
            if !waited.timed_out() {
                return;
            }
            let broken = self.cuda.get().and_then(|cuda| cuda.why_broken());
            if let (Some(cause), None) = (broken, self.fault()) {
                self.fail_on_device("ending, with calls under way", &cause);
            }
            state = self.lock();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as a running operation until dropped: finalizing and closing wait for it.
pub(super) struct Running(Arc<Communicator>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended();
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.mesh.leave();
    }
}
