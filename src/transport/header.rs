//! The header that precedes every message of a collective: the receiver compares it with the one
//! that it expects.
//!
//! ```text
//! header, 56 bytes   0        8          16        20              24    40
//!                    seq u64  bytes u64  step u32  past calls u32  call  previous call, or zero
//! ```
//!
//! Leaves to `wire` how a call is encoded. Invariant: two headers are equal exactly if their words
//! are equal, so a receiver may compare them without decoding.

use crate::error::{Error, Result};
use crate::op::{Call, Counts};
use crate::rank::Rank;

use super::wire::{CallWords, NO_CALL, Reader, bytes_of_words, call_of_words, call_words};

pub const HEADER_BYTES: usize = 56;

/// A header as words, which are sent in little-endian order.
pub type HeaderWords = [u64; HEADER_BYTES / 8];

/// Each message carries the whole call, not a hash of it. So a mismatch is exact, except in lists
/// of counts, and the receiver of a wrong call can name both calls at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub seq: u64,
    pub call: Call,
    pub history: CallHistory,
    /// The step of the algorithm. The segments of a step, which arrive in order, share it.
    pub step: u32,
    pub bytes: usize,
}

/// The calls before one. A mismatch in a call in which no rank received a message shows in the next
/// message. The previous call is sent whole, so that an error can name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallHistory {
    /// Call number `seq - 1`, or `NO_CALL`.
    pub previous: CallWords,
    /// Digest of all earlier calls.
    pub digest: u32,
}

impl CallHistory {
    pub fn then(self, call: &Call) -> Self {
        self.then_words(call_words(call))
    }

    /// The history after a call. A difference in the digest never vanishes, because each step is
    /// one-to-one in the digest before it.
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

/// An encoded header with its 64-bit check, by which a reader compares it with others.
#[derive(Clone, Copy, Debug)]
pub struct EncodedHeader {
    pub words: HeaderWords,
    pub check: u64,
    /// How many bytes of the message are published together.
    part: usize,
}

impl EncodedHeader {
    #[inline(always)]
    pub fn new(header: Header) -> Self {
        let words = header.words();
        Self { words, check: check(&words), part: header.bytes }
    }

    /// The same message, of which `part` bytes are published together.
    #[inline]
    pub fn of_part(self, part: usize) -> Self {
        Self { part, ..self }
    }

    /// The same header, of a message of another length.
    #[inline]
    pub fn with_bytes(&self, bytes: usize) -> Self {
        let mut words = self.words;
        words[1] = bytes as u64;
        Self { words, check: check(&words), part: bytes }
    }

    /// The header that was encoded.
    pub fn header(&self) -> Header {
        Header::of_words(self.words).expect("the words of a header")
    }

    /// The length of what is published together: the whole message, or a part of it.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.part
    }

    /// The words of the call.
    #[inline]
    pub fn call_words(&self) -> CallWords {
        [self.words[3], self.words[4]]
    }
}

/// A digest that two different headers share with a probability of 2^-64: the words of each pair
/// are multiplied, and the products summed.
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
    // The last of seven words has no partner.
    let last = mixed(key(words[6], 6) * key(0, 7));
    pair(0).wrapping_add(pair(2)).wrapping_add(pair(4)).wrapping_add(last)
}

impl Header {
    #[inline(always)]
    pub fn words(&self) -> HeaderWords {
        let steps = u64::from(self.step) | u64::from(self.history.digest) << 32;
        let ([count, kind], [previous_count, previous_kind]) =
            (call_words(&self.call), self.history.previous);
        [self.seq, self.bytes as u64, steps, count, kind, previous_count, previous_kind]
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        bytes_of_words(self.words())
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut words = [0; HEADER_BYTES / 8];
        let mut reader = Reader(bytes);
        for word in &mut words {
            *word = reader.u64()?;
        }
        Self::of_words(words)
    }

    pub fn of_words(words: HeaderWords) -> Option<Self> {
        let [seq, bytes, steps, count, kind, previous_count, previous_kind] = words;
        let (bytes, call) = (usize::try_from(bytes).ok()?, call_of_words([count, kind])?);
        let previous = [previous_count, previous_kind];
        let history = CallHistory { previous, digest: (steps >> 32) as u32 };
        if previous != NO_CALL {
            history.previous()?;
        }
        Some(Self { seq, call, history, step: steps as u32, bytes })
    }

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
            if let (Some(mine), Some(theirs)) =
                (self.history.previous(), arrived.history.previous())
                && mine != theirs
            {
                return mismatch(self.seq - 1, mine, theirs);
            }
            if self.history != arrived.history && self.seq > 0 {
                let (one, other) = (me.min(peer), me.max(peer));
                return Err(Error::CallHistory { seq: self.seq, one, other });
            }
            if self.call != arrived.call {
                return mismatch(self.seq, self.call, arrived.call);
            }
            // Only these two ranks know how much one sends to the other.
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
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::{DataType, ElementSize, ElementType};
    use crate::error::Code;
    use crate::op::{Fold, Operator, RedOp, Reduction};

    const BARRIER: CallWords = [0, 6 << 32];
    const HISTORY: CallHistory = CallHistory { previous: BARRIER, digest: 7 };
    const HEADER: Header =
        Header { seq: 3, call: Call::barrier(), history: HISTORY, step: 1, bytes: 8 };

    #[test]
    fn the_expected_header_passes() {
        assert!(HEADER.check(Rank(0), Rank(1), &HEADER).is_ok());
    }

