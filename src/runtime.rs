//! The threads that drive the network: the calls that wait for it and, between calls, a thread of
//! the library.
//!
//! Leaves waiting without driving to `parker`. Invariant: some thread drives while a call waits for
//! the network or data is left to send. Data that arrives between calls waits at most two
//! `LINGER`s.
#![expect(
    unsafe_code,
    reason = "signals are blocked in the threads started here, and processors are counted"
)]

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::parker::block_on;

thread_local! {
    /// Not accessible while the thread's locals are being destroyed. Initialized after those of the
    /// runtime, so it is destroyed before them.
    static CAN_DRIVE: Box<()> = Box::new(());
}

/// The network of this process, started at the first use and kept.
///
/// With one thread, the default, a call that waits for its peers drives the network: it polls the
/// sockets on its own thread, so that a message needs no switch of threads. Against a thread that
/// always drives, this halves the time of a 16 MiB all-reduce between two processes on two cores
/// (41 to 22 ms). The thread `nexar-io` drives while no call does. With more threads, those threads
/// always drive.
struct Network {
    runtime: Runtime,
    calls_drive: bool,
    election: Mutex<DriverElection>,
    /// Wakes `nexar-io` when a call has ended with work left.
    work_left: Condvar,
    /// Makes `nexar-io` stop driving, because a call will.
    stop_io: Notify,
    /// Incremented ten times a second while a thread drives.
    pulse: AtomicU64,
}

/// Functions that `nexar-io` calls while the network is stalled. A call drives the network on the
/// program's thread, which a signal handler or a slow page fault may stop.
#[derive(Clone, Copy)]
pub struct Watchdog {
    /// Called every few milliseconds while the network is stalled.
    pub on_stall: fn(),
    /// Called once, when the program exits inside a call or while the network is stalled.
    pub on_exit: fn(),
}

static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();

pub fn set_watchdog(watchdog: Watchdog) {
    let _ = WATCHDOG.set(watchdog);
}

/// The interval of pulses while the network is driven.
const PULSE: Duration = Duration::from_millis(100);
/// Without a pulse for this long, the network is stalled.
const STALLED: Duration = Duration::from_millis(300);

/// An exiting process stops waiting for the network after this many missed pulses.
const MAX_MISSED: u32 = 8;

/// The progress of `on_exit`. Set and read without a lock: see `announce_exit`.
static EXIT: AtomicU8 = AtomicU8::new(EXIT_NOT_WANTED);
const EXIT_NOT_WANTED: u8 = 0;
const EXIT_WANTED: u8 = 1;
const EXIT_BEGUN: u8 = 2;
const EXIT_DONE: u8 = 3;

/// How long an exiting program waits for `on_exit`.
const EXIT_TIMEOUT: Duration = Duration::from_millis(150);

/// Which thread drives the network.
struct DriverElection {
    /// The number of calls that drive, or wait to drive.
    calls: usize,
    io_drives: bool,
    /// A call has ended with data still to be sent.
    work_left: bool,
    last_end: Instant,
    /// The last call took no longer than `SHORT`.
    last_was_short: bool,
}

static NETWORK: Kept<Network> = Kept::empty();

/// The name of each thread that drives the network.
const IO_THREAD: &str = "nexar-io";

/// The prefix of the names of all threads of the library.
pub const THREADS: &str = "nexar-";

/// Starts a thread of the library, with all signals blocked.
pub fn start_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(|| {
        block_signals();
        body();
    });
    started.map_err(|error| Error::System(format!("thread {name} cannot be started: {error}")))
}

/// How long after a call `nexar-io` lets the next call drive before it drives itself.
const LINGER: Duration = Duration::from_millis(5);

/// A call expected to be short does not sleep for this long, because waking an idle processor costs
/// more than a short call (8 bytes: 90 µs asleep, 45 µs awake). A call is expected to be short if
/// the last one was. So ranks that share a processor, and ranks with long latencies, soon sleep at
/// once.
const SHORT: Duration = Duration::from_micros(200);

/// The runtime on which tasks of the network are spawned. Starts the network if necessary.
pub fn io(threads: usize) -> Result<&'static Handle> {
    NETWORK.get_or_try(|| Network::start(threads)).map(|network| network.runtime.handle())
}

