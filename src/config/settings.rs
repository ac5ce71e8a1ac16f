//! The settings of a process or of one communicator, as values.
//!
//! Leaves to the parent where they come from. A secret may come from a file, which is read here.

use std::ops::RangeInclusive;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::error::{Error, Result};

use super::job::Job;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debug {
    Silent,
    Warn,
    Info,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Any,
    V4,
    V6,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub advertise_addr: Option<String>,
    /// Whether making a communicator with a config waits, whatever that says. For the stand-in of
    /// NCCL.
    pub blocking: Option<bool>,
    pub comm_id: Option<String>,
    pub comm_secret: Option<CommSecret>,
    /// A CUDA stream waits behind an operation that has failed, until its communicator is aborted.
    pub cuda_holds: bool,
    pub fake_devices: Option<usize>,
    /// Tells hosts apart that the system does not.
    pub host_id: Option<String>,
    pub init_timeout: Duration,
    /// What tells this run of a job from others at the same address.
    pub job: Option<Job>,
    /// The name of one communicator; not from the environment.
    pub name: Option<String>,
    pub nranks: Option<usize>,
    pub peer_timeout: Duration,
    /// UDP ports to choose from; 0 to 0 is any free one.
    pub ports: RangeInclusive<u16>,
    pub rank: Option<usize>,
    /// Where rank 0 serves the ids that this process makes; by default the process itself does.
    pub root_address: Option<String>,
    pub shm_disable: bool,
    pub socket_family: Family,
    /// As written; `bootstrap::address` knows its grammar.
    pub socket_ifname: String,
    pub threads: usize,
    pub debug: Debug,
    pub debug_file: Option<String>,
    /// Modules to log; empty means all.
    pub debug_subsys: Vec<String>,
    /// As written; `collective::select` knows the names in it.
    pub algo: String,
    pub op_timeout: Duration,
    /// How often the log names the ranks that an operation waits for; not from the environment.
    pub straggler_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            advertise_addr: None,
            blocking: None,
            comm_id: None,
            comm_secret: None,
            cuda_holds: false,
            fake_devices: None,
            host_id: None,
            init_timeout: Duration::from_secs(60),
            job: None,
            name: None,
            nranks: None,
            peer_timeout: Duration::from_secs(5),
            ports: 0..=0,
            rank: None,
            root_address: None,
            shm_disable: false,
            socket_family: Family::Any,
            socket_ifname: String::new(),
            threads: 1,
            debug: Debug::Silent,
            debug_file: None,
            debug_subsys: Vec::new(),
            algo: String::new(),
            op_timeout: Duration::from_secs(600),
            straggler_interval: Duration::from_secs(10),
        }
    }
}

/// `NEXAR_COMM_SECRET`: wiped when dropped, never printed.
#[derive(Clone)]
pub struct CommSecret(Zeroizing<Vec<u8>>);

impl CommSecret {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn parse(name: &str, bytes: Vec<u8>) -> Result<Option<Self>> {
        match bytes.len() {
            ..16 => Err(Error::Argument(format!("{name} is shorter than 16 bytes"))),
            _ => Ok(Some(Self(Zeroizing::new(bytes)))),
        }
    }

    pub(super) fn read(path: &str) -> Result<Option<Self>> {
        use std::os::unix::fs::PermissionsExt;
        let unusable = |why: &dyn std::fmt::Display| {
            Error::Argument(format!("NEXAR_COMM_SECRET_FILE={path}: {why}"))
        };
        let metadata = std::fs::metadata(path).map_err(|error| unusable(&error))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(unusable(&"others than its owner may read it"));
        }
        let mut bytes = std::fs::read(path).map_err(|error| unusable(&error))?;
        while bytes.last().is_some_and(u8::is_ascii_whitespace) {
            bytes.pop();
        }
        Self::parse("NEXAR_COMM_SECRET_FILE", bytes)
    }
}

impl std::fmt::Debug for CommSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommSecret(..)")
    }
}
