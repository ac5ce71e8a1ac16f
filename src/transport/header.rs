//! What precedes every message: enough to know that it is the one the receiver waits for.

use crate::error::{Error, Result};
use crate::op::Call;
use crate::rank::Rank;

/// The call as a whole travels with each message, not a hash of it: equality is exact, and the
/// receiver of a wrong one can at once name both calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub seq: u64,
    pub call: Call,
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
        if self.seq == arrived.seq && self.call != arrived.call {
            let mut sides = [(me, self.call), (peer, arrived.call)];
            sides.sort_by_key(|(rank, _)| *rank);
            return Err(Error::Mismatch { seq: self.seq, one: sides[0], other: sides[1] });
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

    const HEADER: Header = Header { seq: 3, call: Call::Barrier, step: 1, bytes: 8 };

    #[test]
    fn the_expected_header_passes() {
        assert!(HEADER.check(Rank(0), Rank(1), &HEADER).is_ok());
    }

    #[test]
    fn another_call_under_the_same_number_is_a_mismatch_with_the_same_text_on_both_sides() {
        let dtype = crate::dtype::DataType::Int8;
        let other = Header { call: Call::AllGather { count: 2, dtype }, ..HEADER };
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
