//! The settings of a process or of one communicator, as values.
//!
//! Leaves reading the environment to the parent. A file with a secret is read here.

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
    /// Overrides `blocking` of the config with which a communicator is created. For the stand-in of
    /// NCCL.
    pub blocking: Option<bool>,
    pub comm_id: Option<String>,
    pub comm_secret: Option<CommSecret>,
    /// A CUDA stream waits behind an operation that has failed, until its communicator is aborted.
    pub cuda_hold_on_error: bool,
    pub fake_devices: Option<usize>,
    /// Distinguishes hosts that the system reports as one.
    pub host_id: Option<String>,
    pub init_timeout: Duration,
    /// Distinguishes this run of a job from others at the same address.
    pub job: Option<Job>,
    /// The name of one communicator. Not from the environment.
    pub name: Option<String>,
    pub nranks: Option<usize>,
    pub peer_timeout: Duration,
    /// UDP ports to choose from; 0..=0 means any free port.
    pub ports: RangeInclusive<u16>,
    pub rank: Option<usize>,
    /// The address at which rank 0 serves the ids that this process creates. By default the process
    /// itself serves them.
    pub root_address: Option<String>,
    pub shm_disable: bool,
    pub socket_family: Family,
    /// Not parsed; `bootstrap::address` knows the grammar.
    pub socket_ifname: String,
    pub threads: usize,
    pub debug: Debug,
    pub debug_file: Option<String>,
    /// Modules to log; empty means all.
    pub debug_subsys: Vec<String>,
    /// Not parsed; `collective::select` knows the names in it.
    pub algo: String,
    pub op_timeout: Duration,
    /// How often the log names the ranks that an operation waits for. Not from the environment.
    pub straggler_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            advertise_addr: None,
            blocking: None,
            comm_id: None,
            comm_secret: None,
            cuda_hold_on_error: false,
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
            ..16 => Err(Error::Argument(format!("{name} has fewer than 16 bytes"))),
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
            let why = "others than its owner may access it; change its mode to 0600";
            return Err(unusable(&why));
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
