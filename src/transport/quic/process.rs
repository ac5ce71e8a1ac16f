//! The process of a rank, as others on its host know it: a pidfd reports its death at once, even
//! while another process holds its socket open.
//!
//! Leaves to `deaths` what follows. Invariant: a reused pid is not taken for the rank's process,
//! and nothing is assumed about a process of another host or container.
#![expect(unsafe_code, reason = "std cannot open a pidfd")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::kept::Registry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Hash of boot id and PID namespace: the scope in which `pid` is unique.
    pub host: [u8; 16],
    pub pid: u32,
    /// When the process started, in the host's own clock.
    pub started: u64,
}

impl Process {
    /// This process. `None` where the system has no procfs.
    pub fn of_this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { host: host()?, pid, started: started(pid)? })
    }

    /// Watches the process; one pidfd serves all communicators of this process. `None` if it cannot
    /// be watched from here: its loss is then detected over the network. Must be called inside the
    /// runtime.
    pub fn watch(&self) -> Option<Arc<Watched>> {
        static KNOWN: Registry<Process, Watched> = Registry::empty();
        if host()? != self.host {
            return None;
        }
        KNOWN.get_or_try(*self, || self.open().ok_or(())).ok()
    }

    fn open(&self) -> Option<Watched> {
        let pid = libc::pid_t::try_from(self.pid).ok()?;
        // SAFETY: opens a descriptor or fails; it is closed on exec.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if opened < 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            return (error == Some(libc::ESRCH)).then_some(Watched(None));
        }
        // SAFETY: a descriptor that was just opened and has no other owner.
        let process = unsafe { OwnedFd::from_raw_fd(opened as i32) };
        // Read after the open: if the pid is the rank's now, it was when it was opened. If not, the
        // rank has died, or this process has another view of procfs, which is no evidence against
        // the rank.
        if started(self.pid)? != self.started {
            return None;
        }
        // SAFETY: an OwnedFd keeps its one descriptor open for as long as it is watched.
        let watched = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
        Some(Watched(Some(watched.ok()?)))
    }
}

/// A watched process. `None` if it had died before.
pub struct Watched(Option<AsyncFd<OwnedFd>>);

impl Watched {
    /// Returns when the process has died. Never returns if the pidfd cannot be polled.
    pub async fn died(&self) {
        if let Some(process) = &self.0
            && process.readable().await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watched({:?})", self.0.as_ref().map(AsRawFd::as_raw_fd))
    }
}

fn host() -> Option<[u8; 16]> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let hash = digest(&SHA256, &[&boot[..], namespace.as_os_str().as_encoded_bytes()].concat());
    hash.as_ref()[..16].try_into().ok()
}

/// The start time of a process, field 22 of its stat.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 2, the name in parentheses, may contain anything. Field 3 follows it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// A process that waits for the end of its input.
    fn child() -> (Child, Process) {
        let child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let started = started(child.id()).unwrap();
        let process = Process { pid: child.id(), started, ..Process::of_this().unwrap() };
        (child, process)
    }

    #[tokio::test]
    async fn the_death_of_a_killed_process_is_reported_and_not_that_of_a_living_one() {
        let (mut child, process) = child();
        let watched = process.watch().unwrap();
        let mut died = std::pin::pin!(watched.died());
        assert!(timeout(Duration::from_millis(50), &mut died).await.is_err());
        child.kill().unwrap();
        timeout(Duration::from_secs(10), died).await.unwrap();
        child.wait().unwrap();
        // Unless its pid was reused by now.
        if let Some(watched) = process.watch() {
            timeout(Duration::from_secs(10), watched.died()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn all_communicators_watch_a_process_by_one_descriptor_and_all_see_its_end() {
        let (mut child, process) = child();
        let [one, other] = [(); 2].map(|()| process.watch().unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        child.kill().unwrap();
        timeout(Duration::from_secs(10), one.died()).await.unwrap();
        timeout(Duration::from_secs(10), other.died()).await.unwrap();
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_reused_pid_is_not_watched() {
        let (mut child, process) = child();
        let before = Process { started: process.started - 1, ..process };
        assert!(before.watch().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_process_of_another_host_is_not_watched() {
        let here = Process::of_this().unwrap();
        assert!(Process { host: [7; 16], ..here }.watch().is_none());
    }
}
