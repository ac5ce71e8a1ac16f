//! Which algorithm performs a call: a pure table on collective, bytes, ranks, and what an algorithm
//! is able to do.
//!
//! Only values that every rank knows alike are looked at, so all ranks choose the same without
//! talking. `NEXAR_ALGO` overrides the table by the names in it.

use crate::collective::segments::SEGMENT;
use crate::error::{Error, Result};
use crate::op::{Call, Counts, Reducer, Reduction};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    AllReduceOneShot,
    AllReduceRecursiveDoubling,
    AllReduceRabenseifner,
    AllReduceRing,
    AllReduceRsAg,
    ReduceBinomial,
    ReducePipeline,
    BroadcastBinomial,
    BroadcastPipeline,
    AllGatherBruck,
    AllGatherRing,
    ReduceScatterRecursiveHalving,
    ReduceScatterRing,
    ReduceScatterPairwise,
    AllToAllBruck,
    AllToAllPairwise,
    GatherBinomial,
    GatherLinear,
    ScatterBinomial,
    ScatterLinear,
    ScanHillisSteele,
    ScanPipeline,
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

use Algorithm::*;

/// The first row of a collective that fits is taken. The last one has no limit and can do everything.
pub const TABLE: [Row; 25] = [
    most_ranks(4, row("allreduce", "one_shot", AllReduceOneShot, 1 << 10)),
    // Two ranks send as much in one step as a ring in two.
    most_ranks(2, row("allreduce", "recursive_doubling", AllReduceRecursiveDoubling, 256 << 10)),
    row("allreduce", "recursive_doubling", AllReduceRecursiveDoubling, 64 << 10),
    row("allreduce", "rabenseifner", AllReduceRabenseifner, 1 << 20),
    able(Able::Commuting, row("allreduce", "ring", AllReduceRing, usize::MAX)),
    able(Able::Commuting, row("allreduce", "rs_ag", AllReduceRsAg, 0)),
    row("allreduce", "rabenseifner", AllReduceRabenseifner, usize::MAX),
    row("reduce", "binomial", ReduceBinomial, SEGMENT),
    row("reduce", "pipeline", ReducePipeline, usize::MAX),
    row("broadcast", "binomial", BroadcastBinomial, SEGMENT),
    row("broadcast", "pipeline", BroadcastPipeline, usize::MAX),
    able(Able::Equal, row("allgather", "bruck", AllGatherBruck, 4 << 10)),
    row("allgather", "ring", AllGatherRing, usize::MAX),
    able(
        Able::Commuting,
        row("reduce_scatter", "recursive_halving", ReduceScatterRecursiveHalving, 16 << 10),
    ),
    able(Able::Commuting, row("reduce_scatter", "ring", ReduceScatterRing, usize::MAX)),
    row("reduce_scatter", "pairwise", ReduceScatterPairwise, usize::MAX),
    able(Able::Equal, row("alltoall", "bruck", AllToAllBruck, 256)),
    row("alltoall", "pairwise", AllToAllPairwise, usize::MAX),
    able(Able::Equal, row("gather", "binomial", GatherBinomial, 4 << 10)),
    row("gather", "linear", GatherLinear, usize::MAX),
    able(Able::Equal, row("scatter", "binomial", ScatterBinomial, 4 << 10)),
    row("scatter", "linear", ScatterLinear, usize::MAX),
    row("scan", "hillis_steele", ScanHillisSteele, 32 << 10),
    row("scan", "pipeline", ScanPipeline, usize::MAX),
    row("barrier", "dissemination", BarrierDissemination, usize::MAX),
];

const fn row(
    collective: &'static str,
    name: &'static str,
    algorithm: Algorithm,
    up_to: usize,
) -> Row {
    Row { collective, name, algorithm, up_to, most_ranks: usize::MAX, able: Able::All }
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

    pub fn choose(&self, call: &Call, ranks: usize) -> &'static Row {
        let collective = collective(call);
        let bytes = match call {
            // A list names all blocks together.
            Call::AllGather { counts: Counts::Listed { .. }, .. }
            | Call::ReduceScatter { counts: Counts::Listed { .. }, .. } => call.bytes() / ranks,
            _ => call.bytes(),
        };
        let possible = |row: &&Row| row.collective == collective && row.can(call);
        let forced = self.forced.iter().copied().find(possible);
        let fitting = || {
            let fits = |row: &&Row| bytes <= row.up_to && ranks <= row.most_ranks;
            TABLE.iter().filter(possible).find(fits)
        };
        forced.or_else(fitting).expect("a row of every collective fits always")
    }

    /// How a part of this many bytes of an all-reduce is reduced.
    pub fn all_reduce(&self, bytes: usize, reducer: &Reducer, ranks: usize) -> &'static Row {
        let reduction = reducer.reduction();
        let count = bytes / reduction.dtype.size();
        self.choose(&Call::AllReduce { count, reduction }, ranks)
    }
}

impl Row {
    /// Whether the algorithm can perform the call at all.
    pub fn can(&self, call: &Call) -> bool {
        match self.able {
            Able::All => true,
            Able::Commuting => call.reduction().is_none_or(Reduction::is_commutative),
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

/// The collective's name in the table and in `NEXAR_ALGO`: that of its folder.
fn collective(call: &Call) -> &'static str {
    match call {
        Call::AllReduce { .. } => "allreduce",
        Call::Reduce { .. } => "reduce",
        Call::Broadcast { .. } => "broadcast",
        Call::AllGather { .. } => "allgather",
        Call::ReduceScatter { .. } => "reduce_scatter",
        Call::AllToAll { .. } => "alltoall",
        Call::Gather { .. } => "gather",
        Call::Scatter { .. } => "scatter",
        Call::Scan { .. } | Call::ExScan { .. } => "scan",
        // By its parts, which are all-reduces.
        Call::AllReduceBucketed { .. } => "allreduce",
        // By what the ranks tell each other.
        Call::Split => "allgather",
        Call::Barrier => "barrier",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;
    use crate::op::{Fold, Operator, RedOp};

    fn allreduce(count: usize) -> Call {
        let reduction = Fold::new(DataType::Float32, RedOp::Sum).unwrap().into();
        Call::AllReduce { count, reduction }
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
            let chosen = selection.choose(&allreduce(bytes / 4), ranks).name;
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
        let in_order = Call::AllReduce { count, reduction };
        assert_eq!(selection.choose(&in_order, 3).name, "rabenseifner");
        let in_order = Call::ReduceScatter { counts: Counts::Each(count), reduction };
        assert_eq!(selection.choose(&in_order, 3).name, "pairwise");
        let varying = Call::AllGather { counts: Counts::listed(&[1, 2]), dtype: DataType::Int8 };
        assert_eq!(selection.choose(&varying, 2).name, "ring");
    }

    #[test]
    fn a_forced_algorithm_is_taken_at_every_size_and_for_its_collective_only() {
        let selection = Selection::parse(" allreduce:ring, ").unwrap();
        assert_eq!(selection.choose(&allreduce(1), 2).name, "ring");
        assert_eq!(selection.choose(&Call::Barrier, 2).name, "dissemination");
    }

    #[test]
    fn an_unknown_algorithm_is_refused_with_the_known_ones() {
        for text in ["allreduce:rong", "ring", "allreduce:", "reduce:ring"] {
            let error = Selection::parse(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("allreduce:ring"), "{error}");
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
