//! Which algorithm performs a call: a pure table on collective, bytes, ranks, and what an algorithm
//! is able to do.
//!
//! Only values that every rank knows alike are looked at, so all ranks choose the same without
//! talking. `NEXAR_ALGO` overrides the table by the names in it.

use crate::collective::segments::SEGMENT;
use crate::error::{Error, Result};
use crate::op::{Call, Collective, Counts, Reducer};
use crate::transport::Hosts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    AllReduceFlat,
    AllReduceSlices,
    AllReduceHierarchical,
    AllReduceOneShot,
    AllReduceRecursiveDoubling,
    AllReduceRabenseifner,
    AllReduceRing,
    AllReduceRsAg,
    ReduceFlat,
    ReduceHierarchical,
    ReduceBinomial,
    ReducePipeline,
    BroadcastFlat,
    BroadcastHierarchical,
    BroadcastBinomial,
    BroadcastPipeline,
    AllGatherFlat,
    AllGatherBruck,
    AllGatherRing,
    ReduceScatterFlat,
    ReduceScatterRecursiveHalving,
    ReduceScatterRing,
    ReduceScatterPairwise,
    AllToAllFlat,
    AllToAllDirect,
    AllToAllBruck,
    AllToAllPairwise,
    GatherFlat,
    GatherBinomial,
    GatherLinear,
    ScatterFlat,
    ScatterBinomial,
    ScatterLinear,
    ScanFlat,
    ScanChain,
    ScanHillisSteele,
    ScanPipeline,
    BarrierFlat,
    BarrierHierarchical,
    BarrierDissemination,
}

#[derive(Debug)]
pub struct Row {
    pub collective: &'static str,
    pub name: &'static str,
    pub algorithm: Algorithm,
    /// Chosen for at most this many bytes, as `Call::bytes` counts them.
    up_to: usize,
    /// Chosen for at most this many ranks.
    most_ranks: usize,
    /// What the algorithm can do.
    able: Able,
    /// Where it can be used.
    ground: Ground,
}

/// Where the ranks of a communicator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Anywhere.
    Links,
    /// All on one host, where they see what others lay out in memory.
    OneHost,
    /// The same, and each can read all memory of the others.
    OpenHost,
    /// On several hosts, of which some have several.
    Hosts,
}

impl Ground {
    pub fn of(hosts: &Hosts) -> Self {
        match (hosts.share(), hosts.are_one()) {
            (false, _) => Self::Links,
            (true, true) if hosts.are_open() => Self::OpenHost,
            (true, true) => Self::OneHost,
            (true, false) => Self::Hosts,
        }
    }
}

/// What an algorithm can do. None is chosen for what it cannot, not even by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Able {
    /// Everything.
    All,
    /// Operators that commute.
    Commuting,
    /// Blocks of equal length.
    Equal,
}

/// Most ranks of a flat scan.
pub const FLAT_SCAN: usize = 4;

use Algorithm::*;

