//! Reduces any number of ranks to a power of two of *virtual ranks*: the first ranks form pairs, of
//! which one rank takes part for both.
//!
//! With p the largest power of two that is not above n, the first 2 (n - p) ranks form pairs.
//! Virtual ranks keep the order of ranks, and a pair is one virtual rank: n = 5, p = 4:
//!
//! ```text
//! rank           0 1   2   3   4
//! virtual rank     0   1   2   3
//! ```

use crate::collective::exchange::Exchange;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::{Rank, RankOf};
use crate::reduce::Side;

pub struct Pairs {
    me: usize,
    /// How many virtual ranks there are: a power of two.
    pub virtual_size: usize,
    pairs: usize,
}

/// The part of a rank in the algorithm.
pub enum Part {
    /// Sends its share to its partner and receives the result from it.
    Idle { partner: Rank },
    /// Takes part, for its partner too if it has one.
    Active { virtual_rank: usize, partner: Option<Rank> },
}

impl Pairs {
    pub fn new(me: RankOf) -> Self {
        let virtual_size = 1 << me.size.ilog2();
        Self { me: me.rank.0, virtual_size, pairs: me.size - virtual_size }
    }

    fn part(&self) -> Part {
        let me = self.me;
        match me < 2 * self.pairs {
            true if me.is_multiple_of(2) => Part::Idle { partner: Rank(me + 1) },
            true => Part::Active { virtual_rank: me / 2, partner: Some(Rank(me - 1)) },
            false => Part::Active { virtual_rank: me - self.pairs, partner: None },
        }
    }

    /// Folds the share of each idle rank into its partner's. Returns the part of this rank.
    pub async fn fold_shares(
        &self,
        exchange: &Exchange<'_>,
        reducer: &Reducer,
        data: &mut [u8],
    ) -> Result<Part> {
        let part = self.part();
        match part {
            Part::Idle { partner } => exchange.send(partner, 0, data).await?,
            Part::Active { partner: Some(partner), .. } => {
                exchange.recv_fold(partner, 0, reducer, Side::Left, data).await?;
            }
            Part::Active { partner: None, .. } => {}
        }
        Ok(part)
    }

    /// The rank that takes part as a virtual rank.
    pub fn rank(&self, virtual_rank: usize) -> Rank {
        let is_pair = virtual_rank < self.pairs;
        Rank(if is_pair { 2 * virtual_rank + 1 } else { virtual_rank + self.pairs })
    }

    /// The ranks that a virtual rank consists of.
    pub fn ranks(&self, virtual_rank: usize) -> std::ops::Range<usize> {
        let last = self.rank(virtual_rank).0;
        if virtual_rank < self.pairs { last - 1..last + 1 } else { last..last + 1 }
    }

    /// How many times the virtual ranks can be halved.
    pub fn halvings(&self) -> usize {
        self.virtual_size.ilog2() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_belongs_to_one_virtual_rank_in_order() {
        for size in 1..40 {
            let of = |rank| Pairs::new(RankOf::new(Rank(rank), size));
            let mut next = 0;
            for virtual_rank in 0..of(0).virtual_size {
                let ranks = of(0).ranks(virtual_rank);
                assert_eq!(ranks.start, next);
                next = ranks.end;
                for rank in ranks {
                    match of(rank).part() {
                        Part::Idle { partner } => assert_eq!(partner, of(0).rank(virtual_rank)),
                        Part::Active { virtual_rank: own, .. } => assert_eq!(own, virtual_rank),
                    }
                }
            }
            assert_eq!(next, size);
        }
    }
}