/// As `io`, or `None` if the network was never started.
pub fn io_if_started() -> Option<&'static Handle> {
    NETWORK.get().map(|network| network.runtime.handle())
}

/// As `block_on`, and drives the network meanwhile: for a future that waits for the network.
/// `leaves_work`: the network has work left when the future is ready.
pub fn drive<F: Future>(future: F, deadline: Instant, leaves_work: bool) -> Option<F::Output> {
    match NETWORK.get() {
        Some(network) if network.calls_drive => {
            // Inside a runtime, and in a thread that is ending, another thread must drive.
            let outside = Handle::try_current().is_err_and(|error| error.is_missing_context());
            if outside && network.can_drive_here() {
                return network.drive(future, deadline, leaves_work);
            }
            wait(future, deadline)
        }
        _ => wait(future, deadline),
    }
}

/// As `drive`, while another thread drives the network: for a future that may compute for long.
pub fn wait<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    hand_over();
    block_on(future, deadline)
}

/// Makes `nexar-io` drive the network now, without the usual pause after a call.
pub fn hand_over() {
    if let Some(network) = NETWORK.get()
        && network.calls_drive
    {
        network.election().work_left = true;
        network.work_left.notify_one();
    }
}

/// Called when the program exits inside a call (usually in a signal handler) or while the network
/// is stalled. Waits at most `EXIT_TIMEOUT` for another thread to notify the peers. Takes no lock
/// and allocates nothing, since the frames below on the stack may hold any lock.
pub fn announce_exit() {
    if NETWORK.get().is_none() {
        return;
    }
    let deadline = Instant::now() + EXIT_TIMEOUT;
    EXIT.store(EXIT_WANTED, Ordering::Release);
    while EXIT.load(Ordering::Acquire) != EXIT_DONE && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Polls a future on this thread until it is ready. False if the deadline passed first, or if the
/// network has missed `MAX_MISSED` pulses. Pulses are counted instead of timed, because a process
/// that was stopped or starved has missed none.
pub fn wait_while_driven(future: impl Future, deadline: Instant) -> bool {
    let mut future = pin!(future);
    let pulse = || NETWORK.get().map_or(0, |network| network.pulse.load(Ordering::Relaxed));
    let (mut seen, mut missed) = (pulse(), 0);
    while missed < MAX_MISSED && Instant::now() < deadline {
        if block_on(future.as_mut(), deadline.min(Instant::now() + PULSE)).is_some() {
            return true;
        }
        missed = if pulse() == seen { missed + 1 } else { 0 };
        seen = pulse();
    }
    false
}

impl Network {
    fn start(threads: usize) -> Result<Self> {
        let calls_drive = threads == 1;
        let mut builder = match threads {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let builder = builder.worker_threads(threads).thread_name(IO_THREAD).enable_all();
        let built = builder.on_thread_start(block_signals).build();
        let cannot =
            |error| Error::System(format!("the network threads cannot be started: {error}"));
        let runtime = built.map_err(cannot)?;
        if calls_drive {
            start_thread(IO_THREAD, Self::drive_between_calls)?;
        }
        runtime.spawn(Self::beat());
        let election = DriverElection {
            calls: 0,
            io_drives: false,
            work_left: true,
            last_end: Instant::now(),
            last_was_short: false,
        };
        Ok(Self {
            runtime,
            calls_drive,
            election: Mutex::new(election),
            work_left: Condvar::new(),
            stop_io: Notify::new(),
            pulse: AtomicU64::new(0),
        })
    }

    /// The heartbeat: increments the pulse while the network is driven, and handles an exit.
    async fn beat() {
        let network = NETWORK.wait();
        let mut clock = tokio::time::interval(PULSE);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            network.pulse.fetch_add(1, Ordering::Relaxed);
            Self::handle_exit();
        }
    }

    /// Whether the runtime's thread locals still exist on this thread. The first call initializes
    /// them.
    fn can_drive_here(&self) -> bool {
        thread_local! { static IS_FIRST: Cell<bool> = const { Cell::new(true) } }
        if IS_FIRST.try_with(|first| first.replace(false)).unwrap_or(false) {
            self.runtime.handle().block_on(async {});
        }
        CAN_DRIVE.try_with(|_| ()).is_ok()
    }

    fn drive<F: Future>(
        &self,
        future: F,
        deadline: Instant,
        leaves_work: bool,
    ) -> Option<F::Output> {
        struct Driving<'a> {
            network: &'a Network,
            start: Instant,
            leaves_work: bool,
        }
        impl Drop for Driving<'_> {
            fn drop(&mut self) {
                let now = Instant::now();
                let mut election = self.network.election();
                election.calls -= 1;
                election.last_end = now;
                election.last_was_short = now - self.start <= SHORT;
                election.work_left |= self.leaves_work;
                if election.calls == 0 && election.work_left {
                    self.network.work_left.notify_one();
                }
            }
        }
        let start = Instant::now();
        let mut election = self.election();
        election.calls += 1;
        if election.io_drives {
            self.stop_io.notify_one();
        }
        let stays_awake = election.last_was_short && host_is_multiprocessor();
        let drives_alone = election.calls == 1 && !election.io_drives;
        drop(election);
        let _driving = Driving { network: self, start, leaves_work };
        self.runtime.block_on(async {
            let _awake = stays_awake.then(|| Awake::until(start + SHORT));
            let output = tokio::time::timeout_at(deadline.into(), future).await.ok();
            // Lets the connections send what the future has written last, on this thread or on the
            // thread that drives, whose queue runs a new task after those of the connections.
            if drives_alone {
                tokio::task::yield_now().await;
            } else {
                let _ = tokio::spawn(async {}).await;
            }
            output
        })
    }

    /// The body of the thread `nexar-io`.
    fn drive_between_calls() {
        let network = NETWORK.wait();
        let mut seen = (0, Instant::now());
        loop {
            let mut election = network.election();
            while election.calls > 0
                || !(election.work_left || election.last_end.elapsed() >= LINGER)
            {
                let waited = network.work_left.wait_timeout(election, LINGER);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                network.watch(&mut seen);
                election = network.election();
            }
            election.io_drives = true;
            election.work_left = false;
            drop(election);
            network.runtime.block_on(async {
                while network.election().calls == 0 {
                    network.stop_io.notified().await;
                }
            });
            network.election().io_drives = false;
        }
    }

    /// Calls `on_exit` of the watchdog, once, if the program has asked for it.
    fn handle_exit() {
        let take = |from, to| EXIT.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if take(EXIT_WANTED, EXIT_BEGUN).is_ok() {
            if let Some(watchdog) = WATCHDOG.get() {
                (watchdog.on_exit)();
            }
            EXIT.store(EXIT_DONE, Ordering::Release);
        }
    }

    /// Calls `on_stall` of the watchdog if the pulse has not changed for `STALLED`. `seen`: the
    /// last pulse and the time of its change.
    fn watch(&self, seen: &mut (u64, Instant)) {
        let Some(watchdog) = WATCHDOG.get() else { return };
        Self::handle_exit();
        let pulse = self.pulse.load(Ordering::Relaxed);
        if pulse != seen.0 {
            *seen = (pulse, Instant::now());
        } else if seen.1.elapsed() >= STALLED {
            (watchdog.on_stall)();
        }
    }

    fn election(&self) -> MutexGuard<'_, DriverElection> {
        self.election.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that keeps the driving thread from sleeping. It yields to other threads that are ready to
/// run on the processor.
struct Awake(AbortHandle);

impl Awake {
    fn until(end: Instant) -> Self {
        let restless = tokio::spawn(async move {
            while Instant::now() < end {
                std::thread::yield_now();
                tokio::task::yield_now().await;
            }
        });
        Self(restless.abort_handle())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether a peer can run at the same time as this thread. Counts the processors of the host, not
/// those of this process: a rank bound to one processor waits for ranks bound to others.
fn host_is_multiprocessor() -> bool {
    static MORE_THAN_ONE: OnceLock<bool> = OnceLock::new();
    // SAFETY: sysconf only returns a number.
    *MORE_THAN_ONE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } > 1)
}

/// Blocks all signals, which the program's own threads handle.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was just written; a NULL old mask is not written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}
