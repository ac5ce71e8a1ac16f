//! Settings from the environment. No other file reads it.
//!
//! It is read once, when the process first calls nexar. With a wrong value, creating a communicator
//! fails; for an unknown `NEXAR_*` name, the log has a warning with the nearest known name.

mod job;
mod nccl;
mod settings;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::error::{Error, Result};

pub use job::Job;
pub use settings::{CommSecret, Config, Debug, Family};

/// Every name that nexar reads, and its meaning. The README lists the same.
pub const NAMES: [(&str, &str); 23] = [
    ("NEXAR_ADVERTISE_ADDR", "address, or address:port, at which other ranks reach this process"),
    ("NEXAR_ALGO", "algorithm per collective: allreduce:ring,broadcast:binomial"),
    ("NEXAR_COMM_ID", "host:port where rank 0 listens, for nexarCommInitFromEnv"),
    ("NEXAR_COMM_SECRET", "secret of at least 16 bytes that all ranks must share"),
    ("NEXAR_COMM_SECRET_FILE", "file that holds the secret, readable by its owner alone"),
    ("NEXAR_CUDA_ON_ERROR", "release or hold the CUDA stream of a call that failed"),
    ("NEXAR_DEBUG", "log level: WARN, INFO or TRACE; silent when unset"),
    ("NEXAR_DEBUG_FILE", "log file instead of stderr; %h host, %p process, %r rank"),
    ("NEXAR_DEBUG_SUBSYS", "log only these modules: capi,comm,transport,bootstrap,device,arena"),
    ("NEXAR_FAKE_DEVICES", "number of devices of ncclCommInitAll on a host without a CUDA driver"),
    ("NEXAR_HOSTID", "name of this host; only ranks with the same name share memory"),
    ("NEXAR_INIT_TIMEOUT_MS", "longest time for all ranks to join, 60000 by default"),
    ("NEXAR_JOB_ID", "name of this run of a job, the same on all ranks; the launcher's by default"),
    ("NEXAR_NRANKS", "number of ranks, for nexarCommInitFromEnv"),
    ("NEXAR_OP_TIMEOUT_MS", "longest time one operation may take, 600000 by default"),
    ("NEXAR_PEER_TIMEOUT_MS", "a rank not heard from for this long is lost, 5000 by default"),
    ("NEXAR_PORT", "UDP port of this process; any free one by default"),
    ("NEXAR_PORT_RANGE", "UDP ports to choose from: 40000-40099"),
    ("NEXAR_RANK", "rank of this process, for nexarCommInitFromEnv"),
    ("NEXAR_SHM_DISABLE", "1: no shared memory between ranks of this host"),
    ("NEXAR_SOCKET_FAMILY", "AF_INET or AF_INET6; both by default"),
    ("NEXAR_SOCKET_IFNAME", "network interfaces to use: eth,ib or ^docker,lo or =eth0"),
    ("NEXAR_THREADS", "threads that drive the network, 1 by default"),
];

static READS_NCCL_NAMES: AtomicBool = AtomicBool::new(false);

/// Reads NCCL's names too, for settings whose own names are not set. A stand-in calls this before
/// anything else.
pub fn enable_nccl_names() {
    READS_NCCL_NAMES.store(true, Ordering::Relaxed);
}

/// The settings of this process.
pub fn get() -> Result<&'static Config> {
    match *CHANGED.read().unwrap_or_else(PoisonError::into_inner) {
        Some(config) => Ok(config),
        None => from_environment(),
    }
}

/// The settings after the program has changed one.
static CHANGED: RwLock<Option<&'static Config>> = RwLock::new(None);

/// Sets the secret for ids and communicators created from now on, instead of the environment's;
/// `None` restores the environment's. Fails if the secret is too short. The old settings are
/// leaked, because existing communicators refer to them.
pub fn set_comm_secret(secret: Option<&[u8]>) -> Result<()> {
    let mut config = from_environment()?.clone();
    if let Some(secret) = secret {
        config.comm_secret = CommSecret::parse("the secret", secret.to_vec())?;
    }
    fn bytes(config: &Config) -> Option<&[u8]> {
        config.comm_secret.as_ref().map(CommSecret::bytes)
    }
    if bytes(get()?) == bytes(&config) {
        return Ok(());
    }
    *CHANGED.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::leak(Box::new(config)));
    Ok(())
}

fn from_environment() -> Result<&'static Config> {
    static CONFIG: OnceLock<Result<Config>> = OnceLock::new();
    let read = || {
        let variables = std::env::vars_os().map(lossy).collect();
        Config::parse(variables, READS_NCCL_NAMES.load(Ordering::Relaxed))
    };
    CONFIG.get_or_init(read).as_ref().map_err(Clone::clone)
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

