//! Which ranks are connected from the beginning and exchange heartbeats.
//!
//! Leaves to `dial` how they connect. Invariants: being neighbours is mutual; the loss of any
//! single rank leaves the others connected; a communicator of a thousand ranks has few neighbours
//! per rank.

use crate::rank::{Rank, RankOf};

/// The ranks at distance 1, 2, 4, ... around the ring, in both directions.
pub(super) fn neighbours(me: RankOf) -> Vec<Rank> {
    let mut ranks: Vec<_> = (0..usize::BITS)
        .map(|bit| 1_usize << bit)
        .take_while(|distance| *distance < me.size)
        .flat_map(|distance| [me.after(distance), me.before(distance)])
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual_and_keep_all_ranks_connected_without_any_one_rank() {
        for size in 1..70 {
            let of = |rank| neighbours(RankOf::new(Rank(rank), size));
            for rank in 0..size {
                assert!(of(rank).iter().all(|peer| of(peer.0).contains(&Rank(rank))));
                assert!(!of(rank).contains(&Rank(rank)));
            }
            for lost in 0..size {
                let start = usize::from(lost == 0) % size;
                let mut reached = vec![false; size];
                let mut open = vec![start];
                while let Some(rank) = open.pop() {
                    if rank != lost && !std::mem::replace(&mut reached[rank], true) {
                        open.extend(of(rank).iter().map(|peer| peer.0));
                    }
                }
                let others = (0..size).filter(|rank| *rank != lost && *rank != start);
                assert!(others.into_iter().all(|rank| reached[rank]), "{size} without {lost}");
            }
        }
    }
}
