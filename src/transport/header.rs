//! What precedes every message: enough to know that it is the one the receiver waits for.

use crate::error::{Error, Result};
use crate::op::{Call, Counts};
use crate::rank::Rank;

/// The call as a whole travels with each message, not a hash of it: equality is exact, and the
/// receiver of a wrong one can at once name both calls. So does the call before it: a difference
/// that showed in no message, because nobody was to receive one, shows in the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub seq: u64,
    pub call: Call,
    /// Call number `seq - 1`, if there was one.
    pub previous: Option<Call>,
    /// Which message of the call this is, between these two ranks.
    pub step: u32,
    pub bytes: usize,
}

impl Header {
    /// Compares what arrived from `peer` with what `me` expects.
    pub fn check(&self, me: Rank, peer: Rank, arrived: &Self) -> Result<()> {
        if self == arrived {
            return Ok(());
        }
        let mismatch = |seq, mine, theirs| {
            let mut sides = [(me, mine), (peer, theirs)];
            sides.sort_by_key(|(rank, _)| *rank);
            Err(Error::Mismatch { seq, one: sides[0], other: sides[1] })
        };
        if self.seq == arrived.seq {
            if let (Some(mine), Some(theirs)) = (self.previous, arrived.previous)
                && mine != theirs
            {
                return mismatch(self.seq - 1, mine, theirs);
            }
            if self.call != arrived.call {
                return mismatch(self.seq, self.call, arrived.call);
            }
            // Only the two of them know how much one sends the other.
            if self.step == arrived.step && self.call.counts() == Counts::Pairwise {
                let (sent, expected) = (arrived.bytes, self.bytes);
                let (seq, call) = (self.seq, self.call);
                return Err(Error::Lengths { seq, call, from: peer, to: me, sent, expected });
            }
        }
        Err(Error::Protocol {
            peer,
            what: format!(
                "sent {} bytes of {} #{} step {} where {} bytes of {} #{} step {} were expected",
                arrived.bytes,
                arrived.call,
                arrived.seq,
                arrived.step,
                self.bytes,
                self.call,
                self.seq,
                self.step
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    const HEADER: Header =
        Header { seq: 3, call: Call::Barrier, previous: Some(Call::Barrier), step: 1, bytes: 8 };

    #[test]
    fn the_expected_header_passes() {
        assert!(HEADER.check(Rank(0), Rank(1), &HEADER).is_ok());
    }

    #[test]
    fn another_call_under_the_same_number_is_a_mismatch_with_the_same_text_on_both_sides() {
        let dtype = crate::dtype::DataType::Int8;
        let other = Header { call: Call::AllGather { counts: Counts::Each(2), dtype }, ..HEADER };
        let here = HEADER.check(Rank(0), Rank(1), &other).unwrap_err();
        let there = other.check(Rank(1), Rank(0), &HEADER).unwrap_err();
        assert_eq!(here.code(), Code::InvalidUsage);
        assert_eq!(here.to_string(), there.to_string());
        assert_eq!(
            here.to_string(),
            "ranks disagree on call #3: rank 0 called Barrier(), rank 1 called AllGather(2 x int8)"
        );
    }

    #[test]
    fn another_call_before_this_one_is_a_mismatch_too() {
        let dtype = crate::dtype::DataType::Int8;
        let previous = Some(Call::AllGather { counts: Counts::Each(2), dtype });
        let error = HEADER.check(Rank(1), Rank(0), &Header { previous, ..HEADER }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ranks disagree on call #2: rank 0 called AllGather(2 x int8), rank 1 called Barrier()"
        );
    }

    #[test]
    fn another_length_where_each_pair_has_its_own_is_a_mismatch() {
        let call = Call::AllToAll { counts: Counts::Pairwise, dtype: crate::dtype::DataType::Int8 };
        let expected = Header { call, ..HEADER };
        let error = expected.check(Rank(0), Rank(1), &Header { bytes: 7, ..expected }).unwrap_err();
        assert_eq!(error.code(), Code::InvalidUsage);
        assert_eq!(
            error.to_string(),
            "ranks disagree on call #3, AllToAllV(int8): rank 1 sends 7 bytes to rank 0, which expects 8"
        );
    }

    #[test]
    fn another_number_step_or_length_is_a_protocol_violation() {
        for wrong in [
            Header { seq: 4, ..HEADER },
            Header { step: 2, ..HEADER },
            Header { bytes: 7, ..HEADER },
        ] {
            let error = HEADER.check(Rank(0), Rank(1), &wrong).unwrap_err();
            assert_eq!(error.code(), Code::RemoteError, "{error}");
        }
    }
}
