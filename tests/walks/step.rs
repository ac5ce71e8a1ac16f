//! Executes a closure instruction by instruction: records the addresses it executes, and the stack at
//! some of them.
//!
//! The processor's trap flag raises SIGTRAP behind every instruction of this thread. Leaves to `walk`
//! what the addresses belong to. Invariant: the handler touches nothing but the memory allocated
//! before the first step.

use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Code within so many bytes of this program's data is recorded: more than the program has.
const REACH: usize = 64 << 20;
/// Limits of the recorded addresses and of the depth of a stack.
const MOST: usize = 1 << 20;
const DEEPEST: usize = 256;

/// One byte for each address: whether it was executed.
static SEEN: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// The addresses in the order of their first execution.
static ADDRESSES: AtomicPtr<usize> = AtomicPtr::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where the stack is recorded, and the stacks, innermost frame first.
static WANTED: AtomicPtr<usize> = AtomicPtr::new(null_mut());
static WANTED_COUNT: AtomicUsize = AtomicUsize::new(0);
static STACKS: AtomicPtr<usize> = AtomicPtr::new(null_mut());
/// How many of the wanted addresses were not executed yet.
static MISSING: AtomicUsize = AtomicUsize::new(0);
/// How many more steps are made. A thread that drives the network falls behind if it is stepped for
/// long, and then retransmits more than it sends.
static STEPS_LEFT: AtomicUsize = AtomicUsize::new(0);
const MOST_STEPS: usize = 1_000_000;

