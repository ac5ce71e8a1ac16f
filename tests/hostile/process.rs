//! A case's handle on a rank's process (`rank.rs`): sends requests and receives answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nexar::error::Code;

use super::check_time;

/// Set in the environment of a rank's process.
pub const ROLE: &str = "HOSTILE_RANK";
/// A process that prints nothing for this long is considered hung in every case.
const PATIENCE: Duration = Duration::from_secs(100);

/// A child process that executes the requests of `rank.rs`. Dropping the handle kills it.
pub struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

/// The code that a call returned, its duration in the rank's process, and its text.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: Code,
    pub ms: f64,
    pub text: String,
}

impl Process {
    pub fn start(environment: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), environment)
    }

    /// Like `start`, with a command that finally executes this program.
    pub fn start_by(mut command: Command, environment: &[(&str, &str)]) -> Self {
        for (name, _) in nexar::config::NAMES {
            command.env_remove(name);
        }
        // The default of all cases: loopback, and no shared memory, because the cases impair the
        // network. A case about addresses or shared memory overrides it.
        command.env("NEXAR_SOCKET_IFNAME", "lo").env("NEXAR_SHM_DISABLE", "1").env(ROLE, "1");
        command.envs(environment.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process starts");
        let requests = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, requests, answers }
    }

    /// Sends a request and does not wait for the answer.
    pub fn tell(&mut self, request: &str) {
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        assert!(sent.is_ok(), "a rank exited before this request: {request}");
    }

    /// The next line that the process prints.
    pub fn line(&mut self) -> String {
        let line = self.answers.recv_timeout(PATIENCE);
        line.unwrap_or_else(|why| panic!("process {} prints nothing: {why}", self.child.id()))
    }

    /// The next line that contains `words`; skips the lines before it.
    pub fn line_with(&mut self, words: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits for the next answer.
    pub fn answer(&mut self) -> Answer {
        let line = self.line();
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let number: i32 = word().parse().unwrap_or_else(|_| panic!("not an answer: {line}"));
        let code = Code::ALL.into_iter().find(|code| *code as i32 == number).unwrap();
        let ms = word().parse().unwrap();
        Answer { code, ms, text: word().to_owned() }
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, request: &str) -> Answer {
        self.tell(request);
        self.answer()
    }

    /// A unique id that this process creates and serves, in hexadecimal.
    pub fn id(&mut self) -> String {
        self.ask("id").succeeded().text
    }

    /// The current resources of the process: files, threads, KiB of memory, ports.
    pub fn measure(&mut self) -> HashMap<String, usize> {
        let text = self.ask("measure").succeeded().text;
        let pair = |word: &str| {
            let (name, value) = word.split_once('=').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        text.split(' ').map(pair).collect()
    }

    /// Resets the peak that `most_resident` returns to the current size.
    pub fn forget_most_resident(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// The peak resident memory of the process in KiB. Read from /proc, so that it works while the
    /// process is inside a call.
    pub fn most_resident(&self) -> i64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The loopback address of this process's UDP socket.
    pub fn address(&mut self) -> SocketAddr {
        ([127, 0, 0, 1], self.measure()["port"] as u16).into()
    }

    pub fn signal(&self, signal: i32) {
        let (signal, process) = (format!("-{signal}"), self.child.id().to_string());
        assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
    }

    /// The lines that an exiting process still prints.
    pub fn last_lines(self) -> impl Iterator<Item = String> {
        std::iter::from_fn(move || self.answers.recv_timeout(PATIENCE).ok())
    }

    /// Requests the process to exit, and waits for the exit.
    pub fn end(mut self) -> ExitStatus {
        self.tell("exit");
        self.ended()
    }

    /// Waits for the exit of a process that was requested to exit.
    pub fn ended(mut self) -> ExitStatus {
        // The kernel closes its output when it exits.
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => panic!("unexpected last line: {line}"),
            Err(RecvTimeoutError::Timeout) => panic!("process {} does not end", self.child.id()),
            Err(RecvTimeoutError::Disconnected) => {}
        }
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Code::Success, "{}", self.text);
        self
    }

    /// Asserts an error with this code whose text contains all the words.
    #[track_caller]
    pub fn failed(self, code: Code, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "after {} ms: {}", self.ms, self.text);
        for word in words {
            assert!(self.text.contains(word), "{word:?} is not in: {}", self.text);
        }
        self
    }

    /// Asserts the duration of the call; see `check_time`.
    #[track_caller]
    pub fn within(self, ms: f64) -> Self {
        check_time(&self.text, self.ms, ms);
        self
    }
}

/// Starts the ranks of a communicator. Rank 0 creates the id.
pub fn world(size: usize, environment: &[(&str, &str)]) -> Vec<Process> {
    let mut ranks: Vec<_> = (0..size).map(|_| Process::start(environment)).collect();
    join_all(&mut ranks);
    ranks
}

pub fn join_all(ranks: &mut [Process]) {
    let id = ranks[0].id();
    let size = ranks.len();
    for (rank, process) in ranks.iter_mut().enumerate() {
        process.tell(&format!("join {id} {rank} {size}"));
    }
    for process in ranks {
        process.answer().succeeded();
    }
}

/// Sends all ranks the same request and returns their answers.
pub fn ask_all(ranks: &mut [Process], request: &str) -> Vec<Answer> {
    ranks.iter_mut().for_each(|rank| rank.tell(request));
    ranks.iter_mut().map(Process::answer).collect()
}

/// The longest duration among the answers, in ms.
pub fn slowest(answers: &[Answer]) -> f64 {
    answers.iter().map(|answer| answer.ms).fold(0.0, f64::max)
}
