//! The initialisation of the process at its first call, the detection of a forked child, and the
//! state of each thread: in the program, in nexar, or in a callback.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use tracing::{error, info, warn};

use crate::{comm, config, log, runtime};

/// Points to a page whose first byte is true in the process that has called nexar. The kernel
/// zeroes the page in a child, whether of fork, _Fork or clone (MADV_WIPEONFORK). Null before the
/// first call.
static IS_PARENT: AtomicPtr<AtomicBool> = AtomicPtr::new(null_mut());

thread_local! {
    static STATE: Cell<ThreadState> = const { Cell::new(ThreadState::Program) };
}

/// The code that a thread executes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Program,
    Library,
    /// A function of the program that nexar has called. It must not call nexar.
    Callback,
}

/// Reads the environment, starts the log and prepares the detection of forks, once.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        without_cancellation(|| {
            if let Ok(config) = config::get() {
                log::start(config);
            }
            info!("nexar {}", env!("CARGO_PKG_VERSION"));
            config::unknown_names().iter().for_each(|warning| warn!("{warning}"));
            keep_panics_quiet();
            detect_forks();
            leave_at_exit();
        })
    });
}

/// True in a child of a process that had called nexar before it forked: the threads and connections
/// belong to the parent. Two loads, no system call.
#[inline]
pub(super) fn is_forked_child() -> bool {
    // SAFETY: null, or a page that is never unmapped.
    let is_parent = unsafe { IS_PARENT.load(Ordering::Relaxed).as_ref() };
    is_parent.is_some_and(|is_parent| !is_parent.load(Ordering::Relaxed))
}

/// Marks this thread as inside nexar while it executes `body`. Passes whether the call was made
/// from a callback.
#[inline]
pub(super) fn inside<T>(body: impl FnOnce(bool) -> T) -> T {
    let guard = StateGuard::enter(ThreadState::Library);
    body(guard.before == ThreadState::Callback)
}

/// Disables pthread_cancel of this thread while it executes `body`, which may have cancellation
/// points but is not written to end at one.
pub(super) fn without_cancellation<T>(body: impl FnOnce() -> T) -> T {
    let _disabled = CancellationDisabled::new();
    body()
}

/// Disables cancellation while it exists. Holds the state before.
struct CancellationDisabled(c_int);

impl CancellationDisabled {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: the old state is written to a local variable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for CancellationDisabled {
    fn drop(&mut self) {
        // SAFETY: restores a valid state; a NULL old state is not written.
        unsafe { pthread_setcancelstate(self.0, null_mut()) };
    }
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

// The crate libc does not declare it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Marks this thread as inside a callback, which must not call nexar, while it executes `body`.
pub(super) fn in_callback<T>(body: impl FnOnce() -> T) -> T {
    let _guard = StateGuard::enter(ThreadState::Callback);
    body()
}

/// Sets the state of this thread while it exists.
struct StateGuard {
    before: ThreadState,
}

impl StateGuard {
    #[inline]
    fn enter(state: ThreadState) -> Self {
        // The thread local may be gone in a thread that is ending.
        let before = STATE.try_with(|current| current.replace(state));
        Self { before: before.unwrap_or(ThreadState::Program) }
    }
}

impl Drop for StateGuard {
    #[inline]
    fn drop(&mut self) {
        let _ = STATE.try_with(|current| current.set(self.before));
    }
}

fn detect_forks() {
    let (bytes, protection) = (size_of::<AtomicBool>(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new anonymous memory at an address of the kernel's choice; at least one page.
    let page = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        warn!("no memory for a page: use in a forked child will not be detected");
        return;
    }
    // SAFETY: exactly this was just mapped.
    let is_wiped = unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } == 0;
    let page: *mut AtomicBool = page.cast();
    // SAFETY: the page is mapped and zeroed, and no other thread has its address yet.
    unsafe { page.write(AtomicBool::new(true)) };
    IS_PARENT.store(page, Ordering::Relaxed);
    if !is_wiped {
        wipe_with_handler();
    }
}

/// Replaces MADV_WIPEONFORK where it is not supported, as in some sandboxes, by a handler, which is
/// called by fork but not by clone.
fn wipe_with_handler() {
    extern "C" fn in_child() {
        // SAFETY: null, or a page that is never unmapped.
        if let Some(is_parent) = unsafe { IS_PARENT.load(Ordering::Relaxed).as_ref() } {
            is_parent.store(false, Ordering::Relaxed);
        }
    }
    // SAFETY: the handler only stores to an atomic, which is async-signal-safe, and its code stays
    // mapped because the library is linked with -z nodelete.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if failed != 0 {
        warn!("pthread_atfork failed ({failed}): use in a forked child will not be detected");
    }
}

/// Delivers the data of completed operations to the peers if the program exits without destroying
/// its communicators.
fn leave_at_exit() {
    extern "C" fn leave() {
        // The communicators of a forked child belong to its parent.
        if !is_forked_child() {
            let is_inside = |state: &Cell<ThreadState>| state.get() != ThreadState::Program;
            let inside_a_call = STATE.try_with(is_inside).unwrap_or(false);
            let leave = || inside(|_| without_cancellation(|| comm::leave_all(inside_a_call)));
            let _ = std::panic::catch_unwind(leave);
        }
    }
    // SAFETY: the handler catches every panic, and its code stays mapped (-z nodelete).
    if unsafe { libc::atexit(leave) } != 0 {
        warn!(
            "atexit failed: a program that exits without nexarCommDestroy may lose its last data"
        );
    }
}

/// Logs panics inside nexar instead of printing them, because the library prints nothing. Panics of
/// the program's own code go to the previous hook.
fn keep_panics_quiet() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let is_ours = thread.name().is_some_and(|name| name.starts_with(runtime::THREADS));
        let is_inside = |state: &Cell<ThreadState>| state.get() == ThreadState::Library;
        if is_ours || STATE.try_with(is_inside).unwrap_or(false) {
            error!("{panic}");
        } else {
            before(panic);
        }
    }));
}
