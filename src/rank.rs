//! A rank's number, and this rank among the ranks of a communicator.

use std::fmt;

/// A rank of a communicator, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub usize);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// This rank among `size` ranks. Invariant: `rank.0 < size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankOf {
    pub rank: Rank,
    pub size: usize,
}

impl RankOf {
    pub fn new(rank: Rank, size: usize) -> Self {
        assert!(rank.0 < size, "{rank} is not below the size {size}");
        Self { rank, size }
    }

    /// The rank `steps` after this one in the ring.
    pub fn after(self, steps: usize) -> Rank {
        Rank((self.rank.0 + steps) % self.size)
    }

    /// The rank `steps` before this one in the ring.
    pub fn before(self, steps: usize) -> Rank {
        Rank((self.rank.0 + self.size - steps % self.size) % self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_and_before_wrap_around_the_ring_and_are_inverse() {
        for size in 1..10 {
            for rank in 0..size {
                let me = RankOf::new(Rank(rank), size);
                for steps in 0..3 * size {
                    let there = RankOf::new(me.after(steps), size);
                    assert_eq!(there.before(steps), me.rank, "{me:?}, {steps} steps");
                }
            }
        }
    }
}