/// What a closure executed.
pub struct Steps {
    /// In the order of their first execution.
    pub addresses: &'static [usize],
    /// One for each wanted address: the instructions and return addresses, innermost first. Empty
    /// if the address was not executed.
    pub stacks: Vec<Vec<usize>>,
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        state: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// Where a stack goes, and how deep it is so far.
struct Stack {
    into: *mut usize,
    depth: usize,
    from: usize,
}

extern "C" fn visit(frame: *mut c_void, state: *mut c_void) -> c_int {
    // SAFETY: `record` passes a pointer to its own `Stack`.
    let stack = unsafe { &mut *state.cast::<Stack>() };
    // SAFETY: the unwinder passes a valid frame.
    let address = unsafe { _Unwind_GetIP(frame) };
    // The frames of the handler come first.
    if (stack.depth > 0 || address == stack.from) && stack.depth < DEEPEST {
        // SAFETY: `depth` is below the length of a stack.
        unsafe { stack.into.add(stack.depth).write(address) };
        stack.depth += 1;
    }
    0
}

/// Where the shared library that is stepped over returns to, or 0.
#[unsafe(no_mangle)]
static WALKS_RETURN: AtomicUsize = AtomicUsize::new(0);

// A shared library returns here: sets the trap flag and returns to where the library was called.
std::arch::global_asm!(
    "walks_resume:",
    "sub rsp, 8",
    "push rax",
    "mov rax, [rip + WALKS_RETURN]",
    "mov [rsp + 8], rax",
    "mov qword ptr [rip + WALKS_RETURN], 0",
    "pop rax",
    "pushfq",
    "or qword ptr [rsp], 0x100",
    "popfq",
    "ret",
    ".globl walks_resume",
);

unsafe extern "C" {
    fn walks_resume();
}

/// At the first instruction of a shared library: executes it at full speed, until it returns. A
/// library may block signals, and a trap that is blocked ends the process.
fn step_over(registers: &mut [i64; 23]) {
    let top: *mut usize =
        std::ptr::with_exposed_provenance_mut(registers[libc::REG_RSP as usize] as usize);
    // SAFETY: the stack pointer of the interrupted thread is valid.
    let returns_to = unsafe { top.read_unaligned() };
    let offset = returns_to.wrapping_sub(from_ref(&SEEN).addr().wrapping_sub(REACH));
    if offset < 2 * REACH && WALKS_RETURN.load(Ordering::Relaxed) == 0 {
        WALKS_RETURN.store(returns_to, Ordering::Relaxed);
        // SAFETY: a called function has its return address there.
        unsafe { top.write_unaligned(walks_resume as *const () as usize) };
        registers[libc::REG_EFL as usize] &= !0x100;
    }
}

extern "C" fn record(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the system passes the context of the interrupted code to a handler with SA_SIGINFO.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let address = registers[libc::REG_RIP as usize] as usize;
    let steps = STEPS_LEFT.load(Ordering::Relaxed);
    let is_done = WANTED_COUNT.load(Ordering::Relaxed) > 0 && MISSING.load(Ordering::Relaxed) == 0;
    if steps == 0 || is_done {
        registers[libc::REG_EFL as usize] &= !0x100;
        return;
    }
    STEPS_LEFT.store(steps - 1, Ordering::Relaxed);
    let offset = address.wrapping_sub(from_ref(&SEEN).addr().wrapping_sub(REACH));
    let count = COUNT.load(Ordering::Relaxed);
    if offset >= 2 * REACH {
        return step_over(registers);
    }
    if count == MOST {
        return;
    }
    // SAFETY: `offset` is below the length of the allocation.
    let seen = unsafe { &mut *SEEN.load(Ordering::Relaxed).add(offset) };
    if *seen != 0 {
        return;
    }
    *seen = 1;
    // SAFETY: `count` is below the length of the allocation.
    unsafe { ADDRESSES.load(Ordering::Relaxed).add(count).write(address) };
    COUNT.store(count + 1, Ordering::Relaxed);
    for index in 0..WANTED_COUNT.load(Ordering::Relaxed) {
        // SAFETY: there are so many wanted addresses, and a stack for each.
        let (wanted, into) = unsafe {
            let wanted = *WANTED.load(Ordering::Relaxed).add(index);
            (wanted, STACKS.load(Ordering::Relaxed).add(index * DEEPEST))
        };
        if wanted == address {
            let mut stack = Stack { into, depth: 0, from: address };
            // SAFETY: `visit` gets the stack of this frame, which outlives the call.
            unsafe { _Unwind_Backtrace(visit, (&raw mut stack).cast()) };
            MISSING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Sets the trap flag of the interrupted thread.
extern "C" fn begin_to_step(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the system passes the context of the interrupted code to a handler with SA_SIGINFO.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    registers[libc::REG_EFL as usize] |= 0x100;
}

/// Threads of the library block all signals, and a trap that is blocked ends the process. In this
/// program they block none.
#[unsafe(no_mangle)]
extern "C" fn pthread_sigmask(_how: c_int, _set: *const c_void, _old: *mut c_void) -> c_int {
    0
}

/// Which thread is stepped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    Caller,
    /// The threads of this process with this name, from their next instruction on.
    Named(&'static str),
}

/// Executes `body` while a thread executes step by step.
pub fn stepped(thread: Thread, wanted: Vec<usize>, body: impl FnOnce()) -> Steps {
    let count = wanted.len();
    WANTED.store(wanted.leak().as_mut_ptr(), Ordering::Relaxed);
    WANTED_COUNT.store(count, Ordering::Relaxed);
    MISSING.store(count, Ordering::Relaxed);
    STEPS_LEFT.store(MOST_STEPS, Ordering::Relaxed);
    STACKS.store(vec![0; count * DEEPEST].leak().as_mut_ptr(), Ordering::Relaxed);
    SEEN.store(vec![0; 2 * REACH].leak().as_mut_ptr(), Ordering::Relaxed);
    ADDRESSES.store(vec![0; MOST].leak().as_mut_ptr(), Ordering::Relaxed);
    handle(libc::SIGTRAP, record);
    handle(libc::SIGUSR1, begin_to_step);
    match thread {
        Thread::Caller => {
            // SAFETY: sets the trap flag and nothing else.
            unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
            body();
            // SAFETY: clears the trap flag and nothing else.
            unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
        }
        Thread::Named(name) => {
            assert!(interrupt(name) > 0, "no thread is called {name}");
            body();
        }
    }
    let read = |from: &AtomicPtr<usize>, length| {
        // SAFETY: the allocation is as long.
        unsafe { std::slice::from_raw_parts(from.load(Ordering::Relaxed), length) }
    };
    let whole = |stack: &[usize]| stack.iter().copied().take_while(|one| *one != 0).collect();
    let stacks = read(&STACKS, count * DEEPEST).chunks(DEEPEST).map(whole).collect();
    Steps { addresses: read(&ADDRESSES, COUNT.load(Ordering::Relaxed)), stacks }
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn handle(signal: c_int, handler: Handler) {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is valid, and the handlers touch only memory allocated before.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, null_mut()) }, 0);
}

/// Interrupts the threads of this process with this name. Returns how many there are.
fn interrupt(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap());
    let named = threads.filter(|thread| {
        let told = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        told.trim_end() == name
    });
    let numbers = named.map(|thread| thread.file_name().to_str().unwrap().parse().unwrap());
    numbers
        .map(|number: libc::pid_t| {
            // SAFETY: a signal to a thread of this process, which has a handler for it.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, libc::SIGUSR1) }
        })
        .filter(|result| *result == 0)
        .count()
}
