//! Compares every collective, algorithm and shape with an oracle, bit for bit on every rank.

use nexar::collective::segments::SEGMENT;
use nexar::collective::select::{Row, Selection, Topology};
use nexar::collective::table::{self, TABLE};
use nexar::dtype::DataType;
use nexar::op::{Fold, RedOp, Reducer, Scalar};
use nexar::transport::SLOT;
use nexar::transport::injection::Faults;
use proptest::prelude::*;

use crate::case::{Case, Collective, known, maps, opaque, sum, xor};
use crate::oracle::oracle;
use crate::world::Placement::{InPlace, OutOfPlace};
use crate::world::{execute, run, world_for};

/// Every algorithm with each collective of the API that it implements.
pub fn algorithms() -> Vec<(&'static Row, Collective)> {
    let mut rows: Vec<&Row> = TABLE.iter().collect();
    rows.sort_by_key(|row| (row.collective, row.name));
    rows.dedup_by_key(|row| (row.collective, row.name));
    let implemented = |row: &'static Row| {
        let collectives =
            Collective::ALL.into_iter().filter(|collective| collective.folder() == row.collective);
        collectives.map(move |collective| (row, collective))
    };
    rows.into_iter().flat_map(implemented).collect()
}

/// The calls of a collective with this count, one for each root if it has roots. Leaves out those
/// that the algorithm cannot execute.
pub fn cases(
    row: &Row,
    collective: Collective,
    count: usize,
    reducer: &Reducer,
    size: usize,
) -> Vec<Case> {
    let roots = if collective.has_root() { size } else { 1 };
    let case = |root| Case { collective, count, reducer: reducer.clone(), root, size };
    (0..roots).map(case).filter(|case| row.can(&case.call())).collect()
}

/// Executes the calls one after another in one world, out of place and in place.
fn check(row: &Row, cases: &[Case], size: usize, faults: Faults) {
    check_with(&format!("{}:{}", row.collective, row.name), row, cases, size, faults);
}

fn check_with(algo: &str, row: &Row, cases: &[Case], size: usize, faults: Faults) {
    let world = world_for(row, size, faults);
    let mine = cases.to_vec();
    let results = run(&world, algo, move |communicator| {
        let cases = mine.clone();
        async move {
            let mut results = Vec::new();
            for case in &cases {
                for placement in [OutOfPlace, InPlace] {
                    results.push(execute(&communicator, case, placement).await.unwrap());
                }
            }
            results
        }
    });
    for (rank, results) in results.iter().enumerate() {
        for (case, got) in cases.iter().zip(results.chunks(2)) {
            let expected = oracle(case, row.name, rank);
            let untouched = || (vec![crate::world::UNTOUCHED; got[0].len()], case.input(rank));
            let expected = expected.map_or_else(untouched, |bytes| (bytes.clone(), bytes));
            assert!(got[0] == expected.0, "{algo}, {case:?}, rank {rank}, out of place");
            assert!(got[1] == expected.1, "{algo}, {case:?}, rank {rank}, in place");
        }
    }
}

#[test]
fn every_algorithm_is_right_for_1_to_17_and_32_ranks_and_counts_that_divide_nothing() {
    for size in (1..=17).chain([32]) {
        let counts = [0, 1, size - 1, size, size + 1, 2 * size + 1, 257];
        for (row, collective) in algorithms() {
            for reducer in [sum(), maps(), xor()] {
                let cases: Vec<_> = counts
                    .iter()
                    .flat_map(|count| cases(row, collective, *count, &reducer, size))
                    .collect();
                check(row, &cases, size, Faults::default());
            }
        }
    }
}

/// A reducer for counts of several pieces. A long bucketed all-reduce folds each piece in its own
/// order, so that only integers have a unique result.
fn for_pieces(collective: Collective) -> Reducer {
    match collective {
        Collective::AllReduceBucketed => known(DataType::Int32, RedOp::Sum).unwrap(),
        _ => sum(),
    }
}

#[test]
fn every_algorithm_is_right_at_the_boundaries_of_segments() {
    for size in [1, 2, 3, 4, 5] {
        for (row, collective) in
            algorithms().into_iter().filter(|(_, collective)| *collective != Collective::Barrier)
        {
            // Around the segments of a chunk, of a block and of the whole buffer.
            let whole = SEGMENT / 4;
            let counts = [whole - 1, whole + 1, size * whole + size - 1, 5 * whole + 3];
            let counts = if size > 3 { &counts[1..2] } else { &counts[..] };
            let cases: Vec<_> = counts
                .iter()
                .flat_map(|count| {
                    cases(row, collective, *count, &for_pieces(collective), size).pop()
                })
                .collect();
            check(row, &cases, size, Faults::default());
        }
    }
}

