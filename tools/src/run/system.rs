//! What std lacks: waiting for signals, process groups, a child that ends with its parent. The only
//! unsafe code of nexar-run.
#![allow(unsafe_code, reason = "calls of the C library")]

use std::io;
use std::mem;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::time::Instant;

/// Signals of ours that the ranks get too.
const PASSED_ON: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signals nexar-run lives by: blocked in all its threads, and taken out one by one.
pub struct Signals {
    taken: libc::sigset_t,
    inherited: libc::sigset_t,
}

pub enum Event {
    /// This process ended, and maybe others.
    Ended(libc::pid_t),
    /// To be passed on.
    Signal(i32),
    /// The time has come, or there was nothing.
    Nothing,
}

/// How a process ended. Both numbers are below 256.
pub enum End {
    Exited(u8),
    Killed(u8),
}

impl Signals {
    /// To be called before the first thread is started, whose mask is its creator's.
    pub fn take() -> Self {
        // SAFETY: a sigset_t is plain numbers; zeros are one.
        let mut signals = unsafe { mem::zeroed::<Self>() };
        // SAFETY: the set is ours.
        unsafe { libc::sigemptyset(&raw mut signals.taken) };
        for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal)) {
            // SAFETY: as above.
            unsafe { libc::sigaddset(&raw mut signals.taken, signal) };
        }
        // SAFETY: as above.
        unsafe { libc::sigaddset(&raw mut signals.taken, libc::SIGCHLD) };
        // Some parents ignore SIGCHLD, and then exit codes are lost.
        // SAFETY: sets a disposition of this process; no handler is involved.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: both sets are ours.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &signals.taken, &raw mut signals.inherited)
        };
        signals
    }

    /// Waits for the next signal, until then or for ever.
    pub fn wait(&self, until: Option<Instant>) -> Event {
        // SAFETY: a siginfo_t is plain numbers; it is written by the kernel.
        let mut info = unsafe { mem::zeroed::<libc::siginfo_t>() };
        let signal = if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            let left = libc::timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: all three are ours and live for the call.
            unsafe { libc::sigtimedwait(&self.taken, &raw mut info, &left) }
        } else {
            // SAFETY: as above.
            unsafe { libc::sigwaitinfo(&self.taken, &raw mut info) }
        };
        match signal {
            // SAFETY: the field of SIGCHLD, which this is.
            libc::SIGCHLD => Event::Ended(unsafe { info.si_pid() }),
            signal if signal > 0 => Event::Signal(signal),
            _ => Event::Nothing,
        }
    }

    /// Signals do again what they did before `take`.
    pub fn restore(&self) {
        // SAFETY: the set is the one that pthread_sigmask wrote.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.inherited, ptr::null_mut()) };
    }
}

/// Set by nohup, or by a shell that started us in the background: it stays ignored.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: a sigaction is plain numbers; it is written by the call.
    let mut action = unsafe { mem::zeroed::<libc::sigaction>() };
    // SAFETY: only asks, and writes to ours.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

/// The process gets the signals we got, and is killed when the thread that starts it ends.
pub fn end_with_parent(command: &mut Command, signals: &Signals) {
    let inherited = signals.inherited;
    let parent = std::process::id().cast_signed();
    let in_child = move || {
        // SAFETY: the set is a copy of what pthread_sigmask wrote.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &inherited, ptr::null_mut()) };
        // SAFETY: takes numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // If the parent died before that call, no signal will come.
        // SAFETY: takes nothing.
        if unsafe { libc::getppid() } == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec it makes three system calls, and allocates nothing.
    unsafe { command.pre_exec(in_child) };
}

/// To a child that has not been reaped and the group it leads.
pub fn kill_group(leader: libc::pid_t, signal: i32) {
    // SAFETY: takes numbers; the group is the child's, as its number is not free yet.
    unsafe { libc::kill(-leader, signal) };
}

/// How the child ended, if it has. What it left running in its group is killed with it.
pub fn reap(child: libc::pid_t) -> Option<End> {
    // SAFETY: a siginfo_t is plain numbers; it is written by the kernel.
    let mut info = unsafe { mem::zeroed::<libc::siginfo_t>() };
    let (id, look) = (child.cast_unsigned(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
    // SAFETY: only looks, and writes to ours.
    unsafe { libc::waitid(libc::P_PID, id, &raw mut info, look) };
    // SAFETY: the field is zero or what waitid wrote.
    if unsafe { info.si_pid() } != child {
        return None;
    }
    kill_group(child, libc::SIGKILL);
    // SAFETY: as above; from here on the number may be another's.
    unsafe { libc::waitid(libc::P_PID, id, &raw mut info, libc::WEXITED) };
    // SAFETY: waitid wrote it: an exit code or a signal, whose low byte is all there is.
    let status = unsafe { info.si_status() } as u8;
    Some(if info.si_code == libc::CLD_EXITED { End::Exited(status) } else { End::Killed(status) })
}
