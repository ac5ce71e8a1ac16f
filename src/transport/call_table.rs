//! The mismatch detector: a table of the latest calls by number, in which the ranks' calls are
//! compared.
//!
//! Leaves to its owner how the calls of other ranks arrive, and what follows from a mismatch.
//! Invariant: a call is compared with the first one that was entered under its sequence number.

use crate::error::Error;
use crate::op::Call;
use crate::rank::Rank;

use super::Absent;

/// The number of calls that are kept.
pub const REMEMBERED: usize = 64;

pub struct CallTable {
    /// Call number `seq` is in slot `seq % REMEMBERED`, with the first rank that entered it.
    calls: [Option<(u64, Rank, Call)>; REMEMBERED],
    /// The next sequence number of each rank.
    next: Vec<u64>,
}

impl CallTable {
    pub fn new(size: usize) -> Self {
        Self { calls: [None; REMEMBERED], next: vec![0; size] }
    }

    /// Records that a rank has entered a call. `Err` if another rank has entered another call under
    /// this sequence number.
    pub fn enter(&mut self, rank: Rank, seq: u64, call: Call) -> Result<(), Error> {
        self.next[rank.0] = self.next[rank.0].max(seq.saturating_add(1));
        let slot = &mut self.calls[seq as usize % REMEMBERED];
        match *slot {
            Some((entered, first, other)) if entered == seq && other != call => {
                let mut sides = [(first, other), (rank, call)];
                sides.sort_by_key(|(rank, _)| *rank);
                Err(Error::Mismatch { seq, one: sides[0], other: sides[1] })
            }
            // For a rank more than REMEMBERED calls behind, the slot holds a later call.
            Some((entered, ..)) if entered >= seq => Ok(()),
            _ => {
                *slot = Some((seq, rank, call));
                Ok(())
            }
        }
    }

    /// Ranks that have not entered call number `seq`.
    pub fn missing(&self, seq: u64) -> Vec<Absent> {
        let ranks = self.next.iter().enumerate().filter(|(_, next)| **next <= seq);
        let absent =
            |(rank, next): (usize, &u64)| Absent { rank: Rank(rank), last: next.checked_sub(1) };
        ranks.map(absent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;
    use crate::op::Counts;

    fn gather(count: usize) -> Call {
        Call::all_gather(Counts::Each(count), DataType::Int8.into())
    }

    #[test]
    fn ranks_that_agree_may_enter_in_any_order() {
        let mut call_table = CallTable::new(3);
        for rank in [2, 0, 1] {
            for seq in 0..200 {
                call_table.enter(Rank(rank), seq, gather(seq as usize)).unwrap();
            }
        }
    }

    #[test]
    fn a_different_call_is_found_when_the_second_rank_enters() {
        let mut call_table = CallTable::new(2);
        call_table.enter(Rank(1), 5, gather(0)).unwrap();
        let error = call_table.enter(Rank(0), 5, gather(8)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ranks disagree on call #5: rank 0 called AllGather(8 x int8), \
             rank 1 called AllGather(0 x int8)"
        );
    }

    #[test]
    fn a_difference_is_found_up_to_64_calls_later() {
        for (later, found) in [(1, true), (63, true), (64, false)] {
            let mut call_table = CallTable::new(2);
            for seq in 0..=later {
                call_table.enter(Rank(1), seq, gather(1)).unwrap();
            }
            assert_eq!(
                call_table.enter(Rank(0), 0, gather(2)).is_err(),
                found,
                "{later} calls later"
            );
        }
    }

    #[test]
    fn missing_names_the_ranks_that_have_not_entered() {
        let mut call_table = CallTable::new(3);
        call_table.enter(Rank(1), 0, gather(1)).unwrap();
        let absent = |rank, last| Absent { rank: Rank(rank), last };
        assert_eq!(call_table.missing(0), [absent(0, None), absent(2, None)]);
        assert_eq!(call_table.missing(1), [absent(0, None), absent(1, Some(0)), absent(2, None)]);
        call_table.enter(Rank(0), 0, gather(1)).unwrap();
        call_table.enter(Rank(2), 0, gather(1)).unwrap();
        assert_eq!(call_table.missing(0), []);
    }
}
