//! Every collective, algorithm and shape against an oracle: the exact bits, on every rank.

use nexar::collective::select::TABLE;
use nexar::dtype::DataType;
use nexar::op::{Call, Fold, RedOp};
use nexar::rank::Rank;
use nexar::transport::mem::{MemWorld, Traffic, Trouble};
use proptest::prelude::*;

use crate::world::Placement::{InPlace, OutOfPlace};
use crate::world::{make, oracle, quiet, run};

fn sum() -> Fold {
    Fold::new(DataType::Float32, RedOp::Sum).unwrap()
}

/// All calls of a collective with this count: one for each root, if it has roots.
fn calls(collective: &str, count: usize, fold: Fold, size: usize) -> Vec<Call> {
    let dtype = fold.dtype();
    let roots = (0..size).map(Rank);
    match collective {
        "allreduce" => vec![Call::AllReduce { count, fold }],
        "reduce_scatter" => vec![Call::ReduceScatter { count, fold }],
        "allgather" => vec![Call::AllGather { count, dtype }],
        "reduce" => roots.map(|root| Call::Reduce { count, fold, root }).collect(),
        "broadcast" => roots.map(|root| Call::Broadcast { count, dtype, root }).collect(),
        "barrier" => vec![Call::Barrier],
        other => panic!("no calls of {other}"),
    }
}

/// Makes the calls one after another in one world, in place and out of place.
fn check(algo: &str, calls: &[Call], size: usize, trouble: Trouble) {
    let algorithm = algo.split(':').nth(1).unwrap();
    let world = MemWorld::new(size, trouble).unwrap();
    let mine = calls.to_vec();
    let results = run(&world, algo, move |communicator| {
        let calls = mine.clone();
        async move {
            let mut results = Vec::new();
            for call in calls {
                for placement in [OutOfPlace, InPlace] {
                    results.push(make(&communicator, call, placement).await.unwrap());
                }
            }
            results
        }
    });
    for (rank, results) in results.iter().enumerate() {
        for (call, got) in calls.iter().zip(results.chunks(2)) {
            let expected = oracle(call, algorithm, rank, size);
            assert!(got[0] == expected, "{algo}, {call}, rank {rank} of {size}, out of place");
            assert!(got[1] == expected, "{algo}, {call}, rank {rank} of {size}, in place");
        }
    }
}

#[test]
fn every_algorithm_is_right_for_1_to_9_ranks_and_counts_that_divide_nothing() {
    for row in &TABLE {
        let algo = format!("{}:{}", row.collective, row.name);
        for size in 1..=9 {
            let counts = [0, 1, size - 1, size, size + 1, 1000, 65_537];
            let calls: Vec<_> = counts
                .iter()
                .flat_map(|count| calls(row.collective, *count, sum(), size))
                .collect();
            check(&algo, &calls, size, Trouble::default());
        }
    }
}

#[test]
fn every_type_and_operator_is_right_at_3_and_4_ranks() {
    let folds = DataType::ALL.into_iter().flat_map(|dtype| {
        RedOp::ALL.into_iter().filter_map(move |redop| Fold::new(dtype, redop).ok())
    });
    let folds: Vec<_> = folds.collect();
    // 6 floats and 8 integers take the 5 common operators, integers 6 more.
    assert_eq!(folds.len(), 14 * 5 + 8 * 6);
    for row in TABLE.iter().filter(|row| row.collective != "barrier") {
        let algo = format!("{}:{}", row.collective, row.name);
        for size in [3, 4] {
            for fold in &folds {
                check(
                    &algo,
                    &calls(row.collective, 257, *fold, size)[..1],
                    size,
                    Trouble::default(),
                );
            }
        }
    }
}

#[test]
fn delayed_messages_change_no_bit() {
    for seed in 0..20 {
        for row in &TABLE {
            let algo = format!("{}:{}", row.collective, row.name);
            for size in [2, 3, 5, 8] {
                let calls = calls(row.collective, 100, sum(), size);
                check(&algo, &calls, size, Trouble::delays(seed));
            }
        }
    }
}

#[test]
fn ranks_send_as_much_as_the_cards_say() {
    const COUNT: u64 = 840; // divides by 1 to 8
    let whole = 4 * COUNT;
    for size in 1..=8_u64 {
        let sent = |algo: &str, collective: &str| -> Vec<Traffic> {
            let call = calls(collective, COUNT as usize, sum(), size as usize)[0];
            let world = quiet(size as usize);
            run(&world, algo, move |communicator| async move {
                make(&communicator, call, OutOfPlace).await.unwrap();
            });
            (0..size as usize).map(|rank| world.traffic(Rank(rank))).collect()
        };
        let each = |messages, bytes| vec![Traffic { messages, bytes }; size as usize];
        let total = |traffic: &[Traffic]| -> (u64, u64) {
            (traffic.iter().map(|t| t.messages).sum(), traffic.iter().map(|t| t.bytes).sum())
        };

        let ring = sent("allreduce:ring", "allreduce");
        assert_eq!(ring, each(2 * (size - 1), 2 * (size - 1) * whole / size), "{size}");
        assert_eq!(sent("", "allgather"), each(size - 1, (size - 1) * whole), "{size}");
        assert_eq!(sent("", "reduce_scatter"), each(size - 1, (size - 1) * whole), "{size}");
        assert_eq!(total(&sent("", "broadcast")), (size - 1, (size - 1) * whole), "{size}");
        assert_eq!(total(&sent("", "reduce")), (size - 1, (size - 1) * whole), "{size}");
        let steps = u64::from(size.next_power_of_two().ilog2());
        assert_eq!(sent("", "barrier"), each(steps, 0), "{size}");

        let (rounds, extra) = (u64::from(size.ilog2()), size - (1 << size.ilog2()));
        let messages = (size - extra) * rounds + 2 * extra;
        let doubling = sent("allreduce:recursive_doubling", "allreduce");
        assert_eq!(total(&doubling), (messages, messages * whole), "{size}");
    }
}

#[test]
fn a_buffer_much_larger_than_a_queue_goes_through() {
    let count = 3 * (1 << 20) + 1;
    for algo in ["allreduce:ring", "allreduce:recursive_doubling"] {
        check(algo, &calls("allreduce", count, sum(), 3), 3, Trouble::default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_of_calls_are_right(
        size in 1_usize..10,
        seed: u64,
        picks in prop::collection::vec((0..TABLE.len(), 0_usize..3000, 0_usize..10), 1..12),
    ) {
        let call = |(row, count, root): &(usize, usize, usize)| {
            let calls = calls(TABLE[*row].collective, *count, sum(), size);
            calls[root % calls.len()]
        };
        let picked: Vec<Call> = picks.iter().map(call).collect();
        check("allreduce:ring", &picked, size, Trouble::delays(seed));
    }
}
