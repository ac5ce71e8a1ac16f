//! Ranks of ordinary users: with the usual limits of the system, and of different users on one
//! host.
//!
//! If the tests do not run as root, the ordinary user is the one that runs them.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::process::{Process, ask_all, join_all, slowest};
use super::{Case, check_time, report, row, times};

pub const CASES: [Case; 4] = [
    ("an_ordinary_user_shares_memory_between_many_ranks", many),
    ("ranks_of_different_users_join_as_fast_as_others", users),
    ("a_log_that_nobody_reads_stops_nobody", unread_log),
    ("other_cases_hold_for_an_ordinary_user", again),
];

/// The ids of the user and the group "nobody" on most systems.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets a command run as an ordinary user.
fn as_user(mut command: Command) -> Command {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Whether an ordinary user can start this program.
fn can_start() -> bool {
    let mut readable = Command::new("test");
    readable.arg("-x").arg(std::env::current_exe().unwrap());
    as_user(readable).status().is_ok_and(|status| status.success())
}

/// A command that starts this program as an ordinary user, with the limits of most systems.
fn ordinary() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 1024 && exec \"$0\""]).arg(std::env::current_exe().unwrap());
    as_user(command)
}

const SHARING: [(&str, &str); 2] = [("NEXAR_SHM_DISABLE", "0"), ("NEXAR_DEBUG", "WARN")];

fn many() {
    if !can_start() {
        return report("skipped: an ordinary user cannot read this program".to_owned());
    }
    let is_full = times(0, 1) == 1;
    for size in [64, 48, 24] {
        let tries: Vec<_> = (0..times(1, 20)).map(|_| without_shared_memory(size)).collect();
        let lost: Vec<_> = tries.iter().map(|(lost, _)| *lost).collect();
        let in_time = tries.iter().all(|(_, joined)| *joined < SHARING_TIME);
        // On a busy machine only fewer ranks open their memory in time.
        if in_time || is_full || size == 24 {
            let name =
                format!("ranks of an ordinary user, {size} of one host: without shared memory");
            row(&name, lost.len(), 0.0, "ranks", &lost);
        }
        if in_time && !is_full {
            return;
        }
    }
}

/// How long ranks of a host wait for each other's memory before they use QUIC instead.
const SHARING_TIME: Duration = Duration::from_secs(10);

/// Returns the number of ranks that do not share memory with all others, and the time to join.
fn without_shared_memory(size: usize) -> (f64, Duration) {
    let start = |_| Process::start_by(ordinary(), &SHARING);
    let mut ranks: Vec<_> = (0..size).map(start).collect();
    let began = Instant::now();
    join_all(&mut ranks);
    let joined = began.elapsed();
    report(format!("{size} ranks joined after {joined:.1?}"));
    let apart = ranks.iter_mut().filter_map(|rank| {
        let measured = rank.measure();
        (measured["segments"] != size).then_some(measured["segments"])
    });
    (apart.count() as f64, joined)
}

fn users() {
    if !is_root() || !can_start() {
        return report("skipped: needs root, and a program that other users can read".to_owned());
    }
    let own = || Command::new(std::env::current_exe().unwrap());
    let (tries, mut joins, mut splits) = (times(2, 100), Vec::new(), Vec::new());
    for _ in 0..tries {
        let mut ranks =
            [own(), as_user(own()), own()].map(|command| Process::start_by(command, &SHARING));
        let began = Instant::now();
        join_all(&mut ranks);
        joins.push(began.elapsed().as_secs_f64() * 1e3);
        for answer in ask_all(&mut ranks, "allreduce 1000") {
            assert_eq!(answer.succeeded().text, "exact");
        }
        ask_all(&mut ranks, "begin_split").into_iter().for_each(|answer| drop(answer.succeeded()));
        let split = ask_all(&mut ranks, "end_split");
        splits.push(slowest(&split));
        split.into_iter().for_each(|answer| drop(answer.succeeded()));
    }
    row("ranks of different users: time to join", tries, 1000.0, "ms", &joins);
    row("ranks of different users: time to split", tries, 1000.0, "ms", &splits);
    let slowest = joins.iter().chain(&splits).copied().fold(0.0, f64::max);
    assert!(slowest < SHARING_TIME.as_secs_f64() * 1e3, "they waited for shared memory");
    check_time("ranks of different users", slowest, 5000.0);
}

fn unread_log() {
    let environment = [("NEXAR_DEBUG", "TRACE"), ("NEXAR_PEER_TIMEOUT_MS", "5000")];
    let mut pipes = Vec::new();
    let mut start = || {
        let (reader, writer) = std::io::pipe().unwrap();
        pipes.push(reader);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.stderr(Stdio::from(writer));
        Process::start_by(command, &environment)
    };
    let mut ranks = vec![start(), start()];
    join_all(&mut ranks);
    // Each call logs a line or more, and a pipe holds a few hundred.
    for _ in 0..2000 {
        for answer in ask_all(&mut ranks, "allreduce 10") {
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
}

/// Short cases of each kind.
const AGAIN: [&str; 6] = [
    "an_id_creates_one_communicator",
    "an_abort_of_the_parent_ends_a_split_at_once",
    "an_abort_ends_the_operations_of_the_others",
    "a_rank_killed_inside_a_long_message",
    "all_ranks_report_different_counts",
    "ranks_meet_over_ipv6_loopback",
];

fn again() {
    if !is_root() || !can_start() {
        return report("skipped: needs root, and a program that other users can read".to_owned());
    }
    let mut command = as_user(Command::new(std::env::current_exe().unwrap()));
    let output = command.args(AGAIN).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = text.lines().filter(|line| line.contains(" ... ")).collect::<Vec<_>>();
    verdict.iter().for_each(|line| report((*line).to_owned()));
    assert!(output.status.success() && verdict.len() == AGAIN.len(), "{text}");
}