/// The first row of a collective that fits is taken. The last one has no limit and can do everything.
/// The rows of a collective stand together.
pub const TABLE: [Row; 45] = [
    // Few ranks fold all shares sooner than they share out the folding.
    most_ranks(2, on_host(row("allreduce", "flat", AllReduceFlat, usize::MAX))),
    on_host(row("allreduce", "flat", AllReduceFlat, 8 << 10)),
    on_host(row("allreduce", "slices", AllReduceSlices, usize::MAX)),
    on_hosts(row("allreduce", "hierarchical", AllReduceHierarchical, usize::MAX)),
    most_ranks(4, row("allreduce", "one_shot", AllReduceOneShot, 1 << 10)),
    // Two ranks send as much in one step as a ring in two.
    most_ranks(2, row("allreduce", "recursive_doubling", AllReduceRecursiveDoubling, 256 << 10)),
    row("allreduce", "recursive_doubling", AllReduceRecursiveDoubling, 64 << 10),
    row("allreduce", "rabenseifner", AllReduceRabenseifner, 1 << 20),
    able(Able::Commuting, row("allreduce", "ring", AllReduceRing, usize::MAX)),
    able(Able::Commuting, row("allreduce", "rs_ag", AllReduceRsAg, 0)),
    row("allreduce", "rabenseifner", AllReduceRabenseifner, usize::MAX),
    on_host(row("reduce", "flat", ReduceFlat, usize::MAX)),
    on_hosts(row("reduce", "hierarchical", ReduceHierarchical, usize::MAX)),
    row("reduce", "binomial", ReduceBinomial, SEGMENT),
    row("reduce", "pipeline", ReducePipeline, usize::MAX),
    on_host(row("broadcast", "flat", BroadcastFlat, usize::MAX)),
    on_hosts(row("broadcast", "hierarchical", BroadcastHierarchical, usize::MAX)),
    row("broadcast", "binomial", BroadcastBinomial, SEGMENT),
    row("broadcast", "pipeline", BroadcastPipeline, usize::MAX),
    on_host(row("allgather", "flat", AllGatherFlat, usize::MAX)),
    able(Able::Equal, row("allgather", "bruck", AllGatherBruck, 4 << 10)),
    row("allgather", "ring", AllGatherRing, usize::MAX),
    on_host(row("reduce_scatter", "flat", ReduceScatterFlat, usize::MAX)),
    able(
        Able::Commuting,
        row("reduce_scatter", "recursive_halving", ReduceScatterRecursiveHalving, 16 << 10),
    ),
    able(Able::Commuting, row("reduce_scatter", "ring", ReduceScatterRing, usize::MAX)),
    row("reduce_scatter", "pairwise", ReduceScatterPairwise, usize::MAX),
    // Between few ranks two copies in the cache are sooner made than one by the system.
    most_ranks(4, able(Able::Equal, on_host(row("alltoall", "flat", AllToAllFlat, usize::MAX)))),
    able(Able::Equal, on_host(row("alltoall", "flat", AllToAllFlat, 32 << 10))),
    able(Able::Equal, on_open_host(row("alltoall", "direct", AllToAllDirect, usize::MAX))),
    able(Able::Equal, on_host(row("alltoall", "flat", AllToAllFlat, usize::MAX))),
    able(Able::Equal, row("alltoall", "bruck", AllToAllBruck, 256)),
    row("alltoall", "pairwise", AllToAllPairwise, usize::MAX),
    able(Able::Equal, on_host(row("gather", "flat", GatherFlat, usize::MAX))),
    able(Able::Equal, row("gather", "binomial", GatherBinomial, 4 << 10)),
    row("gather", "linear", GatherLinear, usize::MAX),
    able(Able::Equal, on_host(row("scatter", "flat", ScatterFlat, usize::MAX))),
    able(Able::Equal, row("scatter", "binomial", ScatterBinomial, 4 << 10)),
    row("scatter", "linear", ScatterLinear, usize::MAX),
    // Each rank of a chain looks at one other, however many there are.
    most_ranks(FLAT_SCAN, on_host(row("scan", "flat", ScanFlat, 4 << 10))),
    on_host(row("scan", "chain", ScanChain, usize::MAX)),
    row("scan", "hillis_steele", ScanHillisSteele, 32 << 10),
    row("scan", "pipeline", ScanPipeline, usize::MAX),
    on_host(row("barrier", "flat", BarrierFlat, usize::MAX)),
    on_hosts(row("barrier", "hierarchical", BarrierHierarchical, usize::MAX)),
    row("barrier", "dissemination", BarrierDissemination, usize::MAX),
];

const fn row(
    collective: &'static str,
    name: &'static str,
    algorithm: Algorithm,
    up_to: usize,
) -> Row {
    Row {
        collective,
        name,
        algorithm,
        up_to,
        most_ranks: usize::MAX,
        able: Able::All,
        ground: Ground::Links,
    }
}

const fn on_hosts(row: Row) -> Row {
    able(Able::Commuting, Row { ground: Ground::Hosts, ..row })
}

const fn on_host(row: Row) -> Row {
    Row { ground: Ground::OneHost, ..row }
}

