//! Log records to stderr or a file, if `NEXAR_DEBUG` asks; otherwise nexar never prints.
//!
//! An own `tracing` subscriber without spans: one line per event,
//! `host:pid nexar LEVEL module: text`. Installed once per process; a Rust program that links
//! nexar and has a subscriber of its own keeps that one.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::config::{Config, Debug};

/// Begins logging as the configuration says.
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
    };
    // A subscriber that is already there belongs to the program and stays.
    let _ = tracing::subscriber::set_global_default(log);
}

struct Log {
    level: Level,
    subsystems: Vec<String>,
    host: String,
    /// File name with `%h`, `%p`, `%r`; stderr if there is none.
    path: Option<String>,
    /// Open files by their expanded names; `None` for one that could not be opened.
    files: Mutex<HashMap<String, Option<File>>>,
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
            let _ = std::io::stderr().write_all(line.as_bytes());
            return;
        };
        let path = expand(template, &self.host, rank);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files
            .entry(path)
            .or_insert_with_key(|path| File::options().create(true).append(true).open(path).ok());
        // A log that cannot be written must not stop the program it belongs to.
        let _ = match file {
            Some(file) => file.write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }
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

/// The text of an event, and its `rank` field if it has one.
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
    fn a_subsystem_is_a_module_of_this_crate() {
        assert_eq!(subsystem("nexar::transport::mem"), Some("transport"));
        assert_eq!(subsystem("nexar::config"), Some("config"));
        assert_eq!(subsystem("other::config"), None);
    }
}
