//! Records the stack of a thread when it first executes one of several addresses.
//!
//! Breakpoints are `int3` instructions, as in a debugger: the thread that executes one raises
//! SIGTRAP. A thread that is not watched executes the original instruction in a single step and
//! continues. Leaves to `walk` what the addresses belong to. Invariant: the handler accesses only
//! memory that was allocated before the first breakpoint was set.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

const INT3: u8 = 0xcc;
/// The bit of the flags register that raises SIGTRAP after one instruction.
const TRAP_FLAG: i64 = 0x100;
const DEEPEST: usize = 256;

/// The watched thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    Caller,
    /// All threads of this process with this name.
    Named(&'static str),
}

/// A set of addresses. Its breakpoints are removed when the watched thread executes the first one.
struct Point {
    is_reached: AtomicBool,
    depth: AtomicUsize,
    /// Innermost first.
    stack: Vec<AtomicUsize>,
}

struct Breakpoint {
    address: usize,
    /// The byte that the breakpoint replaces.
    original: u8,
    point: usize,
}

struct Watched {
    thread: Thread,
    caller: libc::pid_t,
    points: Vec<Point>,
    /// Sorted by address.
    breakpoints: Vec<Breakpoint>,
}

static WATCHED: OnceLock<Watched> = OnceLock::new();

thread_local! {
    /// The breakpoint that this thread steps over.
    static STEPPED: Cell<Option<&'static Breakpoint>> = const { Cell::new(None) };
}

/// Executes `body`. Returns for each point the stack at the first of its addresses that the thread
/// executes, innermost frame first; empty if it executes none. May be called once per process.
pub fn watch(thread: Thread, points: &[Vec<usize>], body: impl FnOnce()) -> Vec<Vec<usize>> {
    make_writable(points.iter().flatten().copied());
    let list = points.iter().enumerate();
    let mut breakpoints: Vec<Breakpoint> = list
        .flat_map(|(point, addresses)| addresses.iter().map(move |address| (point, *address)))
        .map(|(point, address)| Breakpoint {
            address,
            original: code(address).load(Ordering::Relaxed),
            point,
        })
        .collect();
    breakpoints.sort_by_key(|breakpoint| breakpoint.address);
    breakpoints.dedup_by_key(|breakpoint| breakpoint.address);
    let point = |_: &Vec<usize>| Point {
        is_reached: AtomicBool::new(false),
        depth: AtomicUsize::new(0),
        stack: (0..DEEPEST).map(|_| AtomicUsize::new(0)).collect(),
    };
    let points = points.iter().map(point).collect();
    // SAFETY: asks for the number of this thread.
    let caller = unsafe { libc::gettid() };
    let watched = WATCHED.get_or_init(|| Watched { thread, caller, points, breakpoints });
    // Initialises this thread's `STEPPED` before the handler accesses it.
    STEPPED.set(None);
    handle_traps();
    watched.breakpoints.iter().for_each(Breakpoint::set);
    body();
    watched.breakpoints.iter().for_each(Breakpoint::clear);
    let stack = |point: &Point| {
        let depth = point.depth.load(Ordering::Acquire);
        point.stack[..depth].iter().map(|address| address.load(Ordering::Relaxed)).collect()
    };
    watched.points.iter().map(stack).collect()
}

impl Breakpoint {
    fn set(&self) {
        code(self.address).store(INT3, Ordering::SeqCst);
    }

    fn clear(&self) {
        code(self.address).store(self.original, Ordering::SeqCst);
    }
}

impl Watched {
    fn is_this_thread(&self) -> bool {
        match self.thread {
            // SAFETY: asks for the number of this thread.
            Thread::Caller => unsafe { libc::gettid() == self.caller },
            Thread::Named(name) => {
                let mut own = [0_u8; 16];
                // SAFETY: a name has at most 16 bytes, with the zero at its end.
                unsafe { libc::prctl(libc::PR_GET_NAME, own.as_mut_ptr()) };
                own.starts_with(name.as_bytes()) && own.get(name.len()) == Some(&0)
            }
        }
    }