const fn on_open_host(row: Row) -> Row {
    Row { ground: Ground::OpenHost, ..row }
}

const fn most_ranks(most_ranks: usize, row: Row) -> Row {
    Row { most_ranks, ..row }
}

const fn able(able: Able, row: Row) -> Row {
    Row { able, ..row }
}

/// The table, with the user's own choices before it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    forced: Vec<&'static Row>,
}

impl Selection {
    /// Reads `collective:algorithm,collective:algorithm,...`.
    pub fn parse(text: &str) -> Result<Self> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let forced = entries.map(find).collect::<Result<_>>()?;
        Ok(Self { forced })
    }

    /// Whether the user has left all choices to the table.
    pub fn is_free(&self) -> bool {
        self.forced.is_empty()
    }

    pub fn choose(&self, call: &Call, ranks: usize, ground: Ground) -> &'static Row {
        let rows = rows(call);
        let bytes = match (call.collective(), call.counts()) {
            // A list names all blocks together.
            (Collective::AllGather | Collective::ReduceScatter, Counts::Listed { .. }) => {
                call.bytes() / ranks
            }
            _ => call.bytes(),
        };
        let possible = |row: &&Row| row.can(call) && row.stands_on(ground);
        let of_call = |row: &&Row| row.collective == rows[0].collective;
        let forced = self.forced.iter().copied().filter(of_call).find(possible);
        let fitting = || {
            let fits = |row: &&Row| bytes <= row.up_to && ranks <= row.most_ranks;
            rows.iter().filter(possible).find(fits)
        };
        forced.or_else(fitting).expect("a row of every collective fits always")
    }

    /// How a part of this many bytes of an all-reduce is reduced.
    pub fn all_reduce(
        &self,
        bytes: usize,
        reducer: &Reducer,
        ranks: usize,
        ground: Ground,
    ) -> &'static Row {
        let reduction = reducer.reduction();
        let count = bytes / reduction.dtype.size();
        self.choose(&Call::all_reduce(count, reduction), ranks, ground)
    }
}

impl Row {
    /// Whether the algorithm can be used where the ranks are.
    pub fn stands_on(&self, ground: Ground) -> bool {
        let is_wider = (self.ground, ground) == (Ground::OneHost, Ground::OpenHost);
        self.ground == Ground::Links || self.ground == ground || is_wider
    }

    /// Whether the algorithm can perform the call at all. Never inlined: the compiler would ask before the
    /// loop over rows, where a call may lack what is asked for, and valgrind tells of it.
    #[inline(never)]
    pub fn can(&self, call: &Call) -> bool {
        match self.able {
            Able::All => true,
            Able::Commuting => call.reduction().is_none_or(|reduction| reduction.is_commutative()),
            Able::Equal => matches!(call.counts(), Counts::Each(_)),
        }
    }
}

fn find(entry: &str) -> Result<&'static Row> {
    let known = |row: &&Row| format!("{}:{}", row.collective, row.name) == entry;
    TABLE.iter().find(known).ok_or_else(|| {
        let mut names: Vec<_> =
            TABLE.iter().map(|row| format!("{}:{}", row.collective, row.name)).collect();
        names.sort();
        names.dedup();
        Error::Argument(format!("NEXAR_ALGO: {entry} is none of {}", names.join(", ")))
    })
}

/// The rows of a call's collective, whose name, in the table and in `NEXAR_ALGO`, is that of its folder.
fn rows(call: &Call) -> &'static [Row] {
    match call.collective() {
        Collective::AllReduce => const { rows_of("allreduce") },
        Collective::Reduce => const { rows_of("reduce") },
        Collective::Broadcast => const { rows_of("broadcast") },
        Collective::AllGather => const { rows_of("allgather") },
        Collective::ReduceScatter => const { rows_of("reduce_scatter") },
        Collective::AllToAll => const { rows_of("alltoall") },
        Collective::Gather => const { rows_of("gather") },
        Collective::Scatter => const { rows_of("scatter") },
        Collective::Scan | Collective::ExScan => const { rows_of("scan") },
        // By its parts, which are all-reduces.
        Collective::AllReduceBucketed => const { rows_of("allreduce") },
        // By what the ranks tell each other.
        Collective::Split => const { rows_of("allgather") },
        Collective::Barrier => const { rows_of("barrier") },
    }
}

