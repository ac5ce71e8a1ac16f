//! Settings from the environment. The only reader of it.
//!
//! Read once, when the process first calls nexar. A wrong value is an error of every
//! communicator's creation; an unknown `NEXAR_*` name is warned about with the nearest known one.

use std::sync::OnceLock;
use std::time::Duration;

use crate::error::{Error, Result};

/// Every name nexar reads, with what it means. The README lists the same ones.
pub const NAMES: [(&str, &str); 5] = [
    ("NEXAR_ALGO", "algorithm per collective: allreduce:ring,broadcast:binomial"),
    ("NEXAR_DEBUG", "log level: WARN, INFO or TRACE; silent when unset"),
    ("NEXAR_DEBUG_FILE", "log file instead of stderr; %h host, %p process, %r rank"),
    ("NEXAR_DEBUG_SUBSYS", "log only these modules: capi,comm"),
    ("NEXAR_OP_TIMEOUT_MS", "longest time one operation may take, 600000 by default"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debug {
    Silent,
    Warn,
    Info,
    Trace,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub debug: Debug,
    pub debug_file: Option<String>,
    /// Modules to log; empty means all.
    pub debug_subsys: Vec<String>,
    /// As written; `collective::select` knows the names in it.
    pub algo: String,
    pub op_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            debug: Debug::Silent,
            debug_file: None,
            debug_subsys: Vec::new(),
            algo: String::new(),
            op_timeout: Duration::from_secs(600),
        }
    }
}

/// The settings of this process.
pub fn get() -> Result<&'static Config> {
    static CONFIG: OnceLock<Result<Config>> = OnceLock::new();
    CONFIG
        .get_or_init(|| Config::parse(std::env::vars_os().map(lossy)))
        .as_ref()
        .map_err(Clone::clone)
}

/// One sentence for each `NEXAR_*` name of the environment that nexar does not know.
pub fn unknown_names() -> Vec<String> {
    let known = |name: &str| NAMES.iter().any(|(known, _)| *known == name);
    std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with("NEXAR_") && !known(name))
        .map(|name| format!("{name} is not a setting of nexar; the nearest is {}", nearest(&name)))
        .collect()
}

impl Config {
    fn parse(variables: impl Iterator<Item = (String, String)>) -> Result<Self> {
        let mut config = Self::default();
        for (name, value) in variables {
            match name.as_str() {
                "NEXAR_ALGO" => config.algo = value,
                "NEXAR_DEBUG" => config.debug = debug(&value)?,
                "NEXAR_DEBUG_FILE" => {
                    config.debug_file = Some(value).filter(|path| !path.is_empty())
                }
                "NEXAR_DEBUG_SUBSYS" => config.debug_subsys = subsystems(&value)?,
                "NEXAR_OP_TIMEOUT_MS" => config.op_timeout = milliseconds(&name, &value)?,
                _ => {}
            }
        }
        Ok(config)
    }
}

fn lossy((name, value): (std::ffi::OsString, std::ffi::OsString)) -> (String, String) {
    (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
}

fn debug(value: &str) -> Result<Debug> {
    match value.to_ascii_uppercase().as_str() {
        "" => Ok(Debug::Silent),
        "WARN" => Ok(Debug::Warn),
        "INFO" => Ok(Debug::Info),
        "TRACE" => Ok(Debug::Trace),
        _ => Err(Error::Argument(format!("NEXAR_DEBUG={value}: expected WARN, INFO or TRACE"))),
    }
}

/// Modules that log.
const SUBSYSTEMS: [&str; 2] = ["capi", "comm"];

fn subsystems(value: &str) -> Result<Vec<String>> {
    let words = value.split(',').map(|word| word.trim().to_ascii_lowercase());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    match words.iter().find(|word| !SUBSYSTEMS.contains(&word.as_str())) {
        Some(word) => Err(Error::Argument(format!(
            "NEXAR_DEBUG_SUBSYS={value}: {word} is none of {}",
            SUBSYSTEMS.join(", ")
        ))),
        None => Ok(words),
    }
}

fn milliseconds(name: &str, value: &str) -> Result<Duration> {
    match value.trim().parse::<u32>() {
        Ok(ms) if ms > 0 => Ok(Duration::from_millis(ms.into())),
        _ => Err(Error::Argument(format!(
            "{name}={value}: expected a whole number of milliseconds from 1 to {}",
            u32::MAX
        ))),
    }
}

fn nearest(name: &str) -> &'static str {
    let by_distance =
        NAMES.iter().map(|(known, _)| *known).min_by_key(|known| distance(name, known));
    by_distance.expect("there are known names")
}

/// Levenshtein's edit distance: insertions, deletions and replacements to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Config> {
        Config::parse(variables.iter().map(|(name, value)| (name.to_string(), value.to_string())))
    }

    #[test]
    fn an_empty_environment_is_silent_with_ten_minutes_per_operation() {
        let config = parse(&[("PATH", "/bin")]).unwrap();
        assert_eq!(config.debug, Debug::Silent);
        assert_eq!(config.op_timeout, Duration::from_millis(600_000));
    }

    #[test]
    fn every_known_name_is_read() {
        for (name, _) in NAMES {
            let before = format!("{:?}", parse(&[]).unwrap());
            let value = match name {
                "NEXAR_OP_TIMEOUT_MS" => "5",
                "NEXAR_DEBUG_SUBSYS" => "capi",
                _ => "info",
            };
            assert_ne!(
                format!("{:?}", parse(&[(name, value)]).unwrap()),
                before,
                "{name} has no effect"
            );
        }
    }

    #[test]
    fn wrong_values_name_the_variable_and_the_value() {
        for (name, value) in [
            ("NEXAR_OP_TIMEOUT_MS", "soon"),
            ("NEXAR_OP_TIMEOUT_MS", "0"),
            ("NEXAR_OP_TIMEOUT_MS", "-1"),
            ("NEXAR_DEBUG", "LOUD"),
            ("NEXAR_DEBUG_SUBSYS", "capi,kitchen"),
        ] {
            let text = parse(&[(name, value)]).unwrap_err().to_string();
            assert!(text.contains(&format!("{name}={value}")), "{text}");
        }
    }

    #[test]
    fn a_misspelt_name_finds_its_neighbour() {
        assert_eq!(nearest("NEXAR_DEBUGFILE"), "NEXAR_DEBUG_FILE");
        assert_eq!(nearest("NEXAR_OP_TIMEOUT"), "NEXAR_OP_TIMEOUT_MS");
        assert_eq!(nearest("NEXAR_ALGOS"), "NEXAR_ALGO");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