/// Pairs of settings that say the same thing in two ways.
const EXCLUSIVE: [[&str; 2]; 2] =
    [["NEXAR_COMM_SECRET", "NEXAR_COMM_SECRET_FILE"], ["NEXAR_PORT", "NEXAR_PORT_RANGE"]];

impl Config {
    fn parse(variables: Vec<(String, String)>, nccl_names: bool) -> Result<Self> {
        let is_set =
            |name: &&str| variables.iter().any(|(other, value)| other == name && !value.is_empty());
        if let Some([one, other]) = EXCLUSIVE.iter().find(|pair| pair.iter().all(is_set)) {
            return Err(Error::Argument(format!("{one} and {other} are both set: unset one")));
        }
        let mut config = Self { job: job::from_launcher(&variables), ..Self::default() };
        if nccl_names {
            variables.iter().for_each(|(name, value)| nccl::apply(&mut config, name, value));
        }
        // An empty variable counts as unset.
        for (name, value) in variables.into_iter().filter(|(_, value)| !value.is_empty()) {
            match name.as_str() {
                "NEXAR_ADVERTISE_ADDR" => config.advertise_addr = Some(value),
                "NEXAR_COMM_ID" => config.comm_id = Some(value),
                "NEXAR_COMM_SECRET" => config.comm_secret = CommSecret::parse(&name, value.into())?,
                "NEXAR_COMM_SECRET_FILE" => config.comm_secret = CommSecret::read(&value)?,
                "NEXAR_FAKE_DEVICES" => config.fake_devices = Some(number(&name, &value, 1..=256)?),
                "NEXAR_CUDA_ON_ERROR" => config.cuda_hold_on_error = on_error(&value)?,
                "NEXAR_HOSTID" => config.host_id = Some(value),
                "NEXAR_INIT_TIMEOUT_MS" => config.init_timeout = milliseconds(&name, &value)?,
                "NEXAR_JOB_ID" => {
                    config.job = Some(Job { id: value, source: "NEXAR_JOB_ID" });
                }
                "NEXAR_NRANKS" => config.nranks = Some(number(&name, &value, 1..=1 << 16)?),
                "NEXAR_PEER_TIMEOUT_MS" => config.peer_timeout = milliseconds(&name, &value)?,
                "NEXAR_PORT" => {
                    let port = number(&name, &value, 0..=65_535)? as u16;
                    config.ports = port..=port;
                }
                "NEXAR_PORT_RANGE" => config.ports = port_range(&value)?,
                "NEXAR_RANK" => config.rank = Some(number(&name, &value, 0..=1 << 16)?),
                "NEXAR_SHM_DISABLE" => config.shm_disable = number(&name, &value, 0..=1)? == 1,
                "NEXAR_SOCKET_FAMILY" => config.socket_family = family(&value)?,
                "NEXAR_SOCKET_IFNAME" => config.socket_ifname = value,
                "NEXAR_THREADS" => config.threads = number(&name, &value, 1..=64)?,
                "NEXAR_ALGO" => config.algo = value,
                "NEXAR_DEBUG" => config.debug = debug(&value)?,
                "NEXAR_DEBUG_FILE" => config.debug_file = Some(value),
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

/// Whether the CUDA stream of a failed call is held.
fn on_error(value: &str) -> Result<bool> {
    match value {
        "release" => Ok(false),
        "hold" => Ok(true),
        _ => {
            let what = format!("NEXAR_CUDA_ON_ERROR={value}: expected release or hold");
            Err(Error::Argument(what))
        }
    }
}

fn debug(value: &str) -> Result<Debug> {
    match value.to_ascii_uppercase().as_str() {
        "WARN" => Ok(Debug::Warn),
        "INFO" => Ok(Debug::Info),
        "TRACE" => Ok(Debug::Trace),
        _ => Err(Error::Argument(format!("NEXAR_DEBUG={value}: expected WARN, INFO or TRACE"))),
    }
}

/// The modules that write log records.
const SUBSYSTEMS: [&str; 6] = ["capi", "comm", "transport", "bootstrap", "device", "arena"];

fn subsystems(value: &str) -> Result<Vec<String>> {
    let words = value.split(',').map(|word| word.trim().to_ascii_lowercase());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    match words.iter().find(|word| !SUBSYSTEMS.contains(&word.as_str())) {
        Some(word) => Err(Error::Argument(format!(
            "NEXAR_DEBUG_SUBSYS={value}: {word} is not one of {}",
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

fn number(name: &str, value: &str, range: RangeInclusive<usize>) -> Result<usize> {
    let parsed = value.trim().parse().ok().filter(|number| range.contains(number));
    parsed.ok_or_else(|| {
        let (from, to) = (range.start(), range.end());
        Error::Argument(format!("{name}={value}: expected a whole number from {from} to {to}"))
    })
}

fn port_range(value: &str) -> Result<RangeInclusive<u16>> {
    let ends = value.split_once('-').map(|(from, to)| (from.trim().parse(), to.trim().parse()));
    match ends {
        Some((Ok(from), Ok(to))) if 0 < from && from <= to => Ok(from..=to),
        _ => Err(Error::Argument(format!(
            "NEXAR_PORT_RANGE={value}: expected two ports, as in 40000-40099"
        ))),
    }
}

fn family(value: &str) -> Result<Family> {
    match value.to_ascii_uppercase().as_str() {
        "AF_INET" => Ok(Family::V4),
        "AF_INET6" => Ok(Family::V6),
        _ => Err(Error::Argument(format!(
            "NEXAR_SOCKET_FAMILY={value}: expected AF_INET or AF_INET6"
        ))),
    }
}

fn nearest(name: &str) -> &'static str {
    let by_distance =
        NAMES.iter().map(|(known, _)| *known).min_by_key(|known| distance(name, known));
    by_distance.expect("NAMES is not empty")
}

/// Levenshtein distance: insertions, deletions and replacements that change `a` into `b`.
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
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Config::parse(variables.iter().map(owned).collect(), false)
    }

    #[test]
    fn by_default_the_log_is_off_and_an_operation_has_ten_minutes() {
        let config = parse(&[("PATH", "/bin")]).unwrap();
        assert_eq!(config.debug, Debug::Silent);
        assert_eq!(config.op_timeout, Duration::from_millis(600_000));
    }

    #[test]
    fn every_known_name_is_read() {
        for (name, _) in NAMES {
            let before = format!("{:?}", parse(&[]).unwrap());
            let value = match name {
                "NEXAR_COMM_SECRET" => "sixteen bytes...",
                "NEXAR_COMM_SECRET_FILE" => continue, // has a test of its own
                "NEXAR_CUDA_ON_ERROR" => "hold",
                "NEXAR_DEBUG_SUBSYS" => "capi",
                "NEXAR_PORT_RANGE" => "5-7",
                "NEXAR_SHM_DISABLE" => "1",
                "NEXAR_SOCKET_FAMILY" => "AF_INET6",
                "NEXAR_FAKE_DEVICES" | "NEXAR_NRANKS" | "NEXAR_PORT" | "NEXAR_RANK"
                | "NEXAR_THREADS" => "5",
                _ if name.ends_with("_MS") => "5",
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
            ("NEXAR_NRANKS", "0"),
            ("NEXAR_PORT", "65536"),
            ("NEXAR_PORT_RANGE", "40000"),
            ("NEXAR_PORT_RANGE", "9-8"),
            ("NEXAR_RANK", "-1"),
            ("NEXAR_SOCKET_FAMILY", "AF_UNIX"),
            ("NEXAR_THREADS", "0"),
        ] {
            let text = parse(&[(name, value)]).unwrap_err().to_string();
            assert!(text.contains(&format!("{name}={value}")), "{text}");
        }
    }

    #[test]
    fn settings_that_say_the_same_in_two_ways_are_refused() {
        let set = |port, range| parse(&[("NEXAR_PORT", port), ("NEXAR_PORT_RANGE", range)]);
        let text = set("5000", "5000-5009").unwrap_err().to_string();
        assert!(text.contains("NEXAR_PORT and NEXAR_PORT_RANGE"), "{text}");
        assert_eq!(set("5000", "").unwrap().ports, 5000..=5000);
    }

    #[test]
    fn a_secret_is_long_is_never_printed_and_only_its_owner_may_read_its_file() {
        use std::os::unix::fs::PermissionsExt;
        let short = parse(&[("NEXAR_COMM_SECRET", "hush")]).unwrap_err().to_string();
        assert!(short.contains("NEXAR_COMM_SECRET") && !short.contains("hush"), "{short}");
        let config = parse(&[("NEXAR_COMM_SECRET", "a secret of many bytes")]).unwrap();
        assert!(!format!("{config:?}").contains("many"));

        let path = std::env::temp_dir().join(format!("nexar-secret-{}", std::process::id()));
        std::fs::write(&path, "a secret of many bytes\n").unwrap();
        let read = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            parse(&[("NEXAR_COMM_SECRET_FILE", path.to_str().unwrap())])
        };
        assert_eq!(read(0o600).unwrap().comm_secret.unwrap().bytes(), b"a secret of many bytes");
        assert!(read(0o640).unwrap_err().to_string().contains("others than its owner"));
        std::fs::remove_file(&path).unwrap();
        assert!(parse(&[("NEXAR_COMM_SECRET_FILE", "/nowhere")]).is_err());
    }

    #[test]
    fn a_misspelt_name_finds_the_nearest_name() {
        assert_eq!(nearest("NEXAR_DEBUGFILE"), "NEXAR_DEBUG_FILE");
        assert_eq!(nearest("NEXAR_OP_TIMEOUT"), "NEXAR_OP_TIMEOUT_MS");
        assert_eq!(nearest("NEXAR_ALGOS"), "NEXAR_ALGO");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
