//! Log records to stderr or a file if `NEXAR_DEBUG` is set; otherwise nexar prints nothing.
//!
//! A `tracing` subscriber without spans: one line per event, `host:pid nexar LEVEL module: text`.
//! It is installed once per process, unless the program has installed a subscriber of its own.
//! Invariant: a record that cannot be written is dropped and counted. A full pipe or terminal
//! delays the first such record by `WRITE_TIMEOUT` and the others not at all, on every thread.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::config::{Config, Debug};

/// How long a record waits for space in a full pipe.
const WRITE_TIMEOUT: Duration = Duration::from_millis(250);
/// PIPE_BUF: a pipe that poll(2) reports as writable accepts this many bytes without blocking.
const PIPE_BUF: usize = 4096;

/// Installs the log that the configuration describes.
pub fn start(config: &Config) {
    let level = match config.debug {
        Debug::Silent => return,
        Debug::Warn => Level::WARN,
        Debug::Info => Level::INFO,
        Debug::Trace => Level::TRACE,
    };
    let log = Log {
        level,
        subsystems: config.debug_subsys.clone(),
        host: host_name(),
        path: config.debug_file.clone(),
        files: Mutex::new(HashMap::new()),
        dropped: AtomicU64::new(0),
    };
    // Fails if the program has installed a subscriber of its own, which stays.
    let _ = tracing::subscriber::set_global_default(log);
}

struct Log {
    level: Level,
    subsystems: Vec<String>,
    host: String,
    /// File name with `%h`, `%p`, `%r`. `None`: stderr.
    path: Option<String>,
    /// Open files by their expanded names; `None` if a file cannot be opened.
    files: Mutex<HashMap<String, Option<File>>>,
    /// Records dropped since the last record that was written.
    dropped: AtomicU64,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let Some(module) = subsystem(metadata.target()) else { return false };
        let chosen =
            self.subsystems.is_empty() || self.subsystems.iter().any(|name| name == module);
        chosen && *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let mut record = Record::default();
        event.record(&mut record);
        let module = subsystem(event.metadata().target()).unwrap_or("nexar");
        let line = format!(
            "{}:{} nexar {} {module}: {}\n",
            self.host,
            std::process::id(),
            event.metadata().level(),
            record.text
        );
        self.write(record.rank, &line);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1) // nexar opens no spans
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Log {
    fn write(&self, rank: Option<u64>, line: &str) {
        let Some(template) = &self.path else {
            return self.write_record(std::io::stderr().as_fd(), line);
        };
        let path = expand(template, &self.host, rank);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.entry(path).or_insert_with_key(|path| open(path).ok());
        match file {
            Some(file) => self.write_record(file.as_fd(), line),
            None => self.write_record(std::io::stderr().as_fd(), line),
        }
    }

    /// Writes a record, preceded by a notice if records were dropped before it.
    fn write_record(&self, file: BorrowedFd<'_>, line: &str) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let timeout = if dropped == 0 { WRITE_TIMEOUT } else { Duration::ZERO };
        let notice = match dropped {
            0 => String::new(),
            _ => {
                format!("nexar: {dropped} log records were dropped: the log was not read in time\n")
            }
        };
        if write_all(file, format!("{notice}{line}").as_bytes(), timeout).is_ok() {
            self.dropped.fetch_sub(dropped, Ordering::Relaxed);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Opens a file for records. For a named pipe, does not wait for a reader.
fn open(path: &str) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    File::options().create(true).append(true).custom_flags(flags).open(path)
}

/// Writes all bytes, but waits at most `timeout` for space in a pipe, a socket or a terminal. The
/// program may share the file description, so its O_NONBLOCK flag is not changed; each write is
/// non-blocking by itself.
fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8], timeout: Duration) -> rustix::io::Result<()> {
    let is_regular =
        FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) == FileType::RegularFile;
    while !bytes.is_empty() {
        let written =
            if is_regular { rustix::io::write(file, bytes) } else { try_write(file, bytes) };
        match written {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if is_writable(file, timeout) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn try_write(file: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    // The offset -1 means the current position, which also works for pipes.
    let current = u64::MAX;
    match rustix::io::pwritev2(file, &[IoSlice::new(bytes)], current, ReadWriteFlags::NOWAIT) {
        // This kind of file does not support RWF_NOWAIT: poll before writing.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            if !is_writable(file, Duration::ZERO) {
                return Err(Errno::AGAIN);
            }
            rustix::io::write(file, &bytes[..bytes.len().min(PIPE_BUF)])
        }
        written => written,
    }
}

fn is_writable(file: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout =
        Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
    poll(&mut polled, Some(&timeout)).is_ok() && polled[0].revents().contains(PollFlags::OUT)
}

/// The first module below the crate: `nexar::transport::mem` is `transport`.
fn subsystem(target: &str) -> Option<&str> {
    let below = target.strip_prefix("nexar::")?;
    below.split("::").next()
}

fn expand(template: &str, host: &str, rank: Option<u64>) -> String {
    let rank = rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
    template.replace("%h", host).replace("%p", &std::process::id().to_string()).replace("%r", &rank)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// The text of an event and its field `rank`, if any.
#[derive(Default)]
struct Record {
    rank: Option<u64>,
    text: String,
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.text, "{value:?}");
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "rank" {
            self.rank = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_takes_host_process_and_rank() {
        let pid = std::process::id();
        assert_eq!(expand("log.%h.%p.%r", "node7", Some(3)), format!("log.node7.{pid}.3"));
        assert_eq!(expand("%r", "node7", None), "-");
    }

    #[test]
    fn a_pipe_without_a_reader_blocks_no_thread_and_dropped_records_are_counted() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let log = Log {
            level: Level::INFO,
            subsystems: Vec::new(),
            host: String::new(),
            path: None,
            files: Mutex::default(),
            dropped: AtomicU64::new(0),
        };
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let line = format!("{}\n", "x".repeat(9999));
                (0..50).for_each(|_| log.write_record(writer.as_fd(), &line));
                let _ = sender.send(());
            });
            let in_time = ended.recv_timeout(Duration::from_secs(10)).is_ok();
            let mut read = vec![0; 1 << 20];
            let first = rustix::io::read(&reader, &mut read).unwrap();
            if !in_time {
                while ended.try_recv().is_err() {
                    let _ = rustix::io::read(&reader, &mut read);
                }
            }
            assert!(in_time, "a thread blocked until its log was read");
            let dropped = log.dropped.load(Ordering::Relaxed);
            assert!((1..50).contains(&dropped) && first > 0, "{dropped} of 50");
            log.write_record(writer.as_fd(), "the next\n");
            let next = rustix::io::read(&reader, &mut read).unwrap();
            let next = String::from_utf8_lossy(&read[..next]).into_owned();
            assert!(
                next.contains(&format!("{dropped} log records")) && next.ends_with("the next\n")
            );
        });
    }

    #[test]
    fn a_subsystem_is_a_module_of_this_crate() {
        assert_eq!(subsystem("nexar::transport::mem"), Some("transport"));
        assert_eq!(subsystem("nexar::config"), Some("config"));
        assert_eq!(subsystem("other::config"), None);
    }
}
