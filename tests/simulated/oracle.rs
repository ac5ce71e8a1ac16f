//! The expected output of every rank, computed in the fold order that the algorithm's card states.

use nexar::blocks::Blocks;
use nexar::op::Reducer;
use nexar::reduce::Side;

use crate::case::{Case, Collective};
use crate::world::UNTOUCHED;

/// The expected output of `rank`. `None` if the call does not write it.
pub fn oracle(case: &Case, algorithm: &str, rank: usize) -> Option<Vec<u8>> {
    let size = case.size;
    let input = |rank| case.input(rank);
    let all = || (0..size).map(input).collect::<Vec<_>>();
    let folded = |order: &Order, shares: Vec<Vec<u8>>| {
        let shares = shares.into_iter().enumerate().map(|(rank, mut share)| {
            // Rank 0 of a scan folds nothing and prepares its share as if it were alone.
            let alone = case.collective.folder() == "scan" && rank == 0;
            case.reducer.prepare(&mut share, if alone { 1 } else { size });
            share
        });
        fold_tree(&case.reducer, order, &shares.collect::<Vec<_>>())
    };
    let result = match case.collective {
        Collective::Barrier => Vec::new(),
        Collective::AllReduce | Collective::AllReduceBucketed => {
            let (inputs, element) = (all(), case.reducer.dtype().size());
            let chunks = Blocks::even(inputs[0].len() / element, element, size);
            let share = |chunk| {
                let shares = inputs.iter().map(|input| input[chunks.get(chunk)].to_vec()).collect();
                let order = match algorithm {
                    "ring" | "rs_ag" => ring(chunk, size),
                    "recursive_doubling" | "rabenseifner" => doubling(size),
                    "one_shot" | "flat" | "slices" => row(0..size),
                    "hierarchical" => by_host(size),
                    other => panic!("no oracle for {other}"),
                };
                folded(&order, shares)
            };
            (0..size).flat_map(share).collect()
        }
        Collective::ReduceScatter | Collective::ReduceScatterV => {
            let block = case.blocks(rank).get(rank);
            let shares = all().iter().map(|input| input[block.clone()].to_vec()).collect();
            let order = match algorithm {
                "ring" => ring(rank, size),
                "recursive_halving" => halving(rank, size),
                "pairwise" | "flat" => row(0..size),
                other => panic!("no oracle for {other}"),
            };
            folded(&order, shares)
        }
        Collective::Reduce if rank != case.root => Vec::new(),
        Collective::Reduce => {
            let order = match algorithm {
                "binomial" => binomial(case.root, 0, size),
                "pipeline" => ring(case.root, size),
                "flat" => row(0..size),
                "hierarchical" => by_host(size),
                other => panic!("no oracle for {other}"),
            };
            folded(&order, all())
        }
        Collective::Scan => {
            let order = match algorithm {
                "hillis_steele" => hillis_steele(rank, steps(size)),
                "pipeline" | "flat" | "chain" => row(0..rank + 1),
                other => panic!("no oracle for {other}"),
            };
            folded(&order, all())
        }
        Collective::ExScan if rank == 0 => {
            // The output must be the identity: folding it with any share returns the share.
            if matches!(case.reducer, Reducer::User { .. }) {
                return None;
            }
            let mut output = vec![0; case.output_bytes(0)];
            case.reducer.identity(&mut output);
            let mut any = case.input(0);
            case.reducer.prepare(&mut any, 1);
            let mut folded = any.clone();
            case.reducer.fold(&mut folded, &output, Side::Right);
            let element = case.reducer.dtype().size();
            for (before, after) in any.chunks(element).zip(folded.chunks(element)) {
                // -0.0 + 0.0 is 0.0.
                let (sign, rest) = before.split_last().unwrap();
                let minus_zero = *sign == 0x80 && rest.iter().all(|byte| *byte == 0);
                assert!(before == after || minus_zero, "{case:?}: rank 0 gets no identity");
            }
            output
        }
        Collective::ExScan => {
            let order = match algorithm {
                "hillis_steele" => before(rank, steps(size)).unwrap(),
                "pipeline" | "flat" | "chain" => row(0..rank),
                other => panic!("no oracle for {other}"),
            };
            folded(&order, all())
        }
        Collective::Broadcast => input(case.root),
        Collective::AllGather | Collective::AllGatherV => collected(case, rank, input),
        Collective::Gather | Collective::GatherV if rank != case.root => Vec::new(),
        Collective::Gather | Collective::GatherV => collected(case, rank, input),
        Collective::Scatter | Collective::ScatterV => {
            input(case.root)[case.blocks(rank).get(rank)].to_vec()
        }
        Collective::AllToAll | Collective::AllToAllV => {
            collected(case, rank, |peer| input(peer)[case.blocks(peer).get(rank)].to_vec())
        }
    };
    Some(result)
}

/// The output with a block from each rank; the bytes between them are untouched.
fn collected(case: &Case, rank: usize, block: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut output = vec![UNTOUCHED; case.output_bytes(rank)];
    for peer in 0..case.size {
        output[case.blocks(rank).get(peer)].copy_from_slice(&block(peer));
    }
    output
}

