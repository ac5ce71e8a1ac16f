//! The tables of all collectives, by collective and by name.
//!
//! Leaves to `select` how a row is chosen, and the rows to the folders. A new collective adds its
//! table here.

use std::sync::LazyLock;

use super::select::{Row, Selection, Topology};
use super::{
    allgather, allreduce, alltoall, barrier, broadcast, gather, reduce, reduce_scatter, scan,
    scatter,
};
use crate::error::{Error, Result};
use crate::op::{Call, Collective};

/// The rows of all collectives, each once.
pub static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let mut all: Vec<Row> = Vec::new();
    for rows in Collective::ALL.map(rows) {
        if all.iter().all(|row| row.collective != rows[0].collective) {
            all.extend(rows);
        }
    }
    all
});

/// The rows of a collective.
fn rows(collective: Collective) -> Vec<Row> {
    fn named<A: Copy>(table: &[Row<A>]) -> Vec<Row> {
        table.iter().map(Row::named).collect()
    }
    match collective {
        Collective::AllReduce | Collective::AllReduceBucketed => named(&allreduce::TABLE),
        Collective::Reduce => named(&reduce::TABLE),
        Collective::Broadcast => named(&broadcast::TABLE),
        Collective::AllGather | Collective::Split => named(&allgather::TABLE),
        Collective::ReduceScatter => named(&reduce_scatter::TABLE),
        Collective::AllToAll => named(&alltoall::TABLE),
        Collective::Gather => named(&gather::TABLE),
        Collective::Scatter => named(&scatter::TABLE),
        Collective::Scan | Collective::ExScan => named(&scan::TABLE),
        Collective::Barrier => named(&barrier::TABLE),
    }
}

/// The name of the algorithm that executes a call.
pub fn choose(
    selection: &Selection,
    call: &Call,
    ranks: usize,
    topology: Topology,
) -> &'static str {
    selection.choose(&rows(call.collective()), call, ranks, topology).name
}

/// Reads `collective:algorithm,collective:algorithm,...`.
pub fn parse(text: &str) -> Result<Selection> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(find).collect::<Result<_>>().map(Selection::forcing)
}

fn find(entry: &str) -> Result<Row> {
    let name = |row: &Row| format!("{}:{}", row.collective, row.name);
    TABLE.iter().copied().find(|row| name(row) == entry).ok_or_else(|| {
        let mut names: Vec<_> = TABLE.iter().map(name).collect();
        names.sort();
        names.dedup();
        Error::Argument(format!("NEXAR_ALGO: {entry} is not one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;
    use crate::op::{Counts, Fold, Operator, RedOp, Reduction};

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
            let chosen = choose(&selection, &allreduce(bytes / 4), ranks, Topology::Links);
            assert_eq!(chosen, name, "{bytes} bytes on {ranks} ranks");
        }
    }

    #[test]
    fn no_algorithm_is_chosen_for_a_call_that_it_cannot_execute_not_even_by_name() {
        let selection = parse("allreduce:ring,reduce_scatter:ring,allgather:bruck").unwrap();
        let operator = Operator::User { commutative: false };
        let reduction = Reduction { dtype: DataType::Float32.into(), operator };
        let count = 1 << 20;
        let in_order = Call::all_reduce(count, reduction);
        assert_eq!(choose(&selection, &in_order, 3, Topology::Links), "rabenseifner");
        let in_order = Call::reduce_scatter(Counts::Each(count), reduction);
        assert_eq!(choose(&selection, &in_order, 3, Topology::Links), "pairwise");
        let varying = Call::all_gather(Counts::listed(&[1, 2]), DataType::Int8.into());
        assert_eq!(choose(&selection, &varying, 2, Topology::Links), "ring");
    }

    #[test]
    fn a_forced_algorithm_is_chosen_at_every_size_and_for_its_collective_only() {
        let selection = parse(" allreduce:ring, ").unwrap();
        assert_eq!(choose(&selection, &allreduce(1), 2, Topology::Links), "ring");
        assert_eq!(choose(&selection, &Call::barrier(), 2, Topology::Links), "dissemination");
    }

    #[test]
    fn an_unknown_algorithm_is_refused_with_the_known_ones() {
        for text in ["allreduce:rong", "ring", "allreduce:", "reduce:ring"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("allreduce:ring"), "{error}");
        }
    }

    #[test]
    fn the_rows_of_a_collective_name_one_folder_and_the_last_fits_every_call() {
        let operator = Operator::User { commutative: false };
        let reduction = Reduction { dtype: DataType::Int8.into(), operator };
        let calls = [
            Call::all_reduce(usize::MAX, reduction),
            Call::all_to_all(Counts::Pairwise, DataType::Int8.into()),
        ];
        for rows in Collective::ALL.map(rows) {
            assert!(rows.iter().all(|row| row.collective == rows[0].collective));
            let last = &rows[rows.len() - 1..];
            for call in &calls {
                // Panics if the row does not fit.
                Selection::default().choose(last, call, usize::MAX, Topology::Links);
            }
        }
    }

    #[test]
    fn an_algorithm_is_named_as_its_file() {
        for row in TABLE.iter() {
            let file = format!("src/collective/{}/{}.rs", row.collective, row.name);
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
            let text =
                std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
            // The loop of the flat algorithm is in `epochs`; a type says what each collective does.
            let item = match row.name {
                "flat" => "pub struct Flat".to_owned(),
                name => format!("pub async fn {name}("),
            };
            assert!(text.contains(&item), "{file}");
        }
    }
}