/// Found by the compiler: every call asks for them.
const fn rows_of(collective: &str) -> &'static [Row] {
    let (mut first, mut end) = (0, TABLE.len());
    while !same(TABLE[first].collective, collective) {
        first += 1;
    }
    while !same(TABLE[end - 1].collective, collective) {
        end -= 1;
    }
    const ROWS: &[Row] = &TABLE;
    ROWS.split_at(end).0.split_at(first).1
}

/// `==` of names, for the compiler.
const fn same(one: &str, other: &str) -> bool {
    let (one, other, mut index) = (one.as_bytes(), other.as_bytes(), 0);
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;
    use crate::op::{Fold, Operator, RedOp, Reduction};

    fn allreduce(count: usize) -> Call {
        let reduction = Fold::new(DataType::Float32, RedOp::Sum).unwrap().into();
        Call::all_reduce(count, reduction)
    }

    #[test]
    fn the_larger_a_call_the_fewer_bytes_its_algorithm_sends() {
        let selection = Selection::default();
        for (bytes, ranks, name) in [
            (8, 2, "one_shot"),
            (8, 4, "one_shot"),
            (8, 5, "recursive_doubling"),
            (64 << 10, 3, "recursive_doubling"),
            (256 << 10, 2, "recursive_doubling"),
            (256 << 10, 3, "rabenseifner"),
            (2 << 20, 2, "ring"),
            (2 << 20, 3, "ring"),
        ] {
            let chosen = selection.choose(&allreduce(bytes / 4), ranks, Ground::Links).name;
            assert_eq!(chosen, name, "{bytes} bytes on {ranks} ranks");
        }
    }

    #[test]
    fn no_algorithm_is_taken_for_what_it_cannot_do_not_even_by_name() {
        let selection =
            Selection::parse("allreduce:ring,reduce_scatter:ring,allgather:bruck").unwrap();
        let operator = Operator::User { commutative: false };
        let reduction = Reduction { dtype: DataType::Float32, operator };
        let count = 1 << 20;
        let in_order = Call::all_reduce(count, reduction);
        assert_eq!(selection.choose(&in_order, 3, Ground::Links).name, "rabenseifner");
        let in_order = Call::reduce_scatter(Counts::Each(count), reduction);
        assert_eq!(selection.choose(&in_order, 3, Ground::Links).name, "pairwise");
        let varying = Call::all_gather(Counts::listed(&[1, 2]), DataType::Int8);
        assert_eq!(selection.choose(&varying, 2, Ground::Links).name, "ring");
    }

    #[test]
    fn a_forced_algorithm_is_taken_at_every_size_and_for_its_collective_only() {
        let selection = Selection::parse(" allreduce:ring, ").unwrap();
        assert_eq!(selection.choose(&allreduce(1), 2, Ground::Links).name, "ring");
        assert_eq!(selection.choose(&Call::barrier(), 2, Ground::Links).name, "dissemination");
    }

    #[test]
    fn an_unknown_algorithm_is_refused_with_the_known_ones() {
        for text in ["allreduce:rong", "ring", "allreduce:", "reduce:ring"] {
            let error = Selection::parse(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("allreduce:ring"), "{error}");
        }
    }

    #[test]
    fn the_rows_of_a_collective_stand_together() {
        for row in &TABLE {
            let rows = rows_of(row.collective);
            assert!(rows.iter().all(|other| other.collective == row.collective));
        }
    }

    #[test]
    fn an_algorithm_is_named_as_its_file() {
        for row in &TABLE {
            let file = format!("src/collective/{}/{}.rs", row.collective, row.name);
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
            let text =
                std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.contains(&format!("pub async fn {}<", row.name)), "{file}");
        }
    }
}
