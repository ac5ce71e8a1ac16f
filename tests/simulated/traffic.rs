//! Checks the number of messages and bytes of every algorithm against its card.

use nexar::collective::segments::SEGMENT;
use nexar::rank::Rank;
use nexar::transport::injection::Traffic;

use crate::case::{Case, Collective, sum};
use crate::world::Placement::OutOfPlace;
use crate::world::{execute, quiet, run};

/// Divisible by 1 to 8. The whole buffer has three segments, a chunk of it at least one.
const COUNT: usize = 840 * 200;
const WHOLE: u64 = 4 * COUNT as u64;

/// The traffic that each rank sends in one call with root 0.
fn sent(algo: &str, collective: Collective, size: usize) -> Vec<Traffic> {
    let case = Case { collective, count: COUNT, reducer: sum(), root: 0, size };
    let world = quiet(size);
    run(&world, algo, move |communicator| {
        let case = case.clone();
        async move { execute(&communicator, &case, OutOfPlace).await.unwrap() }
    });
    (0..size).map(|rank| world.traffic(Rank(rank))).collect()
}

fn each(size: usize, messages: u64, bytes: u64) -> Vec<Traffic> {
    vec![Traffic { messages, bytes }; size]
}

fn by_rank(size: usize, of: impl Fn(usize) -> (u64, u64)) -> Vec<Traffic> {
    let traffic = |(messages, bytes)| Traffic { messages, bytes };
    (0..size).map(of).map(traffic).collect()
}

fn segments(bytes: u64) -> u64 {
    bytes.div_ceil(SEGMENT as u64)
}

fn log2_up(size: usize) -> u64 {
    u64::from(size.next_power_of_two().ilog2())
}

#[test]
fn all_reduces_send_as_much_as_their_cards_say() {
    for size in 1..=8_usize {
        let others = size as u64 - 1;
        let chunk = WHOLE / size as u64;
        let collective = Collective::AllReduce;
        let rings = each(size, 2 * others * segments(chunk), 2 * others * chunk);
        assert_eq!(sent("allreduce:ring", collective, size), rings, "{size}");
        assert_eq!(sent("allreduce:rs_ag", collective, size), rings, "{size}");
        let one_shot = each(size, others, others * WHOLE);
        assert_eq!(sent("allreduce:one_shot", collective, size), one_shot, "{size}");

        let power = 1 << size.ilog2();
        let (rounds, pairs) = (u64::from(size.ilog2()), size - power);
        // The even rank of a pair sends its buffer to the odd one, which sends the result back.
        let with_pairs = |messages: u64, bytes: u64| {
            by_rank(size, |rank| match rank {
                even if even < 2 * pairs && even % 2 == 0 => (1, WHOLE),
                odd if odd < 2 * pairs => (messages + 1, bytes + WHOLE),
                _ => (messages, bytes),
            })
        };
        let doubling = with_pairs(rounds, rounds * WHOLE);
        assert_eq!(sent("allreduce:recursive_doubling", collective, size), doubling, "{size}");
        let halving = with_pairs(2 * rounds, 2 * (power as u64 - 1) * WHOLE / power as u64);
        assert_eq!(sent("allreduce:rabenseifner", collective, size), halving, "{size}");
    }
}

#[test]
fn reduces_and_broadcasts_send_as_much_as_their_cards_say() {
    for size in 1..=8_usize {
        let all_but = |silent: usize, messages: u64| {
            by_rank(size, |rank| if rank == silent { (0, 0) } else { (messages, WHOLE) })
        };
        assert_eq!(sent("reduce:binomial", Collective::Reduce, size), all_but(0, 1), "{size}");
        let pipeline = all_but(0, segments(WHOLE));
        assert_eq!(sent("reduce:pipeline", Collective::Reduce, size), pipeline, "{size}");
        let pipeline = all_but(size - 1, segments(WHOLE));
        assert_eq!(sent("broadcast:pipeline", Collective::Broadcast, size), pipeline, "{size}");
        assert_eq!(sent("scan:pipeline", Collective::Scan, size), pipeline, "{size}");
        assert_eq!(sent("scan:pipeline", Collective::ExScan, size), pipeline, "{size}");

        let tree = sent("broadcast:binomial", Collective::Broadcast, size);
        let total: u64 = tree.iter().map(|rank| rank.messages).sum();
        assert_eq!(total, size as u64 - 1, "{size}");
        assert!(tree.iter().all(|rank| rank.bytes == rank.messages * WHOLE), "{size}");
        assert_eq!(tree[0].messages, log2_up(size), "{size}");
    }
}

