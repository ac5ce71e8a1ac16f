//! What precedes every message: enough to know that it is the one the receiver waits for.

use crate::error::{Error, Result};
use crate::op::{Call, Counts};
use crate::rank::Rank;

use super::wire::{CallWords, HeaderWords, call_of_words, call_words};

/// The call as a whole travels with each message, not a hash of it: equality is exact but for lists of
/// counts, and the receiver of a wrong one can at once name both calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub seq: u64,
    pub call: Call,
    pub past: Past,
    /// Of the algorithm. The segments of a step, which come in order, share it.
    pub step: u32,
    pub bytes: usize,
}

/// The calls before one: a difference that showed in no message, because nobody was to receive one,
/// shows in the next. The last of them travels whole, so that it can be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Call number `seq - 1`, or `NO_CALL`.
    pub previous: CallWords,
    /// Of all of them.
    pub digest: u32,
}

impl Past {
    pub fn then(self, call: &Call) -> Self {
        self.then_words(call_words(call))
    }

    /// A difference in the digest never vanishes: each step is one to one in what was before.
    #[inline]
    pub fn then_words(self, call: CallWords) -> Self {
        let words = u128::from(call[0]) | u128::from(call[1]) << 64;
        let mixed = words.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let call_digest = (mixed >> 64) as u64;
        let call_digest = (call_digest >> 32) as u32 ^ call_digest as u32;
        let digest = (self.digest ^ call_digest).wrapping_mul(0x9e37_79b1).rotate_left(15);
        Self { previous: call, digest }
    }

    /// Call number `seq - 1`, if there was one.
    pub fn previous(&self) -> Option<Call> {
        call_of_words(self.previous)
    }
}

/// A header ready to be laid out, with a number that tells it from others without reading it.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub words: HeaderWords,
    pub check: u64,
}

impl Label {
    #[inline(always)]
    pub fn new(header: Header) -> Self {
        let words = header.words();
        Self { words, check: check(&words) }
    }

    /// The header that it was made of.
    pub fn header(&self) -> Header {
        Header::of_words(self.words).expect("the words of a header")
    }

    /// The length of the message.
    #[inline]
    pub fn bytes(&self) -> usize {
        let [_seq, bytes, ..] = self.words;
        bytes as usize
    }

    /// The call's.
    #[inline]
    pub fn call_words(&self) -> CallWords {
        [self.words[3], self.words[4]]
    }
}

/// A number that two headers share only if they are the same or by a chance of one in 2^64: the words of
/// each pair are multiplied, the products summed.
#[inline(always)]
fn check(words: &HeaderWords) -> u64 {
    const KEYS: [u64; 8] = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd6e8_feb8_6659_fd93,
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0x8ebc_6af0_9c88_c6e3,
        0x5899_65cc_7537_4cc3,
    ];
    let key = |word: u64, index: usize| u128::from(word.wrapping_add(KEYS[index]));
    let mixed = |product: u128| (product >> 64) as u64 ^ product as u64;
    let pair = |index: usize| mixed(key(words[index], index) * key(words[index + 1], index + 1));
    // Of seven words the last has no other.
    let last = mixed(key(words[6], 6) * key(0, 7));
    pair(0).wrapping_add(pair(2)).wrapping_add(pair(4)).wrapping_add(last)
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
            if let (Some(mine), Some(theirs)) = (self.past.previous(), arrived.past.previous())
                && mine != theirs
            {
                return mismatch(self.seq - 1, mine, theirs);
            }
            if self.past != arrived.past && self.seq > 0 {
                let (one, other) = (me.min(peer), me.max(peer));
                return Err(Error::Past { seq: self.seq, one, other });
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

    const BARRIER: CallWords = [0, 6 << 32];
    const PAST: Past = Past { previous: BARRIER, digest: 7 };
    const HEADER: Header = Header { seq: 3, call: Call::barrier(), past: PAST, step: 1, bytes: 8 };

    #[test]
    fn the_expected_header_passes() {
        assert!(HEADER.check(Rank(0), Rank(1), &HEADER).is_ok());
    }

    #[test]
    fn another_call_under_the_same_number_is_a_mismatch_with_the_same_text_on_both_sides() {
        let dtype = crate::dtype::DataType::Int8;
        let other = Header { call: Call::all_gather(Counts::Each(2), dtype), ..HEADER };
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
        let previous = call_words(&Call::all_gather(Counts::Each(2), dtype));
        let past = Past { previous, digest: 8 };
        let error = HEADER.check(Rank(1), Rank(0), &Header { past, ..HEADER }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ranks disagree on call #2: rank 0 called AllGather(2 x int8), rank 1 called Barrier()"
        );
    }

    #[test]
    fn another_call_long_before_is_a_mismatch_too() {
        let past = Past { digest: 8, ..PAST };
        let error = HEADER.check(Rank(1), Rank(0), &Header { past, ..HEADER }).unwrap_err();
        assert_eq!(error.code(), Code::InvalidUsage);
        assert_eq!(error.to_string(), "rank 0 and rank 1 disagree on a call before #2");
    }

    #[test]
    fn the_digest_tells_calls_and_their_order_apart() {
        let dtype = crate::dtype::DataType::Int8;
        let gather = |count| Call::all_gather(Counts::Each(count), dtype);
        let calls = (0..1000).map(gather).chain([Call::barrier(), Call::split()]);
        let digest = |calls: &[Call]| calls.iter().fold(Past::default(), Past::then).digest;
        let mut digests: Vec<_> = calls.map(|call| digest(&[call])).collect();
        digests.push(digest(&[]));
        digests.push(digest(&[gather(1), gather(2)]));
        digests.push(digest(&[gather(2), gather(1)]));
        digests.push(digest(&[gather(1), gather(2), gather(2)]));
        let all = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), all);
    }

    #[test]
    fn another_length_where_each_pair_has_its_own_is_a_mismatch() {
        let call = Call::all_to_all(Counts::Pairwise, crate::dtype::DataType::Int8);
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
