//! Prints the ranks' output: whole lines, prefixed with the rank, stdout to stdout and stderr to
//! stderr.
//!
//! Each pipe has a thread, so that no rank waits for another one's output. Both streams share a
//! lock, because they are often the same file. The reader of the output may stop, but `watch` must
//! continue: its messages are printed by a thread of their own.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Held while a line is written.
static LINE: Mutex<()> = Mutex::new(());
/// A longer line is split, so that a rank that prints no newline does not fill the memory.
const MAX_LINE: u64 = 1 << 20;
/// The stack size of the threads, which only copy bytes.
const STACK: usize = 64 << 10;
/// After all ranks have ended, an open pipe without output for this long is no longer read.
const MAX_SILENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub enum Stream {
    Stdout,
    Stderr,
}

pub struct Output {
    messages: Sender<String>,
    /// Every thread has a clone, dropped when the thread ends.
    unfinished: Sender<()>,
    finished: Receiver<()>,
}

impl Output {
    pub fn new() -> Self {
        let (messages, to_print) = channel();
        let (unfinished, finished) = channel();
        let clone = unfinished.clone();
        let print = move || {
            let _unfinished = clone;
            for text in to_print {
                // If stderr is closed, the error cannot be reported.
                let _ = write(Stream::Stderr, format!("nexar-run: {text}\n").as_bytes());
            }
        };
        // Without the thread nexar-run prints no messages, but works.
        let _ = thread::Builder::new().stack_size(STACK).spawn(print);
        Self { messages, unfinished, finished }
    }

    /// Prints a message of nexar-run on stderr. Does not wait.
    pub fn message(&self, text: impl Into<String>) {
        let _ = self.messages.send(text.into());
    }

    /// Starts a thread that prints the lines of a pipe.
    pub fn relay(
        &self,
        rank: u32,
        stream: Stream,
        pipe: impl Read + Send + 'static,
    ) -> io::Result<()> {
        let unfinished = self.unfinished.clone();
        let relay = move || {
            let _unfinished = unfinished;
            // If the output is closed, the pipe is closed too, so that the rank gets EPIPE, as in
            // any pipeline.
            let _ = print_lines(rank, stream, BufReader::new(pipe));
        };
        thread::Builder::new().stack_size(STACK).spawn(relay).map(drop)
    }

    /// Waits until all output is printed. False if `until` has passed first. Does not wait for a
    /// silent pipe, which a process that has left its rank's group may keep open.
    pub fn finish(self, until: Option<Instant>) -> bool {
        drop((self.messages, self.unfinished));
        loop {
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return false;
            }
            let left = until.map_or(MAX_SILENCE, |until| MAX_SILENCE.min(until - now));
            match self.finished.recv_timeout(left) {
                Err(RecvTimeoutError::Disconnected) => return true,
                // If the lock is held, a thread waits for the reader of the output, not for a rank.
                _ => match LINE.try_lock() {
                    Err(TryLockError::WouldBlock) => {}
                    _ if left == MAX_SILENCE => return true,
                    _ => {}
                },
            }
        }
    }
}

fn print_lines(rank: u32, stream: Stream, mut pipe: BufReader<impl Read>) -> io::Result<()> {
    let prefix = format!("[{rank}] ").into_bytes();
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(&prefix);
        let read = pipe.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        write(stream, &line)?;
    }
}

fn write(stream: Stream, line: &[u8]) -> io::Result<()> {
    let _line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    match stream {
        Stream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line)?;
            stdout.flush()
        }
        Stream::Stderr => io::stderr().lock().write_all(line),
    }
}