/// The order in which the ranks' shares are folded.
enum Order {
    Rank(usize),
    Both(Box<Self>, Box<Self>),
}

impl Order {
    fn then(self, next: Self) -> Self {
        Self::Both(Box::new(self), Box::new(next))
    }
}

/// Left to right.
fn row(ranks: impl Iterator<Item = usize>) -> Order {
    ranks.map(Order::Rank).reduce(Order::then).unwrap()
}

/// The ranks of one host, then those of the other, as `world_for` places them.
fn by_host(size: usize) -> Order {
    match size {
        1 => row(0..1),
        _ => row((0..size).step_by(2)).then(row((1..size).step_by(2))),
    }
}

/// Around the ring: the right neighbour of `last` first, `last` at the end.
fn ring(last: usize, size: usize) -> Order {
    row((1..=size).map(|step| (last + step) % size))
}

/// Groups of neighbouring ranks, in order. The first groups are pairs, so that the number of groups
/// is a power of two.
fn groups(size: usize) -> Vec<Vec<usize>> {
    let pairs = size - (1 << size.ilog2());
    let mut groups: Vec<_> = (0..pairs).map(|pair| vec![2 * pair, 2 * pair + 1]).collect();
    groups.extend((2 * pairs..size).map(|rank| vec![rank]));
    groups
}

/// Recursive doubling: folds neighbouring groups in pairs until one is left.
fn doubling(size: usize) -> Order {
    let mut groups: Vec<_> = groups(size).into_iter().map(|group| row(group.into_iter())).collect();
    while groups.len() > 1 {
        let mut fewer = Vec::new();
        let mut left = groups.into_iter();
        while let (Some(one), Some(other)) = (left.next(), left.next()) {
            fewer.push(one.then(other));
        }
        groups = fewer;
    }
    groups.pop().unwrap()
}

/// Recursive halving: each group with the one that is half of all groups away, then a quarter, ...
fn halving(rank: usize, size: usize) -> Order {
    let groups = groups(size);
    fn after(group: usize, step: u32, groups: &[Vec<usize>]) -> Order {
        if step == 0 {
            return row(groups[group].iter().copied());
        }
        let other = group ^ (groups.len() >> step);
        after(group, step - 1, groups).then(after(other, step - 1, groups))
    }
    let group = groups.iter().position(|ranks| ranks.contains(&rank)).unwrap();
    after(group, groups.len().ilog2(), &groups)
}

/// Binomial tree: a rank folds its share, then its subtrees, nearest first. `from_root`: its
/// distance from the root.
fn binomial(root: usize, from_root: usize, size: usize) -> Order {
    let own = Order::Rank((root + from_root) % size);
    let bits = (0..usize::BITS).map(|bit| 1_usize << bit);
    let lower = bits
        .take_while(|bit| (from_root == 0 || from_root & (bit | (bit - 1)) == 0) && *bit < size);
    let children = lower.map(|bit| from_root + bit).filter(|child| *child < size);
    children.fold(own, |order, child| order.then(binomial(root, child, size)))
}

fn steps(size: usize) -> u32 {
    size.next_power_of_two().ilog2()
}

/// The ranks up to this one that it has folded after `step` steps.
fn hillis_steele(rank: usize, step: u32) -> Order {
    let Some(step) = step.checked_sub(1) else { return Order::Rank(rank) };
    match rank.checked_sub(1 << step) {
        Some(lower) => hillis_steele(lower, step).then(hillis_steele(rank, step)),
        None => hillis_steele(rank, step),
    }
}

/// The ranks before this one that it has folded after `step` steps.
fn before(rank: usize, step: u32) -> Option<Order> {
    let step = step.checked_sub(1)?;
    let known = before(rank, step);
    match (rank.checked_sub(1 << step), known) {
        (Some(lower), Some(known)) => Some(hillis_steele(lower, step).then(known)),
        (Some(lower), None) => Some(hillis_steele(lower, step)),
        (None, known) => known,
    }
}

/// Folds the shares in this order. User-defined operators are folded in the order of ranks with
/// every algorithm.
fn fold_tree(reducer: &Reducer, order: &Order, shares: &[Vec<u8>]) -> Vec<u8> {
    fn ranks(order: &Order) -> Vec<usize> {
        match order {
            Order::Rank(rank) => vec![*rank],
            Order::Both(one, other) => [ranks(one), ranks(other)].concat(),
        }
    }
    fn walk(reducer: &Reducer, order: &Order, shares: &[Vec<u8>]) -> Vec<u8> {
        match order {
            Order::Rank(rank) => shares[*rank].clone(),
            Order::Both(one, other) => {
                let mut result = walk(reducer, one, shares);
                reducer.fold(&mut result, &walk(reducer, other, shares), Side::Right);
                result
            }
        }
    }
    let mut in_rank_order = ranks(order);
    in_rank_order.sort_unstable();
    let order = match reducer {
        Reducer::User { .. } => &row(in_rank_order.into_iter()),
        _ => order,
    };
    let mut result = walk(reducer, order, shares);
    reducer.finish(&mut result, shares.len());
    result
}
