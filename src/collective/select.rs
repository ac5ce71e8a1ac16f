//! How an algorithm is chosen: the first row of a collective's table that fits a call.
//!
//! The rows are in the folder of each collective; `table` lists all of them. `NEXAR_ALGO` overrides
//! the tables by the names in them. Invariant: a choice depends only on values that all ranks know
//! alike, so all ranks choose the same algorithm without a message.

use super::share::Columns;
use crate::op::{Call, Collective, Counts};
use crate::transport::{Hosts, SLOT};

/// An algorithm, and the calls that it is chosen for. The last row of a collective's table fits
/// every call.
#[derive(Clone, Copy, Debug)]
pub struct Row<A = ()> {
    /// The folder of the collective, which is also its name in `NEXAR_ALGO`.
    pub collective: &'static str,
    /// The file of the algorithm, which is also its name in `NEXAR_ALGO`.
    pub name: &'static str,
    pub algorithm: A,
    /// Chosen for at most this many bytes, as `Call::bytes` counts them.
    up_to: usize,
    /// Chosen for at most this many ranks.
    most_ranks: usize,
    /// The calls that the algorithm can execute.
    able: Able,
    /// The topology that it requires.
    topology: Topology,
}

/// Where the ranks of a communicator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Anywhere.
    Links,
    /// All on one host, where they can view what others publish in shared memory.
    OneHost,
    /// The same, and each can read all memory of the others.
    OpenHost,
    /// On several hosts, of which some have several ranks.
    Hosts,
}

impl Topology {
    pub fn of(hosts: &Hosts) -> Self {
        match (hosts.share(), hosts.are_one()) {
            (false, _) => Self::Links,
            (true, true) if hosts.are_open() => Self::OpenHost,
            (true, true) => Self::OneHost,
            (true, false) => Self::Hosts,
        }
    }
}

/// The calls that an algorithm can execute. It is chosen for no other call, not even by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Able {
    /// Every call.
    All,
    /// Operators that commute.
    Commuting,
    /// Blocks of equal length.
    Equal,
}

impl<A: Copy> Row<A> {
    /// A row for any number of ranks anywhere. `up_to`: limit of the bytes.
    pub const fn new(
        collective: &'static str,
        name: &'static str,
        algorithm: A,
        up_to: usize,
    ) -> Self {
        let (most_ranks, able, topology) = (usize::MAX, Able::All, Topology::Links);
        Self { collective, name, algorithm, up_to, most_ranks, able, topology }
    }

    /// Needs several hosts and an operator that commutes.
    pub const fn on_hosts(self) -> Self {
        Self { topology: Topology::Hosts, able: Able::Commuting, ..self }
    }

    /// Needs all ranks on one host.
    pub const fn on_host(self) -> Self {
        Self { topology: Topology::OneHost, ..self }
    }

    /// Needs all ranks on one host, each of which can read all memory of the others.
    pub const fn on_open_host(self) -> Self {
        Self { topology: Topology::OpenHost, ..self }
    }

    pub const fn most_ranks(self, most_ranks: usize) -> Self {
        Self { most_ranks, ..self }
    }

    /// Needs an operator that commutes.
    pub const fn commuting(self) -> Self {
        Self { able: Able::Commuting, ..self }
    }

    /// Needs blocks of equal length.
    pub const fn equal(self) -> Self {
        Self { able: Able::Equal, ..self }
    }

    /// The row without its algorithm.
    pub const fn named(&self) -> Row {
        let Self { collective, name, up_to, most_ranks, able, topology, .. } = *self;
        Row { collective, name, algorithm: (), up_to, most_ranks, able, topology }
    }
}

impl<A> Row<A> {
    /// Whether the algorithm can be used on this topology.
    pub fn fits(&self, topology: Topology) -> bool {
        let is_wider = (self.topology, topology) == (Topology::OneHost, Topology::OpenHost);
        self.topology == Topology::Links || self.topology == topology || is_wider
    }

    /// Whether the algorithm can execute the call at all. Never inlined: the compiler would hoist
    /// the test out of the loop over rows and read a field that the call may lack, which valgrind
    /// reports.
    #[inline(never)]
    pub fn can(&self, call: &Call) -> bool {
        match self.able {
            Able::All => true,
            Able::Commuting => call.reduction().is_none_or(|reduction| reduction.is_commutative()),
            Able::Equal => matches!(call.counts(), Counts::Each(_)),
        }
    }
}

/// The tables, with the user's own choices before them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    forced: Vec<Row>,
}

impl Selection {
    /// Prefers these rows to the tables, in their order.
    pub fn forcing(rows: Vec<Row>) -> Self {
        Self { forced: rows }
    }

    /// Whether the user has left all choices to the tables.
    pub fn is_free(&self) -> bool {
        self.forced.is_empty()
    }

    /// The row of a collective's table that executes the call.
    pub fn choose<'t, A>(
        &self,
        table: &'t [Row<A>],
        call: &Call,
        ranks: usize,
        topology: Topology,
    ) -> &'t Row<A> {
        // The most bytes that a rank publishes in one epoch for others to reduce. Longer elements
        // travel over links, since none is cut where it is reduced.
        let room = match call.collective() {
            Collective::ReduceScatter => Columns::most(ranks),
            _ => SLOT,
        };
        let topology = match call.reduction() {
            Some(reduction) if reduction.dtype.size() > room => Topology::Links,
            _ => topology,
        };
        let bytes = match (call.collective(), call.counts()) {
            // `Call::bytes` is the total of all blocks here.
            (Collective::AllGather | Collective::ReduceScatter, Counts::Listed { .. }) => {
                call.bytes() / ranks
            }
            _ => call.bytes(),
        };
        let mut possible = table.iter().filter(|row| row.can(call) && row.fits(topology));
        let is_named =
            |row: &&Row<A>, name: &Row| (row.collective, row.name) == (name.collective, name.name);
        let mut forced = self.forced.iter();
        let forced = forced.find_map(|name| possible.clone().find(|row| is_named(row, name)));
        let fits = |row: &&Row<A>| bytes <= row.up_to && ranks <= row.most_ranks;
        forced.or_else(|| possible.find(fits)).expect("the last row of a table always fits")
    }
}
