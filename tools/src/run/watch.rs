//! Waits for the ranks to end: passes signals on to them, names the first one that fails, and ends
//! the others after the grace period.

use std::time::{Duration, Instant};

use crate::TIMED_OUT;
use crate::launch::Rank;
use crate::output::Output;
use crate::system::{self, End, Event, Signals};

/// The time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

pub struct Limits {
    pub timeout: Option<Duration>,
    pub timeout_at: Option<Instant>,
    pub grace: Duration,
}

/// The state of the ranks that are running.
enum Phase {
    /// SIGTERM is sent at the timeout, if there is one.
    Running,
    /// A rank has failed: SIGTERM is sent to the others at this time.
    Failed(Instant),
    /// SIGTERM was sent: SIGKILL is sent at this time.
    Terminated(Instant),
    Killed,
}

/// Waits until all ranks have ended. Returns the exit code of nexar-run.
pub fn until_all_ended(
    mut running: Vec<Rank>,
    signals: &Signals,
    limits: &Limits,
    output: &Output,
) -> u8 {
    let mut code = 0;
    let mut phase = Phase::Running;
    while !running.is_empty() {
        let next = match phase {
            Phase::Running => limits.timeout_at,
            Phase::Failed(at) => Some(limits.timeout_at.map_or(at, |timeout| timeout.min(at))),
            Phase::Terminated(at) => Some(at),
            Phase::Killed => None,
        };
        match signals.wait(next) {
            // The kernel names the first rank that ended; others that have ended follow it.
            Event::Ended(first) => running.sort_by_key(|rank| (rank.process != first, rank.number)),
            Event::Signal(signal) => kill_all(&running, signal),
            Event::Nothing => {}
        }
        running.retain(|rank| {
            let Some(end) = system::reap(rank.process) else { return true };
            let failure = match end {
                End::Exited(0) => return false,
                End::Exited(status) => (status, format!("exited with {status}")),
                End::Killed(signal) => (128 + signal, format!("was killed by signal {signal}")),
            };
            if code == 0 {
                code = failure.0;
                output.message(format!("rank {} {}", rank.number, failure.1));
                phase = Phase::Failed(Instant::now() + limits.grace);
            }
            false
        });
        if next.is_none_or(|next| Instant::now() < next) {
            continue;
        }
        phase = match phase {
            Phase::Running | Phase::Failed(_) => {
                if let (Phase::Running, Some(timeout)) = (&phase, limits.timeout) {
                    code = TIMED_OUT;
                    output.message(still_running(&running, timeout));
                }
                kill_all(&running, libc::SIGTERM);
                Phase::Terminated(Instant::now() + TERM_GRACE)
            }
            Phase::Terminated(_) | Phase::Killed => {
                kill_all(&running, libc::SIGKILL);
                Phase::Killed
            }
        };
    }
    code
}

fn kill_all(running: &[Rank], signal: i32) {
    for rank in running {
        system::kill_group(rank.process, signal);
    }
}

fn still_running(running: &[Rank], timeout: Duration) -> String {
    let mut numbers: Vec<_> = running.iter().map(|rank| rank.number).collect();
    numbers.sort_unstable();
    let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
    let (seconds, ranks) = (timeout.as_secs_f64(), numbers.join(", "));
    let word = if numbers.len() == 1 { "rank" } else { "ranks" };
    format!("timed out after {seconds} s, with {word} {ranks} still running")
}