#[test]
fn every_type_and_operator_is_right_at_3_and_4_ranks() {
    let reducers = DataType::ALL.into_iter().flat_map(|dtype| {
        let scalar = [3, 0, 0x40, 0x3f, 0, 0, 0xf8, 0x3f];
        let known = RedOp::ALL.into_iter().filter_map(move |redop| known(dtype, redop));
        let sum = Fold::new(dtype, RedOp::Sum).ok();
        known.chain(sum.map(|sum| Reducer::PreMulSum { sum, scalar: Scalar::Here(scalar) }))
    });
    let reducers: Vec<_> = reducers.collect();
    // 6 floats and 8 integers take the 5 common operators and PreMulSum, integers 6 more.
    assert_eq!(reducers.len(), 14 * 6 + 8 * 6);
    for (row, collective) in algorithms().into_iter().filter(|(_, collective)| collective.folds()) {
        for size in [3, 4] {
            for reducer in &reducers {
                let is_avg = matches!(reducer, Reducer::Known(fold) if fold.redop() == RedOp::Avg);
                if is_avg && collective.folder() == "scan" {
                    continue;
                }
                let cases = cases(row, collective, 67, reducer, size);
                check(row, &cases[..1], size, Faults::default());
            }
        }
    }
}

#[test]
fn every_type_is_moved_right() {
    for (row, collective) in algorithms().into_iter().filter(|(_, collective)| !collective.folds())
    {
        for dtype in DataType::ALL {
            let reducer = known(dtype, RedOp::Sum).unwrap();
            check(row, &cases(row, collective, 67, &reducer, 5), 5, Faults::default());
        }
    }
}

/// Sizes that divide no slot, segment or part of a message.
const OPAQUE: [usize; 4] = [12, 24, 280, 4094];

#[test]
fn elements_of_any_size_are_right_with_every_algorithm() {
    for (row, collective) in
        algorithms().into_iter().filter(|(_, collective)| *collective != Collective::Barrier)
    {
        for bytes in OPAQUE {
            for (size, commutative) in [(1, true), (2, false), (3, false), (3, true), (5, true)] {
                // The last count crosses a slot.
                let counts = [0, 1, 2 * size + 1, SLOT / bytes + 1];
                let cases = counts.iter().flat_map(|count| {
                    cases(row, collective, *count, &opaque(bytes, commutative), size).pop()
                });
                check(row, &cases.collect::<Vec<_>>(), size, Faults::default());
            }
        }
    }
}

#[test]
fn elements_of_any_size_are_right_at_the_boundaries_of_segments() {
    for (row, collective) in
        algorithms().into_iter().filter(|(_, collective)| *collective != Collective::Barrier)
    {
        for bytes in [12, 4094] {
            for commutative in [false, true] {
                let count = 3 * SEGMENT / bytes + 5;
                let cases: Vec<_> = cases(row, collective, count, &opaque(bytes, commutative), 3)
                    .pop()
                    .into_iter()
                    .collect();
                check(row, &cases, 3, Faults::delays(7));
            }
        }
    }
}

#[test]
fn an_element_may_be_longer_than_a_slot_and_a_segment() {
    for (row, collective) in
        algorithms().into_iter().filter(|(_, collective)| *collective != Collective::Barrier)
    {
        for (bytes, count) in [(100_000, 1), (100_000, 3), (SEGMENT + 1, 2)] {
            for (size, commutative) in [(2, false), (3, true)] {
                let cases: Vec<_> =
                    cases(row, collective, count, &opaque(bytes, commutative), size)
                        .pop()
                        .into_iter()
                        .collect();
                check(row, &cases, size, Faults::default());
            }
        }
    }
}

#[test]
fn delayed_messages_change_no_bit() {
    for seed in 0..10 {
        for (row, collective) in algorithms() {
            for size in [2, 3, 5, 8] {
                check(row, &cases(row, collective, 100, &sum(), size), size, Faults::delays(seed));
            }
        }
    }
}

#[test]
fn buffers_much_larger_than_a_queue_go_through() {
    for (row, collective) in algorithms() {
        let mut cases = cases(row, collective, (1 << 20) + 1, &for_pieces(collective), 3);
        cases.truncate(1);
        check(row, &cases, 3, Faults::default());
    }
}

#[test]
fn without_a_name_every_call_takes_an_algorithm_that_performs_it_right() {
    for collective in Collective::ALL {
        for reducer in [sum(), maps()] {
            for count in [1, 1000, 100_000] {
                let reducer = if count > 1000 { for_pieces(collective) } else { reducer.clone() };
                let case = Case { collective, count, reducer, root: 0, size: 4 };
                let name = table::choose(&Selection::default(), &case.call(), 4, Topology::OneHost);
                let row = TABLE
                    .iter()
                    .find(|row| row.collective == collective.folder() && row.name == name);
                check_with("", row.unwrap(), &[case], 4, Faults::default());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_shapes_are_right(
        size in 1_usize..18,
        seed: u64,
        picks in prop::collection::vec(
            (0..1000_usize, 0_usize..3000, 0_usize..18, any::<bool>()),
            1..6,
        ),
    ) {
        let algorithms = algorithms();
        for (pick, count, root, in_order) in picks {
            let (row, collective) = algorithms[pick % algorithms.len()];
            let reducer = if in_order { maps() } else { sum() };
            let cases = cases(row, collective, count, &reducer, size);
            if let Some(case) = cases.get(root % cases.len().max(1)) {
                check(row, std::slice::from_ref(case), size, Faults::delays(seed));
            }
        }
    }
}
