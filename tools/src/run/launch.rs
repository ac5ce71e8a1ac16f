//! Starts the ranks. Each has the environment that nexarCommInitFromEnv reads, a process group of
//! its own, and pipes for its output.
//!
//! With a group of its own, a rank gets a Ctrl-C once, from nexar-run, and a signal for a rank
//! reaches all processes that it has started.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Arguments;
use crate::output::{Output, Stream};
use crate::system::{self, Signals};

/// Why the ranks could not be started, and the exit code for it.
pub struct Failure {
    pub text: String,
    pub code: u8,
}

/// A running rank. Its process leads the process group with the same number.
pub struct Rank {
    pub number: u32,
    pub process: libc::pid_t,
}

/// Starts all ranks or none: if one cannot be started, the others are killed.
pub fn start(
    arguments: &Arguments,
    signals: &Signals,
    output: &Output,
) -> Result<Vec<Rank>, Failure> {
    let failed =
        |what: &str, why: io::Error| Failure { text: format!("cannot {what}: {why}"), code: 1 };
    let port = match arguments.port {
        Some(port) => port,
        None => free_port().map_err(|why| failed("find a free UDP port", why))?,
    };
    let secret = random().map_err(|why| failed("create a secret", why))?;
    let job = random().map_err(|why| failed("create a job id", why))?;

    let mut ranks = Vec::new();
    for number in 0..arguments.n {
        let mut command = Command::new(&arguments.program[0]);
        command
            .args(&arguments.program[1..])
            .env("NEXAR_RANK", number.to_string())
            .env("NEXAR_NRANKS", arguments.n.to_string())
            .env("NEXAR_COMM_ID", format!("127.0.0.1:{port}"))
            .env("NEXAR_COMM_SECRET", &secret)
            .env_remove("NEXAR_COMM_SECRET_FILE")
            .env("NEXAR_JOB_ID", &job)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        system::end_with_parent(&mut command, signals);
        let started = command.spawn().map_err(|why| cannot_start(arguments, number, &why));
        let relayed = started.and_then(|mut child| {
            let process = child.id().cast_signed();
            ranks.push(Rank { number, process });
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            output
                .relay(number, Stream::Stdout, stdout.expect("stdout is a pipe"))
                .and_then(|()| {
                    output.relay(number, Stream::Stderr, stderr.expect("stderr is a pipe"))
                })
                .map_err(|why| failed("start a thread", why))
        });
        if let Err(failure) = relayed {
            for rank in ranks {
                system::kill_group(rank.process, libc::SIGKILL);
            }
            return Err(failure);
        }
    }
    Ok(ranks)
}

/// A UDP port that is free now. Rank 0 binds it shortly afterwards.
fn free_port() -> io::Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// 32 random bytes in hexadecimal.
fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn cannot_start(arguments: &Arguments, number: u32, why: &io::Error) -> Failure {
    let program = arguments.program[0].display();
    let (reason, code) = match why.kind() {
        // The file exists, so the kernel did not find its interpreter.
        io::ErrorKind::NotFound if Path::new(&arguments.program[0]).is_file() => {
            ("its interpreter was not found, or it is not in PATH".to_owned(), 127)
        }
        io::ErrorKind::NotFound => ("program not found".to_owned(), 127),
        _ => (why.to_string(), 126),
    };
    let rank = if number == 0 { String::new() } else { format!(" as rank {number}") };
    Failure { text: format!("cannot start {program}{rank}: {reason}"), code }
}
