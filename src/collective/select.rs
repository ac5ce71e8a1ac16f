//! Which algorithm performs a call: a pure table on (collective, bytes, ranks).
//!
//! Only values that every rank knows alike are looked at, so all ranks choose the same without
//! talking. `NEXAR_ALGO` overrides the table by the names in it.

use crate::error::{Error, Result};
use crate::op::Call;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    AllReduceRecursiveDoubling,
    AllReduceRing,
    ReduceBinomial,
    BroadcastBinomial,
    AllGatherRing,
    ReduceScatterRing,
    BarrierDissemination,
}

#[derive(Debug)]
pub struct Row {
    pub collective: &'static str,
    pub name: &'static str,
    pub algorithm: Algorithm,
    /// Chosen for buffers of at most this many bytes.
    up_to: usize,
    /// Chosen for at most this many ranks.
    most_ranks: usize,
}

/// The first row of a collective that fits is taken; the last one fits always.
pub const TABLE: [Row; 8] = [
    // Two ranks send as much in one step as a ring in two.
    Row {
        most_ranks: 2,
        ..row("allreduce", "recursive_doubling", Algorithm::AllReduceRecursiveDoubling, 256 << 10)
    },
    row("allreduce", "recursive_doubling", Algorithm::AllReduceRecursiveDoubling, 32 << 10),
    row("allreduce", "ring", Algorithm::AllReduceRing, usize::MAX),
    row("reduce", "binomial", Algorithm::ReduceBinomial, usize::MAX),
    row("broadcast", "binomial", Algorithm::BroadcastBinomial, usize::MAX),
    row("allgather", "ring", Algorithm::AllGatherRing, usize::MAX),
    row("reduce_scatter", "ring", Algorithm::ReduceScatterRing, usize::MAX),
    row("barrier", "dissemination", Algorithm::BarrierDissemination, usize::MAX),
];

const fn row(
    collective: &'static str,
    name: &'static str,
    algorithm: Algorithm,
    up_to: usize,
) -> Row {
    Row { collective, name, algorithm, up_to, most_ranks: usize::MAX }
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
        let bytes = call.bytes();
        let of_this = |row: &&Row| row.collective == collective;
        let forced = self.forced.iter().copied().find(of_this);
        let fitting = || {
            TABLE.iter().filter(of_this).find(|row| bytes <= row.up_to && ranks <= row.most_ranks)
        };
        forced.or_else(fitting).expect("the last row of every collective fits")
    }
}

fn find(entry: &str) -> Result<&'static Row> {
    let known = |row: &&Row| format!("{}:{}", row.collective, row.name) == entry;
    TABLE.iter().find(known).ok_or_else(|| {
        let names: Vec<_> =
            TABLE.iter().map(|row| format!("{}:{}", row.collective, row.name)).collect();
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
        Call::Barrier => "barrier",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;
    use crate::op::{Fold, RedOp};

    fn allreduce(count: usize) -> Call {
        Call::AllReduce { count, fold: Fold::new(DataType::Float32, RedOp::Sum).unwrap() }
    }

    #[test]
    fn small_all_reduces_double_and_large_ones_go_round() {
        let selection = Selection::default();
        let (doubling, ring) = ("recursive_doubling", "ring");
        for (count, ranks, name) in [
            (1, 3, doubling),
            (8192, 3, doubling),
            (8193, 3, ring),
            (65_536, 2, doubling),
            (65_537, 2, ring),
        ] {
            assert_eq!(selection.choose(&allreduce(count), ranks).name, name, "{count} on {ranks}");
        }
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