#[test]
fn scans_send_as_much_as_their_cards_say() {
    for size in 1..=8_usize {
        let doubling = by_rank(size, |rank| {
            let sends = (0..log2_up(size)).filter(|step| rank + (1 << step) < size).count() as u64;
            (sends, sends * WHOLE)
        });
        assert_eq!(sent("scan:hillis_steele", Collective::Scan, size), doubling, "{size}");
        assert_eq!(sent("scan:hillis_steele", Collective::ExScan, size), doubling, "{size}");
    }
}

#[test]
fn gathers_and_scatters_send_as_much_as_their_cards_say() {
    for size in 1..=8_usize {
        let others = size as u64 - 1;
        let ring = each(size, others * segments(WHOLE), others * WHOLE);
        assert_eq!(sent("allgather:ring", Collective::AllGather, size), ring, "{size}");
        assert_eq!(sent("reduce_scatter:ring", Collective::ReduceScatter, size), ring, "{size}");
        let bruck = each(size, log2_up(size), others * WHOLE);
        assert_eq!(sent("allgather:bruck", Collective::AllGather, size), bruck, "{size}");
        let pairwise = each(size, others, others * WHOLE);
        assert_eq!(
            sent("reduce_scatter:pairwise", Collective::ReduceScatter, size),
            pairwise,
            "{size}"
        );
        assert_eq!(sent("alltoall:pairwise", Collective::AllToAll, size), pairwise, "{size}");

        let far = |step: u64| (0..size).filter(move |distance| distance & (1 << step) != 0);
        let blocks: u64 = (0..log2_up(size)).map(|step| far(step).count() as u64).sum();
        let bruck = each(size, log2_up(size), blocks * WHOLE);
        assert_eq!(sent("alltoall:bruck", Collective::AllToAll, size), bruck, "{size}");

        let gather = by_rank(size, |rank| if rank == 0 { (0, 0) } else { (1, WHOLE) });
        assert_eq!(sent("gather:linear", Collective::Gather, size), gather, "{size}");
        let scatter = by_rank(size, |rank| match rank {
            0 => (others, others * WHOLE),
            _ => (0, 0),
        });
        assert_eq!(sent("scatter:linear", Collective::Scatter, size), scatter, "{size}");

        // The number of blocks of a subtree of the binomial tree with root 0.
        let span = |rank: usize| (1 << rank.trailing_zeros()).min(size - rank) as u64;
        let gather = by_rank(size, |rank| if rank == 0 { (0, 0) } else { (1, span(rank) * WHOLE) });
        assert_eq!(sent("gather:binomial", Collective::Gather, size), gather, "{size}");
        let scatter = by_rank(size, |rank| {
            let parent = |child: &usize| *child & (*child - 1) == rank;
            let children: Vec<_> = (1..size).filter(parent).collect();
            let blocks: u64 = children.iter().map(|child| span(*child)).sum();
            (children.len() as u64, blocks * WHOLE)
        });
        assert_eq!(sent("scatter:binomial", Collective::Scatter, size), scatter, "{size}");
    }
}

#[test]
fn recursive_halving_sends_as_much_as_its_card_says() {
    for size in 1..=8_usize {
        let (rounds, pairs) = (u64::from(size.ilog2()), size - (1 << size.ilog2()));
        let all = size as u64;
        let expected = by_rank(size, |rank| match rank {
            even if even < 2 * pairs && even % 2 == 0 => (1, all * WHOLE),
            odd if odd < 2 * pairs => (rounds + 1, (all - 1) * WHOLE),
            _ => (rounds, (all - 1) * WHOLE),
        });
        let algo = "reduce_scatter:recursive_halving";
        assert_eq!(sent(algo, Collective::ReduceScatter, size), expected, "{size}");
    }
}

#[test]
fn a_barrier_sends_headers_only() {
    for size in 1..=8_usize {
        assert_eq!(
            sent("barrier:dissemination", Collective::Barrier, size),
            each(size, log2_up(size), 0),
            "{size}"
        );
    }
}
