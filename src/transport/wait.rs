//! How a thread waits for operations that run together: which thread drives the network meanwhile,
//! and how long this one spins before it sleeps.
//!
//! Each operation's mesh answers that; the answers of operations that are waited for together are
//! combined. Leaves to `parker`, `runtime` and `shm` the waiting itself.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use crate::rank::Rank;
use crate::{parker, runtime};

use super::shm::doorbell;

/// What an operation requires of its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The other ranks of a message. `None` for other operations.
    pub message: Option<Peers>,
    /// It calls a function of the program, which may take any time.
    pub calls_program: bool,
    /// It may complete with data still to be sent.
    pub leaves_work: bool,
}

/// The ranks from or to which a message may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    One(Rank),
    Any,
}

/// How a thread waits for operations that run together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Some operation uses the network.
    network: bool,
    /// `Some` if an operation uses memory that processes share: whether ranks outnumber processors.
    crowded: Option<bool>,
    /// Some operation uses both: its ranks are on several hosts.
    between_hosts: bool,
    calls_program: bool,
    leaves_work: bool,
}

#[derive(PartialEq, Eq)]
enum WaitMode {
    /// No operation uses the network.
    Local,
    /// Some operation uses shared memory, and another thread drives the network: at once if an
    /// operation is `between_hosts`. `crowded`: this host has more ranks than processors.
    SharedMemory { crowded: bool, between_hosts: bool },
    /// The calling thread drives the network.
    DriveNetwork { leaves_work: bool },
    /// Another thread drives the network: a function of the program may take any time, and
    /// heartbeats must not wait for it.
    NetworkThread,
}

impl Waiting {
    pub(super) fn between_threads(demand: Demand) -> Self {
        let Demand { calls_program, leaves_work, .. } = demand;
        Self { calls_program, leaves_work, ..Self::default() }
    }

    pub(super) fn over_network(demand: Demand, crowded: Option<bool>, one_host: bool) -> Self {
        let Demand { calls_program, leaves_work, .. } = demand;
        Self { network: true, crowded, between_hosts: !one_host, calls_program, leaves_work }
    }

    /// Combines two, for operations that are waited for together.
    pub fn and(self, other: Self) -> Self {
        let crowded = match (self.crowded, other.crowded) {
            (Some(one), Some(other)) => Some(one || other),
            (one, other) => one.or(other),
        };
        Self {
            network: self.network || other.network,
            crowded,
            between_hosts: self.between_hosts || other.between_hosts,
            calls_program: self.calls_program || other.calls_program,
            leaves_work: self.leaves_work || other.leaves_work,
        }
    }

    fn mode(self) -> WaitMode {
        match self {
            Self { network: false, .. } => WaitMode::Local,
            Self { crowded: Some(crowded), between_hosts, .. } => {
                WaitMode::SharedMemory { crowded, between_hosts }
            }
            Self { calls_program: true, .. } => WaitMode::NetworkThread,
            Self { leaves_work, .. } => WaitMode::DriveNetwork { leaves_work },
        }
    }

    /// Polls once, unless the network must be driven for that. Most operations in memory are ready
    /// at once, so that no clock is read.
    pub fn poll(self, future: Pin<&mut (dyn Future<Output = ()> + '_)>) -> Poll<()> {
        match self.mode() {
            WaitMode::Local | WaitMode::SharedMemory { .. } => parker::poll(future),
            WaitMode::DriveNetwork { .. } | WaitMode::NetworkThread => Poll::Pending,
        }
    }

    /// Waits until the future is ready. `None` if the deadline passed first.
    pub fn wait(
        self,
        future: Pin<&mut (dyn Future<Output = ()> + '_)>,
        deadline: Instant,
    ) -> Option<()> {
        match self.mode() {
            WaitMode::Local => parker::block_on(future, deadline),
            WaitMode::SharedMemory { crowded, between_hosts } => {
                if between_hosts {
                    runtime::hand_over();
                }
                doorbell::block_on(future, deadline, crowded)
            }
            WaitMode::DriveNetwork { leaves_work } => runtime::drive(future, deadline, leaves_work),
            WaitMode::NetworkThread => runtime::wait(future, deadline),
        }
    }

    /// As `wait`, for a thread that is in no hurry: it does not drive the network, and sleeps until
    /// it is woken.
    pub fn wait_asleep(
        self,
        future: Pin<&mut (dyn Future<Output = ()> + '_)>,
        deadline: Instant,
    ) -> Option<()> {
        match self.mode() {
            WaitMode::SharedMemory { .. } => doorbell::block_on_asleep(future, deadline),
            _ => parker::block_on(future, deadline),
        }
    }

    /// Has another thread drive the network from here on, if the operations use it.
    pub fn hand_over(self) {
        match self.mode() {
            WaitMode::Local | WaitMode::SharedMemory { between_hosts: false, .. } => {}
            _ => runtime::hand_over(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_run_together_are_waited_for_as_the_most_demanding_needs() {
        let plain = Demand { message: None, calls_program: false, leaves_work: false };
        let program = Demand { calls_program: true, ..plain };
        let threads = Waiting::between_threads(program);
        assert!(matches!(threads.mode(), WaitMode::Local));
        let network = Waiting::over_network(plain, None, false);
        assert!(matches!(network.mode(), WaitMode::DriveNetwork { leaves_work: false }));
        assert!(matches!(threads.and(network).mode(), WaitMode::NetworkThread));
        let shared = Waiting::over_network(plain, Some(false), true);
        let crowded = Waiting::over_network(program, Some(true), true);
        let together = WaitMode::SharedMemory { crowded: true, between_hosts: false };
        assert!(shared.and(crowded).mode() == together);
        let hierarchical = Waiting::over_network(plain, Some(false), false);
        let together = WaitMode::SharedMemory { crowded: true, between_hosts: true };
        assert!(crowded.and(hierarchical).mode() == together);
        assert!(matches!(Waiting::default().and(network).mode(), WaitMode::DriveNetwork { .. }));
    }
}
