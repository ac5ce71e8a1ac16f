//! What the ranks print: whole lines with the rank in front, stdout to stdout and stderr to stderr.
//!
//! A thread for each pipe, because a rank must never wait for another's; one lock for both streams,
//! because they often end in the same file. The reader of our output may stop, and the watch
//! must go on: its sentences are printed by a thread of their own.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Held while a line is written.
static LINE: Mutex<()> = Mutex::new(());
/// A longer line is cut, so that a rank that never ends one does not fill the memory.
const LONGEST_LINE: u64 = 1 << 20;
/// Enough for a thread that moves bytes from one buffer to another.
const STACK: usize = 64 << 10;
/// A pipe that is still open, and silent, for so long after all ranks have ended is given up.
const SILENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub enum Stream {
    Stdout,
    Stderr,
}

pub struct Output {
    words: Sender<String>,
    /// Every thread has a copy of it, and drops it at its end.
    unfinished: Sender<()>,
    finished: Receiver<()>,
}

impl Output {
    pub fn new() -> Self {
        let (words, spoken) = channel();
        let (unfinished, finished) = channel();
        let mine = unfinished.clone();
        let voice = move || {
            let _unfinished = mine;
            for text in spoken {
                // Nobody is left to be told if stderr is gone.
                let _ = write(Stream::Stderr, format!("nexar-run: {text}\n").as_bytes());
            }
        };
        // Without the thread nexar-run is silent, but does its work.
        let _ = thread::Builder::new().stack_size(STACK).spawn(voice);
        Self { words, unfinished, finished }
    }

    /// A sentence of nexar-run's own, on stderr. Never waits.
    pub fn say(&self, text: impl Into<String>) {
        let _ = self.words.send(text.into());
    }

    /// Starts the thread that passes on what comes through a pipe.
    pub fn relay(
        &self,
        rank: u32,
        stream: Stream,
        pipe: impl Read + Send + 'static,
    ) -> io::Result<()> {
        let unfinished = self.unfinished.clone();
        let relay = move || {
            let _unfinished = unfinished;
            // If our own output is closed, closing the pipe tells the rank, as in any pipeline.
            let _ = pass_on(rank, stream, BufReader::new(pipe));
        };
        thread::Builder::new().stack_size(STACK).spawn(relay).map(drop)
    }

    /// Waits until everything is printed, and tells whether it was. A pipe that a process which
    /// left its rank's group still holds is not waited for.
    pub fn finish(self, until: Option<Instant>) -> bool {
        drop((self.words, self.unfinished));
        loop {
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return false;
            }
            let left = until.map_or(SILENCE, |until| SILENCE.min(until - now));
            match self.finished.recv_timeout(left) {
                Err(RecvTimeoutError::Disconnected) => return true,
                // The writer waits for the reader of our output, not for a rank.
                _ => match LINE.try_lock() {
                    Err(TryLockError::WouldBlock) => {}
                    _ if left == SILENCE => return true,
                    _ => {}
                },
            }
        }
    }
}

fn pass_on(rank: u32, stream: Stream, mut pipe: BufReader<impl Read>) -> io::Result<()> {
    let prefix = format!("[{rank}] ").into_bytes();
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(&prefix);
        let read = pipe.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
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
