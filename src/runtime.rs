//! The threads that drive the network: those of calls that wait for it, and one of ours between
//! them.
//!
//! Leaves to `parker` how a thread waits that drives nothing. Invariant: somebody drives while
//! there is something to send or to receive.
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
    /// Gone when the thread's variables are being destroyed. Made after those of the runtime, so
    /// that it goes before them.
    static CAN_DRIVE: Box<()> = Box::new(());
}

/// The network of this process, started at first need and kept.
///
/// With one thread, the default, whoever waits for the network drives it: a call that waits for its
/// peers runs the sockets on its own thread, so that a message needs no hop between threads. The
/// thread `nexar-io` drives it while no call does. With more threads, they drive it always.
struct Network {
    runtime: Runtime,
    calls_drive: bool,
    election: Mutex<DriverElection>,
    /// Wakes `nexar-io` when a call has left work behind.
    left_work: Condvar,
    /// Makes `nexar-io` let go of the wheel.
    wanted: Notify,
    /// Grows ten times a second while somebody drives.
    pulse: AtomicU64,
}

/// What speaks for this process while its network stands still. A call drives the network on the
/// program's thread, which the program may stop: in a signal handler, on a page that takes long to
/// come. Then `nexar-io` calls these.
#[derive(Clone, Copy)]
pub struct Watchdog {
    /// Called every few milliseconds while nothing drives.
    pub on_stall: fn(),
    /// Called once, when the program exits inside a call, or while nothing drives.
    pub on_exit: fn(),
}

static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();

pub fn set_watchdog(watchdog: Watchdog) {
    let _ = WATCHDOG.set(watchdog);
}

/// How often the network shows that it is driven, and after how long without that it stands still.
const PULSE: Duration = Duration::from_millis(100);
const STALLED: Duration = Duration::from_millis(300);

/// Pulses that a process which exits waits for in vain before it stops waiting for the network.
const MOST_MISSED: u32 = 8;

/// How far `on_exit` is. Set and read without a lock: see `tell_of_exit`.
static EXIT: AtomicU8 = AtomicU8::new(EXIT_NOT_WANTED);
const EXIT_NOT_WANTED: u8 = 0;
const EXIT_WANTED: u8 = 1;
const EXIT_BEGUN: u8 = 2;
const EXIT_DONE: u8 = 3;

/// How long a program that exits waits for it.
const EXIT_PATIENCE: Duration = Duration::from_millis(150);

/// Which thread drives the network.
struct DriverElection {
    calls: usize,
    io_drives: bool,
    /// A call has ended with data that is still to be sent.
    work_left: bool,
    last_end: Instant,
    /// The last call took no longer than `SHORT`.
    last_was_short: bool,
}

static NETWORK: Kept<Network> = Kept::unmade();

/// The name of every thread of the network.
const IO_THREAD: &str = "nexar-io";

/// How the name of every thread of ours begins.
pub const THREADS: &str = "nexar-";

/// Starts a thread of ours.
pub fn start_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(|| {
        block_signals();
        body();
    });
    started.map_err(|error| Error::System(format!("threads cannot be started: {error}")))
}

/// How long after a call `nexar-io` waits for the next one to drive.
const LINGER: Duration = Duration::from_millis(5);

/// A call that is expected to be no longer than this stays awake so long: waking a processor that
/// sleeps costs more than a short call. Expected is what the last call was, so that ranks that
/// share a processor, and those far apart, soon stop.
const SHORT: Duration = Duration::from_micros(200);

/// The runtime to start tasks of the network in.
pub fn io(threads: usize) -> Result<&'static Handle> {
    NETWORK.get_or_try(|| Network::start(threads)).map(|network| network.runtime.handle())
}

/// The same, if it was ever needed.
pub fn io_if_started() -> Option<&'static Handle> {
    NETWORK.get().map(|network| network.runtime.handle())
}

