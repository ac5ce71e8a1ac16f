//! Any number of ranks as a power of two: the first ranks go in pairs, of which one takes part for
//! both.
//!
//! With p the largest power of two that is not above n, the first 2 (n - p) ranks form pairs.
//! Numbers keep the order of ranks, and a pair is one number: n = 5, p = 4:
//!
//! ```text
//! rank     0 1   2   3   4
//! number     0   1   2   3
//! ```

use crate::collective::exchange::Exchange;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::{Rank, RankOf};
use crate::reduce::Side;

pub struct Pairs {
    me: usize,
    /// How many numbers there are: a power of two.
    pub numbers: usize,
    pairs: usize,
}

/// What a rank does.
pub enum Part {
    /// Hands its share to the other of its pair and gets its result from it.
    Idle { partner: Rank },
    /// Takes part, for its partner too if it has one.
    Active { number: usize, partner: Option<Rank> },
}

impl Pairs {
    pub fn new(me: RankOf) -> Self {
        let numbers = 1 << me.size.ilog2();
        Self { me: me.rank.0, numbers, pairs: me.size - numbers }
    }

    fn part(&self) -> Part {
        let me = self.me;
        match me < 2 * self.pairs {
            true if me.is_multiple_of(2) => Part::Idle { partner: Rank(me + 1) },
            true => Part::Active { number: me / 2, partner: Some(Rank(me - 1)) },
            false => Part::Active { number: me - self.pairs, partner: None },
        }
    }

    /// Folds the share of each idle rank into its partner's. Returns what this rank does then.
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

    /// The rank that takes part under a number.
    pub fn rank(&self, number: usize) -> Rank {
        Rank(if number < self.pairs { 2 * number + 1 } else { number + self.pairs })
    }

    /// The ranks that a number stands for.
    pub fn ranks(&self, number: usize) -> std::ops::Range<usize> {
        let last = self.rank(number).0;
        if number < self.pairs { last - 1..last + 1 } else { last..last + 1 }
    }

    /// How many times the numbers can be halved.
    pub fn epochs(&self) -> usize {
        self.numbers.ilog2() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_belongs_to_one_number_in_order() {
        for size in 1..40 {
            let of = |rank| Pairs::new(RankOf::new(Rank(rank), size));
            let mut next = 0;
            for number in 0..of(0).numbers {
                let ranks = of(0).ranks(number);
                assert_eq!(ranks.start, next);
                next = ranks.end;
                for rank in ranks {
                    match of(rank).part() {
                        Part::Idle { partner } => assert_eq!(partner, of(0).rank(number)),
                        Part::Active { number: own, .. } => assert_eq!(own, number),
                    }
                }
            }
            assert_eq!(next, size);
        }
    }
}
