//! Tests nexar-run as a process: its output, its exit code, and that no process is left behind.
//!
//! Every wait has a deadline. Ranks are shells that print when they are ready, so that no test
//! sleeps to wait for one.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(100);
/// Replaces the shell by a process that runs until it is killed.
const FOREVER: &str = "exec sleep 1000";

/// A running nexar-run and the lines it prints. Killed when it is dropped.
struct Run {
    child: Child,
    lines: [Receiver<String>; 2],
    begin: Instant,
}

struct Ended {
    code: Option<i32>,
    stdout: Vec<String>,
    stderr: Vec<String>,
    took: Duration,
}

/// A command with default signal dispositions. The tests may inherit ignored signals, for example
/// from nohup.
fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", program]);
    command
}

fn command(arguments: &[&str]) -> Command {
    let mut command = with_default_signals(env!("CARGO_BIN_EXE_nexar-run"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let _ = send.send(String::from_utf8_lossy(&line.unwrap()).into_owned());
        }
    });
    receive
}

impl Run {
    fn start(arguments: &[&str]) -> Self {
        let begin = Instant::now();
        let mut child = command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nexar-run starts");
        let lines = [lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap())];
        Self { child, lines, begin }
    }

    /// Runs `script` in a shell on every rank.
    fn script(options: &[&str], script: &str) -> Self {
        Self::start(&[options, &["sh", "-c", script]].concat())
    }

    fn next(&self) -> String {
        self.lines[0].recv_timeout(DEADLINE).expect("another line of stdout")
    }

    /// Waits until `n` ranks have printed "ready".
    fn ready(&self, n: usize) {
        for _ in 0..n {
            assert!(self.next().ends_with("ready"));
        }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    fn end(mut self) -> Ended {
        let [stdout, stderr] = [0, 1].map(|stream| {
            let left = || DEADLINE.saturating_sub(self.begin.elapsed());
            let mut all = Vec::new();
            loop {
                match self.lines[stream].recv_timeout(left()) {
                    Ok(line) => all.push(line),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break all,
                    Err(_) => panic!("nexar-run is still running; it printed {all:?}"),
                }
            }
        });
        // Its output is closed, so it has ended.
        let status = self.child.wait().unwrap();
        let took = self.begin.elapsed();
        Ended { code: status.code(), stdout, stderr, took }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn the_environment_describes_the_rank_and_its_peers() {
    let script = "echo $NEXAR_RANK of $NEXAR_NRANKS at $NEXAR_COMM_ID with $NEXAR_COMM_SECRET \
                  in $NEXAR_JOB_ID";
    let ended = Run::script(&["-n", "3"], script).end();
    assert_eq!(ended.code, Some(0));
    let lines = sorted(ended.stdout);
    assert_eq!(lines.len(), 3);
    let shared = lines[0].strip_prefix("[0] 0 of 3 at 127.0.0.1:").expect(&lines[0]);
    let (port, secret) = shared.split_once(" with ").unwrap();
    let (secret, job) = secret.split_once(" in ").unwrap();
    assert_ne!(port.parse::<u16>().unwrap(), 0);
    for random in [secret, job] {
        assert!(random.len() == 64 && random.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert_eq!(lines[1], format!("[1] 1 of 3 at 127.0.0.1:{shared}"));
    assert_eq!(lines[2], format!("[2] 2 of 3 at 127.0.0.1:{shared}"));

    let again = Run::script(&["-n", "1"], "echo $NEXAR_COMM_SECRET; echo $NEXAR_JOB_ID").end();
    assert_eq!(again.stdout.len(), 2);
    for used in [secret, job] {
        assert!(!again.stdout.contains(&format!("[0] {used}")), "{used} is used in two runs");
    }
}

#[test]
fn a_port_can_be_chosen_and_a_foreign_secret_is_not_passed_on() {
    let mut run = command(&["-n", "1", "--timeout", "100", "--port", "4711", "sh", "-c"]);
    let script = "echo $NEXAR_COMM_ID ${NEXAR_COMM_SECRET_FILE-none}";
    let output = run.arg(script).env("NEXAR_COMM_SECRET_FILE", "/nowhere").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "[0] 127.0.0.1:4711 none\n");
}

#[test]
fn a_job_may_have_one_rank_and_arguments_are_not_changed() {
    let ended = Run::start(&["-n", "1", "printf", "%s|", "-n", "--help", "a b", ""]).end();
    assert_eq!(ended.stdout, ["[0] -n|--help|a b||"]);
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stderr, [""; 0]);
}

#[test]
fn lines_are_prefixed_with_the_rank_and_stay_on_their_stream() {
    let ended = Run::script(&["-n", "2"], "echo out; echo; echo err >&2").end();
    assert_eq!(sorted(ended.stdout), ["[0] ", "[0] out", "[1] ", "[1] out"]);
    assert_eq!(sorted(ended.stderr), ["[0] err", "[1] err"]);
}

#[test]
fn a_last_line_without_a_newline_gets_one() {
    let ended = Run::script(&["-n", "2"], "printf 'first\\nlast'; printf oops >&2").end();
    assert_eq!(sorted(ended.stdout), ["[0] first", "[0] last", "[1] first", "[1] last"]);
    assert_eq!(sorted(ended.stderr), ["[0] oops", "[1] oops"]);
}

#[test]
fn lines_of_several_ranks_are_never_mixed() {
    let script = "awk 'BEGIN { c = ENVIRON[\"NEXAR_RANK\"]; s = sprintf(\"%5000s\", \"\"); \
                  gsub(\" \", c, s); for (i = 0; i < 500; i++) print s }'";
    let ended = Run::script(&["-n", "4"], script).end();
    assert_eq!(ended.stdout.len(), 4 * 500);
    for line in ended.stdout {
        let rank = &line[1..2];
        assert_eq!(line, format!("[{rank}] {}", rank.repeat(5000)));
    }
}

#[test]
fn output_is_printed_while_the_ranks_are_running() {
    let run = Run::script(&["-n", "1"], &format!("echo now; {FOREVER}"));
    assert_eq!(run.next(), "[0] now");
}

#[test]
fn the_exit_code_is_that_of_the_failing_rank_which_is_named() {
    let ended = Run::script(&["-n", "4"], "[ $NEXAR_RANK = 2 ] && exit 3; exit 0").end();
    assert_eq!(ended.code, Some(3));
    assert_eq!(ended.stderr, ["nexar-run: rank 2 exited with 3"]);
}

#[test]
fn the_exit_code_of_a_rank_killed_by_a_signal_is_128_more() {
    let ended = Run::script(&["-n", "2"], "[ $NEXAR_RANK = 1 ] && kill -9 $$; exit 0").end();
    assert_eq!(ended.code, Some(128 + 9));
    assert_eq!(ended.stderr, ["nexar-run: rank 1 was killed by signal 9"]);
}

#[test]
fn after_a_failure_the_others_may_end_by_themselves_and_only_the_first_is_named() {
    // Rank 1 exits after the test has read that rank 0 has failed.
    let fifo = Fifo::new("blame");
    let script = format!("[ $NEXAR_RANK = 0 ] && exit 5; read x < {}; exit 6", fifo.path.display());
    let run = Run::script(&["-n", "2"], &script);
    let printed = run.lines[1].recv_timeout(DEADLINE).expect("the failure is printed at once");
    assert_eq!(printed, "nexar-run: rank 0 exited with 5");
    std::fs::write(&fifo.path, "go on\n").unwrap();
    let ended = run.end();
    assert_eq!(ended.code, Some(5));
    assert_eq!(ended.stderr, [""; 0]);
}

#[test]
fn after_a_failure_the_others_get_sigterm() {
    let script = format!("[ $NEXAR_RANK = 0 ] && exit 7; {FOREVER}");
    let ended = Run::script(&["-n", "3", "--grace", "0.1"], &script).end();
    assert_eq!(ended.code, Some(7));
    assert_eq!(ended.stderr, ["nexar-run: rank 0 exited with 7"]);
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
}

#[test]
fn a_rank_that_ignores_sigterm_gets_sigkill() {
    let script = "trap '' TERM; echo ready; while :; do sleep 1000; done";
    // Long enough for both ranks to be ready.
    let run = Run::script(&["-n", "2", "--timeout", "5"], script);
    run.ready(2);
    let ended = run.end();
    assert_eq!(ended.code, Some(124));
    assert!(ended.took >= Duration::from_secs(7), "SIGKILL after {:?}", ended.took);
}

#[test]
fn processes_that_a_rank_has_started_end_with_it() {
    // The sleeps keep the pipes open: if they did not end, nexar-run would wait for their lines.
    let ended = Run::script(&["-n", "2"], "sleep 1000 & exit 0").end();
    assert_eq!(ended.code, Some(0));
    let ended = Run::script(&["-n", "2", "--timeout", "0.2"], "sleep 1000; true").end();
    assert_eq!(ended.code, Some(124));
}

#[test]
fn a_timeout_names_the_ranks_that_were_still_running() {
    let script = format!("[ $NEXAR_RANK = 1 ] && exit 0; {FOREVER}");
    // Long enough for rank 1 to end.
    let ended = Run::script(&["-n", "3", "--timeout", "5.5"], &script).end();
    assert_eq!(ended.code, Some(124));
    assert_eq!(ended.stderr, ["nexar-run: timed out after 5.5 s, with ranks 0, 2 still running"]);
    assert!(ended.took >= Duration::from_millis(5500));
}

#[test]
fn a_reader_that_does_not_read_does_not_delay_the_timeout() {
    let mut child = command(&["-n", "1", "--timeout", "0.3", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // stdout is not read.
    let stderr = lines(child.stderr.take().unwrap());
    let printed = stderr.recv_timeout(DEADLINE);
    let (send, ended) = channel();
    let stdout = child.stdout.take();
    let id = child.id();
    thread::spawn(move || send.send(child.wait().unwrap()));
    let status = ended.recv_timeout(DEADLINE);
    if status.is_err() {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
    }
    drop((stdout, printed));
    assert_eq!(status.expect("nexar-run ends").code(), Some(124));
}

#[test]
fn signals_are_passed_on_to_every_rank() {
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let script =
            format!("trap 'echo got {signal}; exit 0' {signal}; echo ready; sleep 1000 & wait");
        let run = Run::script(&["-n", "3"], &script);
        run.ready(3);
        run.signal(signal);
        let ended = run.end();
        assert_eq!(sorted(ended.stdout), [0, 1, 2].map(|r| format!("[{r}] got {signal}")));
        assert_eq!(ended.code, Some(0), "every rank has exited with 0");

        let run = Run::script(&["-n", "2"], &format!("echo ready; {FOREVER}"));
        run.ready(2);
        run.signal(signal);
        assert_eq!(run.end().code, Some(128 + number));
    }
}

#[test]
fn a_rank_has_the_signal_mask_and_dispositions_that_nexar_run_inherited() {
    // Signals 1 to 28; the C library uses some above 31.
    let show = ["sed", "-nE", "s/^(Sig(Blk|Ign)).*(.{7})$/\\1 \\3/p", "/proc/self/status"];
    let alone = with_default_signals(show[0]).args(&show[1..]).output().unwrap();
    let ended = Run::start(&[&["-n", "1"], &show[..]].concat()).end();
    let shown: Vec<_> =
        ended.stdout.iter().map(|line| line.strip_prefix("[0] ").unwrap()).collect();
    assert_eq!(shown, String::from_utf8(alone.stdout).unwrap().lines().collect::<Vec<_>>());
    assert_eq!(shown.len(), 2);

    // As with nohup: SIGHUP, the last bit, stays ignored.
    let script = "trap '' HUP; exec \"$0\" -n 1 --timeout 100 grep SigIgn /proc/self/status";
    let nohup = ["-c", script, env!("CARGO_BIN_EXE_nexar-run")];
    let output = with_default_signals("sh").args(nohup).output().unwrap();
    let ignored = String::from_utf8(output.stdout).unwrap();
    assert!(ignored.trim_end().ends_with('1'), "{ignored}");
}

#[test]
fn ranks_die_when_nexar_run_is_killed() {
    let fifo = Fifo::new("orphan");
    let script = format!("exec 3>{}; echo ready; {FOREVER}", fifo.path.display());
    let ranks_ended = fifo.at_end();
    let run = Run::script(&["-n", "3"], &script);
    run.ready(3);
    run.signal("KILL");
    ranks_ended.recv_timeout(DEADLINE).expect("the ranks end");
    let mut run = run;
    assert_eq!(run.child.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_program_that_does_not_exist_is_127_and_one_message() {
    let ended = Run::start(&["-n", "4", "./no-such-program"]).end();
    assert_eq!(ended.code, Some(127));
    assert_eq!(ended.stderr, ["nexar-run: cannot start ./no-such-program: program not found"]);
    let ended = Run::start(&["-n", "4", "/etc/passwd"]).end();
    assert_eq!(ended.code, Some(126));
    assert!(ended.stderr[0].starts_with("nexar-run: cannot start /etc/passwd: "));
}

#[test]
fn standard_input_is_empty() {
    assert_eq!(Run::start(&["-n", "2", "cat"]).end().code, Some(0));
}

#[test]
fn wrong_usage_is_explained() {
    for wrong in [
        &["true"][..],
        &["-n", "0", "true"],
        &["-n", "x", "true"],
        &["-n", "2"],
        &["-n", "2", "--timeout", "-1", "true"],
        &["-n", "2", "--timeout", "soon", "true"],
        &["-n", "2", "--port", "65536", "true"],
    ] {
        let ended = Run::start(wrong).end();
        assert_eq!(ended.code, Some(2), "{wrong:?}");
        assert!(ended.stderr[0].starts_with("error: "), "{wrong:?}: {:?}", ended.stderr);
    }
    let help = Run::start(&["--help"]).end();
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.iter().all(|line| line.len() <= 100), "{:#?}", help.stdout);
}

/// A named pipe, removed when it is dropped.
struct Fifo {
    path: PathBuf,
}

impl Fifo {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}.{}.fifo", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self { path }
    }

    /// Receives a message when all processes that have opened the pipe for writing have ended.
    fn at_end(&self) -> Receiver<()> {
        let (send, receive) = channel();
        let path = self.path.clone();
        thread::spawn(move || {
            let mut nothing = Vec::new();
            std::fs::File::open(path).unwrap().read_to_end(&mut nothing).unwrap();
            send.send(())
        });
        receive
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