/// As `block_on`, for a future that waits for the network, which it drives meanwhile.
/// `leaves_work`: the network will have something to do afterwards.
pub fn drive<F: Future>(future: F, deadline: Instant, leaves_work: bool) -> Option<F::Output> {
    match NETWORK.get() {
        Some(network) if network.calls_drive => {
            // Inside a runtime, or in a thread that is ending, another thread must drive.
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

/// Has another thread drive the network, without the usual pause after a call.
pub fn hand_over() {
    if let Some(network) = NETWORK.get()
        && network.calls_drive
    {
        network.election().work_left = true;
        network.left_work.notify_one();
    }
}

/// The program exits inside a call, in a signal handler as a rule, or while nothing drives. Waits a
/// moment while another thread tells the peers. Takes no lock and no memory, since the frames below
/// may hold any.
pub fn tell_of_exit() {
    if NETWORK.get().is_none() {
        return;
    }
    let deadline = Instant::now() + EXIT_PATIENCE;
    EXIT.store(EXIT_WANTED, Ordering::Release);
    while EXIT.load(Ordering::Acquire) != EXIT_DONE && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Polls a future on this thread until it ends. Gives up at the deadline, and when it has waited
/// for several pulses of the network in vain: then false. They are counted rather than timed: a
/// process that was stopped or starved has missed none.
pub fn wait_while_driven(future: impl Future, deadline: Instant) -> bool {
    let mut future = pin!(future);
    let pulse = || NETWORK.get().map_or(0, |network| network.pulse.load(Ordering::Relaxed));
    let (mut seen, mut missed) = (pulse(), 0);
    while missed < MOST_MISSED && Instant::now() < deadline {
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
        let cannot = |error| Error::System(format!("the network cannot be started: {error}"));
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
            left_work: Condvar::new(),
            wanted: Notify::new(),
            pulse: AtomicU64::new(0),
        })
    }

    /// Shows that the network is driven, and looks after an exit.
    async fn beat() {
        let network = NETWORK.wait();
        let mut clock = tokio::time::interval(PULSE);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            network.pulse.fetch_add(1, Ordering::Relaxed);
            Self::heed_exit();
        }
    }

    /// Whether this thread still has all that the runtime keeps in it. The first time, makes the
    /// runtime put it there.
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
                    self.network.left_work.notify_one();
                }
            }
        }
        let start = Instant::now();
        let mut election = self.election();
        election.calls += 1;
        if election.io_drives {
            self.wanted.notify_one();
        }
        let stays_awake = election.last_was_short && host_is_multiprocessor();
        let drives_alone = election.calls == 1 && !election.io_drives;
        drop(election);
        let _driving = Driving { network: self, start, leaves_work };
        self.runtime.block_on(async {
            let _awake = stays_awake.then(|| Awake::until(start + SHORT));
            let output = tokio::time::timeout_at(deadline.into(), future).await.ok();
            // Lets the connections send what the future has written last, on this thread or on the
            // one that drives: there, a new task comes behind theirs.
            if drives_alone {
                tokio::task::yield_now().await;
            } else {
                let _ = tokio::spawn(async {}).await;
            }
            output
        })
    }

    /// The work of the thread `nexar-io`.
    fn drive_between_calls() {
        let network = NETWORK.wait();
        let mut seen = (0, Instant::now());
        loop {
            let mut election = network.election();
            while election.calls > 0
                || !(election.work_left || election.last_end.elapsed() >= LINGER)
            {
                let waited = network.left_work.wait_timeout(election, LINGER);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                network.watch(&mut seen);
                election = network.election();
            }
            election.io_drives = true;
            election.work_left = false;
            drop(election);
            network.runtime.block_on(async {
                while network.election().calls == 0 {
                    network.wanted.notified().await;
                }
            });
            network.election().io_drives = false;
        }
    }

    /// Calls the watchdog, once, if the program exits inside a call.
    fn heed_exit() {
        let take = |from, to| EXIT.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if take(EXIT_WANTED, EXIT_BEGUN).is_ok() {
            if let Some(watchdog) = WATCHDOG.get() {
                (watchdog.on_exit)();
            }
            EXIT.store(EXIT_DONE, Ordering::Release);
        }
    }

    /// Calls the watchdog if the calls that should drive do not. `seen`: the last pulse, and when.
    fn watch(&self, seen: &mut (u64, Instant)) {
        let Some(watchdog) = WATCHDOG.get() else { return };
        Self::heed_exit();
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

/// A task that keeps the thread which drives the runtime from sleeping. Other threads that want the
/// processor get it.
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

/// Whether a peer can run beside this thread. Counts the processors of the host, not those of this
/// process: a rank that is bound to one waits for ranks that are bound to others.
fn host_is_multiprocessor() -> bool {
    static MORE_THAN_ONE: OnceLock<bool> = OnceLock::new();
    // SAFETY: asks for a number.
    *MORE_THAN_ONE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } > 1)
}

/// Signals of the program are for its own threads.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the whole set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was just written; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}
