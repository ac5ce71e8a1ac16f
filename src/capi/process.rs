//! What nexar does once per process, at its first call, and how it knows a forked child.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use tracing::{error, info, warn};

use crate::{comm, config, log, runtime};

/// Points to a page whose first byte is true in the process that has used nexar. The kernel wipes
/// the page in a child, however that was made: fork, _Fork or clone. Null before nexar is used.
static IS_PARENT: AtomicPtr<AtomicBool> = AtomicPtr::new(null_mut());

thread_local! {
    static WHERE: Cell<Where> = const { Cell::new(Where::Outside) };
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Outside,
    /// In a nexar call.
    Inside,
    /// In a function of the program that nexar has called, which may not call nexar.
    OutsideAgain,
}

/// Reads the environment, starts the log and arms the fork check, once.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        uncancelled(|| {
            if let Ok(config) = config::get() {
                log::start(config);
            }
            info!("nexar {}", env!("CARGO_PKG_VERSION"));
            config::unknown_names().iter().for_each(|warning| warn!("{warning}"));
            keep_panics_quiet();
            watch_for_fork();
            leave_at_exit();
        })
    });
}

/// True in a child of a process that had used nexar before it forked: its threads and
/// connections belong to the parent. Two reads of memory, no system call.
#[inline]
pub(super) fn is_forked_child() -> bool {
    // SAFETY: null, or a page that is never unmapped.
    let is_parent = unsafe { IS_PARENT.load(Ordering::Relaxed).as_ref() };
    is_parent.is_some_and(|is_parent| !is_parent.load(Ordering::Relaxed))
}

/// Marks this thread as inside nexar while `body` runs, which is told whether a function of the
/// program has called it.
#[inline]
pub(super) fn inside<T>(body: impl FnOnce(bool) -> T) -> T {
    let there = Stay::begin(Where::Inside);
    body(there.before == Where::OutsideAgain)
}

/// Has pthread_cancel of this thread wait while `body` runs: what a call does may be full of points
/// of cancellation, and nothing in it is prepared to end there.
pub(super) fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::new();
    body()
}

struct Uncancelled(c_int);

impl Uncancelled {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: the old state is written to a variable of ours.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: a state that was in force before; the one that ends is not asked for.
        unsafe { pthread_setcancelstate(self.0, null_mut()) };
    }
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

// The crate libc lacks it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Marks this thread as inside a function of the program, which may not call nexar.
pub(super) fn outside_again<T>(body: impl FnOnce() -> T) -> T {
    let _there = Stay::begin(Where::OutsideAgain);
    body()
}

/// While it lives, this thread is there.
struct Stay {
    before: Where,
}

impl Stay {
    #[inline]
    fn begin(there: Where) -> Self {
        // A thread that is ending has no such memory any more.
        Self { before: WHERE.try_with(|place| place.replace(there)).unwrap_or(Where::Outside) }
    }
}

impl Drop for Stay {
    #[inline]
    fn drop(&mut self) {
        let _ = WHERE.try_with(|place| place.set(self.before));
    }
}

fn watch_for_fork() {
    let (bytes, protection) = (size_of::<AtomicBool>(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new anonymous memory, anywhere; the kernel gives a whole page.
    let page = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        warn!("no memory for a page: use in a forked child will not be noticed");
        return;
    }
    // SAFETY: exactly this was just mapped.
    let is_wiped = unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } == 0;
    let page: *mut AtomicBool = page.cast();
    // SAFETY: the page is mapped, zeroed and known to nobody else yet.
    unsafe { page.write(AtomicBool::new(true)) };
    IS_PARENT.store(page, Ordering::Relaxed);
    if !is_wiped {
        wipe_by_handler();
    }
}

/// Where the kernel does not wipe the page, as in some sandboxes: a handler sees fork, but not
/// clone.
fn wipe_by_handler() {
    extern "C" fn in_child() {
        // SAFETY: null, or a page that is never unmapped.
        if let Some(is_parent) = unsafe { IS_PARENT.load(Ordering::Relaxed).as_ref() } {
            is_parent.store(false, Ordering::Relaxed);
        }
    }
    // SAFETY: the handler only stores to an atomic, which is allowed in a forked child, and its
    // code stays mapped because the library is linked with -z nodelete.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if failed != 0 {
        warn!("pthread_atfork failed ({failed}): use in a forked child will not be noticed");
    }
}

/// Peers still get what finished operations have sent if the program ends without destroying its
/// communicators.
fn leave_at_exit() {
    extern "C" fn leave() {
        // A forked child has no part in its parent's communicators.
        if !is_forked_child() {
            let is_inside = |place: &Cell<Where>| place.get() != Where::Outside;
            let inside_a_call = WHERE.try_with(is_inside).unwrap_or(false);
            let leave = || inside(|_| uncancelled(|| comm::leave_all(inside_a_call)));
            let _ = std::panic::catch_unwind(leave);
        }
    }
    // SAFETY: the handler catches every panic, and its code stays mapped (-z nodelete).
    if unsafe { libc::atexit(leave) } != 0 {
        warn!("atexit failed: a program that ends without nexarCommDestroy may lose its last data");
    }
}

/// A panic inside nexar is logged and becomes a code; Rust's default of printing it would break
/// the promise that the library does not print. Other threads' panics go where they went before.
fn keep_panics_quiet() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let is_ours = thread.name().is_some_and(|name| name.starts_with(runtime::THREADS));
        if is_ours || WHERE.try_with(|place| place.get() == Where::Inside).unwrap_or(false) {
            error!("{panic}");
        } else {
            before(panic);
        }
    }));
}
