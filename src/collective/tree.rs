//! Parents and children in a binomial tree: pure arithmetic on ranks counted from the root.

use crate::rank::{Rank, RankOf};

#[derive(Debug)]
pub struct Tree {
    /// `None` at the root.
    pub parent: Option<Rank>,
    /// Largest subtree first.
    pub children: Vec<Rank>,
    /// This rank, counted from the root.
    pub from_root: usize,
    /// The number of ranks of its subtree, itself included. They follow it, counted from the root.
    pub span: usize,
}

/// The binomial tree, seen from one rank. With ranks counted from the root, the parent of a rank is
/// the rank without its lowest set bit, and its children are the rank with one lower bit set.
pub fn binomial(me: RankOf, root: Rank) -> Tree {
    let RankOf { rank, size } = me;
    let from_root = (rank.0 + size - root.0) % size;
    let absolute = |from_root: usize| Rank((from_root + root.0) % size);
    let bits = size.next_power_of_two().trailing_zeros();
    let lowest = if from_root == 0 { bits } else { from_root.trailing_zeros() };
    let below = (0..lowest).rev().map(|bit| from_root + (1 << bit));
    Tree {
        parent: (from_root > 0).then(|| absolute(from_root & (from_root - 1))),
        children: below.filter(|child| *child < size).map(absolute).collect(),
        from_root,
        span: (1 << lowest).min(size - from_root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_but_the_root_is_its_parents_child_exactly_once() {
        for size in 1..40 {
            for root in (0..size).map(Rank) {
                let tree = |rank| binomial(RankOf::new(Rank(rank), size), root);
                let mut seen = vec![0; size];
                for rank in 0..size {
                    for child in tree(rank).children {
                        assert_eq!(tree(child.0).parent, Some(Rank(rank)));
                        seen[child.0] += 1;
                    }
                    let below: usize =
                        tree(rank).children.iter().map(|child| tree(child.0).span).sum();
                    assert_eq!(tree(rank).span, 1 + below, "rank {rank} of {size}");
                }
                assert_eq!(tree(root.0).parent, None);
                for (rank, seen) in seen.into_iter().enumerate() {
                    assert_eq!(seen, usize::from(rank != root.0), "rank {rank} of {size}");
                }
            }
        }
    }
}
