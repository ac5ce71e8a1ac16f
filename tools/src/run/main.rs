//! nexar-run: starts the ranks of a job as processes of this machine, prints their output, passes
//! signals on to them, and returns their exit code.
//!
//! ```text
//!   launch   start the ranks: environment, process group, pipes
//!   output   print their lines, prefixed with the rank
//!   watch    wait for them; after a failure or a timeout, end the others
//!   system   system calls that std lacks: signals, process groups (the only unsafe code)
//! ```
//!
//! Invariant: no rank outlives nexar-run, however it ends.

mod launch;
mod output;
mod system;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

/// Start N processes of a program on this machine as the ranks of one nexar job.
///
/// The environment of each process describes its rank and its peers to nexarCommInitFromEnv. The
/// lines that the ranks print are prefixed with the rank, as in "[2] hello".
#[derive(Parser)]
#[command(version, verbatim_doc_comment, override_usage = USAGE, after_long_help = AFTER_HELP)]
struct Arguments {
    /// Number of ranks to start
    #[arg(short, long = "ranks", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    n: u32,

    /// End all ranks after this time, with exit code 124
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Time that the other ranks have to end by themselves after a rank has failed
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    grace: Duration,

    /// UDP port of 127.0.0.1 at which rank 0 listens; a free one by default
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

const USAGE: &str = "nexar-run -n <N> [OPTIONS] <PROGRAM> [ARGUMENT]...";

const AFTER_HELP: &str = "\
Example:
  nexar-run -n 4 ./train --epochs 10

Environment of each rank:
  NEXAR_RANK         0 to N-1
  NEXAR_NRANKS       N
  NEXAR_COMM_ID      127.0.0.1:port, where rank 0 listens
  NEXAR_COMM_SECRET  a random secret of this run
  NEXAR_JOB_ID       a random name of this run

Exit code:
  0        all ranks exited with 0
  1 - 255  that of the first rank that failed; 128 + the signal if a signal killed it
  124      the timeout has passed
  126      the program cannot be started
  127      the program was not found

SIGINT (Ctrl-C), SIGTERM and SIGHUP are passed on to all ranks. When a rank fails, the others
have --grace seconds to end by themselves, then get SIGTERM, and SIGKILL 2 s later. If nexar-run
itself is killed, so are the ranks. Standard input of the ranks is empty. Standard output of a C
program is buffered, as with any pipe; call fflush to print a line at once.";

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // The clock must be able to represent the end.
    let countable = |seconds: &Duration| Instant::now().checked_add(*seconds).is_some();
    seconds.filter(countable).ok_or_else(|| "not a number of seconds".to_owned())
}

/// How long printing the output may take after the timeout.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The exit code of `timeout`.
const TIMED_OUT: u8 = 124;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let timeout_at = arguments.timeout.map(|timeout| Instant::now() + timeout);
    // Before the first thread, so that all threads inherit the mask and `watch` gets the signals.
    let signals = system::Signals::block();
    let output = output::Output::new();
    let code = match launch::start(&arguments, &signals, &output) {
        Ok(ranks) => {
            let (timeout, grace) = (arguments.timeout, arguments.grace);
            let limits = watch::Limits { timeout, timeout_at, grace };
            watch::until_all_ended(ranks, &signals, &limits, &output)
        }
        Err(failure) => {
            output.message(failure.text);
            failure.code
        }
    };
    // From here on a signal terminates nexar-run.
    signals.restore();
    // The reader of the output may be slow: wait for it, but not beyond the timeout.
    let flushed = output.finish(timeout_at.map(|at| at.max(Instant::now() + FLUSH_TIMEOUT)));
    ExitCode::from(if flushed || code != 0 { code } else { TIMED_OUT })
}