    fn at(&self, address: usize) -> Option<&Breakpoint> {
        let found = self.breakpoints.binary_search_by_key(&address, |one| one.address).ok()?;
        Some(&self.breakpoints[found])
    }
}

/// The first byte of an instruction in writable code.
fn code(address: usize) -> &'static AtomicU8 {
    let byte = with_exposed_provenance_mut(address);
    // SAFETY: a byte of this program's code, which is never unmapped.
    unsafe { AtomicU8::from_ptr(byte) }
}

fn make_writable(addresses: impl Iterator<Item = usize> + Clone) {
    const PAGE: usize = 4096;
    let (Some(first), Some(last)) = (addresses.clone().min(), addresses.max()) else { return };
    let start = first / PAGE * PAGE;
    let length = (last + 1 - start).next_multiple_of(PAGE);
    let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: pages of this program's code, which stay readable and executable.
    let result = unsafe { libc::mprotect(with_exposed_provenance_mut(start), length, access) };
    assert_eq!(result, 0, "code cannot be made writable: {}", std::io::Error::last_os_error());
}

fn handle_traps() {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = trapped as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is valid, and its handler accesses only memory allocated before.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, null_mut()) }, 0);
}

extern "C" fn trapped(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the system passes the context of the interrupted code to a handler with SA_SIGINFO.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let Some(watched) = WATCHED.get() else { return };
    // SAFETY: the system passes it to a handler with SA_SIGINFO.
    if unsafe { (*info).si_code } == libc::TRAP_TRACE {
        registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
        if let Some(breakpoint) = STEPPED.take()
            && !watched.points[breakpoint.point].is_reached.load(Ordering::Acquire)
        {
            breakpoint.set();
        }
        return;
    }
    // Executes the original instruction when the handler returns.
    let address = registers[libc::REG_RIP as usize] as usize - 1;
    registers[libc::REG_RIP as usize] = address as i64;
    let Some(breakpoint) = watched.at(address) else { return };
    let point = &watched.points[breakpoint.point];
    if !watched.is_this_thread() {
        breakpoint.clear();
        STEPPED.set(Some(breakpoint));
        registers[libc::REG_EFL as usize] |= TRAP_FLAG;
    } else if !point.is_reached.swap(true, Ordering::AcqRel) {
        let of_point = watched.breakpoints.iter().filter(|one| one.point == breakpoint.point);
        of_point.for_each(Breakpoint::clear);
        point.record(address);
    }
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        state: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// The state of a backtrace: the addresses recorded so far, and the address of the breakpoint.
struct Stack<'a> {
    into: &'a [AtomicUsize],
    depth: usize,
    from: usize,
}

extern "C" fn visit(frame: *mut c_void, state: *mut c_void) -> c_int {
    // SAFETY: `record` passes a pointer to its own `Stack`.
    let stack = unsafe { &mut *state.cast::<Stack<'_>>() };
    // SAFETY: the unwinder passes a valid frame.
    let address = unsafe { _Unwind_GetIP(frame) };
    // Skips the frames of the handler.
    if (stack.depth > 0 || address == stack.from)
        && let Some(into) = stack.into.get(stack.depth)
    {
        into.store(address, Ordering::Relaxed);
        stack.depth += 1;
    }
    0
}

impl Point {
    fn record(&self, address: usize) {
        let mut stack = Stack { into: &self.stack, depth: 0, from: address };
        // SAFETY: `visit` gets the stack of this frame, which outlives the call.
        unsafe { _Unwind_Backtrace(visit, (&raw mut stack).cast()) };
        self.depth.store(stack.depth, Ordering::Release);
    }
}

/// Overrides libc: threads of the library block all signals, and a blocked SIGTRAP would kill the
/// process. In this program they block none.
#[unsafe(no_mangle)]
extern "C" fn pthread_sigmask(_how: c_int, _set: *const c_void, _old: *mut c_void) -> c_int {
    0
}