    #[test]
    fn another_call_under_the_same_number_is_a_mismatch_with_the_same_text_on_both_sides() {
        let dtype = DataType::Int8;
        let other = Header { call: Call::all_gather(Counts::Each(2), dtype.into()), ..HEADER };
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
    fn elements_of_another_size_are_a_mismatch_that_names_both() {
        let gather = |bytes| {
            let dtype = ElementType::Opaque(ElementSize::new(bytes).unwrap());
            Header { call: Call::all_gather(Counts::Each(2), dtype), ..HEADER }
        };
        let error = gather(12).check(Rank(0), Rank(1), &gather(24)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidUsage);
        assert_eq!(
            error.to_string(),
            "ranks disagree on call #3: rank 0 called AllGather(2 x 12-byte elements), \
             rank 1 called AllGather(2 x 24-byte elements)"
        );
        assert!(gather(12).check(Rank(0), Rank(1), &gather(12)).is_ok());
    }

    #[test]
    fn another_call_before_this_one_is_a_mismatch_too() {
        let dtype = DataType::Int8;
        let previous = call_words(&Call::all_gather(Counts::Each(2), dtype.into()));
        let history = CallHistory { previous, digest: 8 };
        let error = HEADER.check(Rank(1), Rank(0), &Header { history, ..HEADER }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ranks disagree on call #2: rank 0 called AllGather(2 x int8), rank 1 called Barrier()"
        );
    }

    #[test]
    fn another_call_long_before_is_a_mismatch_too() {
        let history = CallHistory { digest: 8, ..HISTORY };
        let error = HEADER.check(Rank(1), Rank(0), &Header { history, ..HEADER }).unwrap_err();
        assert_eq!(error.code(), Code::InvalidUsage);
        assert_eq!(error.to_string(), "rank 0 and rank 1 disagree on a call before #2");
    }

    #[test]
    fn the_digest_distinguishes_calls_and_their_order() {
        let dtype = DataType::Int8;
        let gather = |count| Call::all_gather(Counts::Each(count), dtype.into());
        let calls = (0..1000).map(gather).chain([Call::barrier(), Call::split()]);
        let digest =
            |calls: &[Call]| calls.iter().fold(CallHistory::default(), CallHistory::then).digest;
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
        let call = Call::all_to_all(Counts::Pairwise, DataType::Int8.into());
        let expected = Header { call, ..HEADER };
        let error = expected.check(Rank(0), Rank(1), &Header { bytes: 7, ..expected }).unwrap_err();
        assert_eq!(error.code(), Code::InvalidUsage);
        assert_eq!(
            error.to_string(),
            "ranks disagree on call #3, AllToAllV(int8): rank 1 sends 7 bytes to rank 0, \
             which expects 8"
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

    fn reductions() -> impl Strategy<Value = Reduction> {
        let known = (0..DataType::ALL.len(), 0..RedOp::ALL.len())
            .prop_filter_map("refused", |(d, r)| Fold::new(DataType::ALL[d], RedOp::ALL[r]).ok());
        let created = prop_oneof![
            Just(Operator::PreMulSum),
            any::<bool>().prop_map(|commutative| Operator::User { commutative }),
        ];
        let created = (0..DataType::ALL.len(), created).prop_map(|(dtype, operator)| Reduction {
            dtype: DataType::ALL[dtype].into(),
            operator,
        });
        let opaque = (1..=ElementSize::MOST, any::<bool>()).prop_map(|(bytes, commutative)| {
            let dtype = ElementType::Opaque(ElementSize::new(bytes).unwrap());
            Reduction { dtype, operator: Operator::User { commutative } }
        });
        prop_oneof![known.prop_map(Reduction::from), created, opaque]
    }

    fn calls() -> impl Strategy<Value = Call> {
        let list = (any::<usize>(), any::<u32>())
            .prop_map(|(total, digest)| Counts::Listed { total, digest });
        let each = || any::<usize>().prop_map(Counts::Each);
        let lists = prop_oneof![each(), list.clone()];
        let pairs = prop_oneof![each(), Just(Counts::Pairwise)];
        (0..13, any::<usize>(), lists, pairs, list, reductions(), any::<u32>()).prop_map(
            |(kind, count, counts, pairs, list, reduction, root)| {
                let (dtype, root) = (reduction.dtype, Rank(root as usize));
                match kind {
                    0 => Call::all_reduce(count, reduction),
                    1 => Call::reduce(count, reduction, root),
                    2 => Call::broadcast(count, dtype, root),
                    3 => Call::all_gather(counts, dtype),
                    4 => Call::reduce_scatter(counts, reduction),
                    5 => Call::all_to_all(pairs, dtype),
                    6 => Call::gather(pairs, dtype, root),
                    7 => Call::scatter(pairs, dtype, root),
                    8 => Call::scan(count, reduction),
                    9 => Call::ex_scan(count, reduction),
                    10 => Call::all_reduce_bucketed(list, reduction),
                    11 => Call::split(),
                    _ => Call::barrier(),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_decodes_to_itself(
            call in calls(),
            previous in prop::option::of(calls()),
            seq: u64,
            digest: u32,
            step: u32,
            bytes: usize,
        ) {
            let previous = previous.as_ref().map_or(NO_CALL, call_words);
            let history = CallHistory { previous, digest };
            let header = Header { seq, call, history, step, bytes };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        }

        #[test]
        fn what_can_be_decoded_encodes_to_the_same_bytes(bytes: [u8; HEADER_BYTES]) {
            if let Some(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
