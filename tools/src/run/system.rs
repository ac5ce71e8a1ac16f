//! System calls that std lacks: waiting for signals, process groups, a child that ends with its
//! parent. The only unsafe code of nexar-run.
#![allow(unsafe_code, reason = "calls of the C library")]

use std::io;
use std::mem;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::time::Instant;

/// Signals that nexar-run passes on to the ranks.
const PASSED_ON: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signals that nexar-run handles. All threads block them; `wait` takes one at a time.
pub struct Signals {
    blocked: libc::sigset_t,
    inherited: libc::sigset_t,
}

pub enum Event {
    /// This process has ended, and others may have.
    Ended(libc::pid_t),
    /// A signal to pass on.
    Signal(i32),
    /// The time has passed, or the wait was interrupted.
    Nothing,
}

/// How a process ended. Both numbers are below 256.
pub enum End {
    Exited(u8),
    Killed(u8),
}

impl Signals {
    /// Blocks the signals. Call it before the first thread is started, which inherits the mask.
    pub fn block() -> Self {
        // SAFETY: a sigset_t is an array of integers, for which zero is valid.
        let mut signals = unsafe { mem::zeroed::<Self>() };
        // SAFETY: the set is a local variable.
        unsafe { libc::sigemptyset(&raw mut signals.blocked) };
        for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal)) {
            // SAFETY: as above.
            unsafe { libc::sigaddset(&raw mut signals.blocked, signal) };
        }
        // SAFETY: as above.
        unsafe { libc::sigaddset(&raw mut signals.blocked, libc::SIGCHLD) };
        // A parent may have ignored SIGCHLD, which would discard exit codes.
        // SAFETY: sets a disposition of this process; no handler is installed.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: both sets are local variables.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &signals.blocked, &raw mut signals.inherited)
        };
        signals
    }

    /// Waits for the next signal, at most until `until`.
    pub fn wait(&self, until: Option<Instant>) -> Event {
        // SAFETY: a siginfo_t is integers and pointers, for which zero is valid.
        let mut info = unsafe { mem::zeroed::<libc::siginfo_t>() };
        let signal = if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            let left = libc::timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: all three pointers are valid for the call.
            unsafe { libc::sigtimedwait(&self.blocked, &raw mut info, &left) }
        } else {
            // SAFETY: as above.
            unsafe { libc::sigwaitinfo(&self.blocked, &raw mut info) }
        };
        match signal {
            // SAFETY: the signal is SIGCHLD, which has this field.
            libc::SIGCHLD => Event::Ended(unsafe { info.si_pid() }),
            signal if signal > 0 => Event::Signal(signal),
            _ => Event::Nothing,
        }
    }

    /// Restores the mask before `block`.
    pub fn restore(&self) {
        // SAFETY: the set was written by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.inherited, ptr::null_mut()) };
    }
}

/// Whether a signal is ignored, because of nohup or a shell that started nexar-run in the
/// background. It stays ignored.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: a sigaction is integers and an optional function, for which zero is valid.
    let mut action = unsafe { mem::zeroed::<libc::sigaction>() };
    // SAFETY: changes nothing, and writes to a local variable.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

/// Gives the new process the signal mask that nexar-run inherited, and makes the kernel kill it
/// when the thread that starts it ends.
pub fn end_with_parent(command: &mut Command, signals: &Signals) {
    let inherited = signals.inherited;
    let parent = std::process::id().cast_signed();
    let in_child = move || {
        // SAFETY: the set is a copy of one that pthread_sigmask wrote.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &inherited, ptr::null_mut()) };
        // SAFETY: all arguments are integers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // If the parent ended before that call, the kernel sends no signal.
        // SAFETY: has no arguments.
        if unsafe { libc::getppid() } == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec it makes three system calls and allocates no memory.
    unsafe { command.pre_exec(in_child) };
}

/// Sends a signal to the process group that a child leads. The child has not been reaped.
pub fn kill_group(leader: libc::pid_t, signal: i32) {
    // SAFETY: all arguments are integers. The number is not reused before the child is reaped.
    unsafe { libc::kill(-leader, signal) };
}

/// Reaps a child and kills the rest of its group. Returns how it ended; `None` if it is running.
pub fn reap(child: libc::pid_t) -> Option<End> {
    // SAFETY: a siginfo_t is integers and pointers, for which zero is valid.
    let mut info = unsafe { mem::zeroed::<libc::siginfo_t>() };
    let (id, look) = (child.cast_unsigned(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
    // SAFETY: with WNOWAIT the child stays; the result is written to a local variable.
    unsafe { libc::waitid(libc::P_PID, id, &raw mut info, look) };
    // SAFETY: waitid wrote the field, or it is zero.
    if unsafe { info.si_pid() } != child {
        return None;
    }
    kill_group(child, libc::SIGKILL);
    // SAFETY: writes to a local variable. From here on the number may be reused.
    unsafe { libc::waitid(libc::P_PID, id, &raw mut info, libc::WEXITED) };
    // SAFETY: waitid wrote the field: an exit code or a signal, both below 256.
    let status = unsafe { info.si_status() } as u8;
    Some(if info.si_code == libc::CLD_EXITED { End::Exited(status) } else { End::Killed(status) })
}
