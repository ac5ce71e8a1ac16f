//! Bytes on the wire: fixed layouts, little endian, checked field by field.
//!
//! ```text
//! header, 56 bytes   0        8          16        20              24    40
//!                    seq u64  bytes u64  step u32  past calls u32  call  previous call, or zero
//! call, 16 bytes     0          8                   12       13        14           15
//!                    count u64  root or digest u32  kind u8  dtype u8  operator u8  counts u8
//! ```
//!
//! They are built as words: what is written in smaller pieces than it is read makes a processor wait.
//!
//! A decoder returns `None` for anything that no encoder writes: reserved bytes that are not
//! zero, unknown codes, bytes left over.

use crate::dtype::DataType;
use crate::op::{Call, Counts, Fold, Operator, RedOp, Reduction};
use crate::rank::Rank;

use super::{Header, Past};

pub const HEADER_BYTES: usize = 56;
pub const CALL_BYTES: usize = 16;

/// A header, and a call, as words whose bytes, little endian, are what travels.
pub type HeaderWords = [u64; HEADER_BYTES / 8];
pub type CallWords = [u64; CALL_BYTES / 8];

/// Takes fields off the front of received bytes.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn zeros(&mut self, count: usize) -> Option<()> {
        self.bytes(count)?.iter().all(|byte| *byte == 0).then_some(())
    }

    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl Header {
    #[inline(always)]
    pub fn words(&self) -> HeaderWords {
        let steps = u64::from(self.step) | u64::from(self.past.digest) << 32;
        let ([count, kind], [previous_count, previous_kind]) =
            (call_words(&self.call), self.past.previous);
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
        let past = Past { previous, digest: (steps >> 32) as u32 };
        if previous != NO_CALL {
            past.previous()?;
        }
        Some(Self { seq, call, past, step: steps as u32, bytes })
    }
}

/// Stands for no call at all.
pub const NO_CALL: CallWords = [0; 2];

fn bytes_of_words<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    let bytes = words.map(u64::to_le_bytes);
    bytes.as_flattened().try_into().expect("as long")
}

/// Codes of the operators that have none in the header.
const PRE_MUL_SUM: u8 = 64;
const USER: u8 = 65;
const USER_IN_RANK_ORDER: u8 = 66;

/// Codes of the forms of counts.
const EACH: u8 = 0;
const LISTED: u8 = 1;
const PAIRWISE: u8 = 2;

pub fn encode_call(call: &Call) -> [u8; CALL_BYTES] {
    bytes_of_words(call_words(call))
}

pub fn decode_call(bytes: &[u8; CALL_BYTES]) -> Option<Call> {
    let mut reader = Reader(bytes);
    call_of_words([reader.u64()?, reader.u64()?])
}

/// Fields a call lacks are zero; the kind never is.
#[inline(always)]
pub fn call_words(call: &Call) -> CallWords {
    let kind = match call {
        Call::AllReduce { .. } => 1,
        Call::Reduce { .. } => 2,
        Call::Broadcast { .. } => 3,
        Call::AllGather { .. } => 4,
        Call::ReduceScatter { .. } => 5,
        Call::Barrier => 6,
        Call::AllToAll { .. } => 7,
        Call::Gather { .. } => 8,
        Call::Scatter { .. } => 9,
        Call::Scan { .. } => 10,
        Call::ExScan { .. } => 11,
        Call::AllReduceBucketed { .. } => 12,
        Call::Split => 13,
    };
    // A call with a list of counts has no root.
    let root = call.root().map_or(0, |root| root.0 as u32);
    let (count, root_or_digest, form) = match call.counts() {
        Counts::Each(count) => (count, root, EACH),
        Counts::Listed { total, digest } => (total, digest, LISTED),
        Counts::Pairwise => (0, root, PAIRWISE),
    };
    let dtype = call.dtype().map_or(0, |dtype| dtype as u8);
    let operator = match call.reduction().map(|reduction| reduction.operator) {
        None => 0,
        Some(Operator::Known(redop)) => redop as u8,
        Some(Operator::PreMulSum) => PRE_MUL_SUM,
        Some(Operator::User { commutative: true }) => USER,
        Some(Operator::User { commutative: false }) => USER_IN_RANK_ORDER,
    };
    let codes = u32::from_le_bytes([kind, dtype, operator, form]);
    [count as u64, u64::from(root_or_digest) | u64::from(codes) << 32]
}

pub fn call_of_words(words: CallWords) -> Option<Call> {
    let count = usize::try_from(words[0]).ok()?;
    let root_or_digest = words[1] as u32;
    let [kind, dtype, operator, form] = ((words[1] >> 32) as u32).to_le_bytes();
    let dtype = DataType::from_code(dtype.into())?;
    let root = Rank(root_or_digest as usize);
    let counts = match form {
        EACH => Counts::Each(count),
        LISTED => Counts::Listed { total: count, digest: root_or_digest },
        PAIRWISE => Counts::Pairwise,
        _ => return None,
    };
    let reduction = || {
        let operator = match operator {
            PRE_MUL_SUM => Operator::PreMulSum,
            USER => Operator::User { commutative: true },
            USER_IN_RANK_ORDER => Operator::User { commutative: false },
            known => {
                let redop = RedOp::from_code(known.into())?;
                return Fold::new(dtype, redop).ok().map(Reduction::from);
            }
        };
        Some(Reduction { dtype, operator })
    };
    let call = match kind {
        1 => Call::AllReduce { count, reduction: reduction()? },
        2 => Call::Reduce { count, reduction: reduction()?, root },
        3 => Call::Broadcast { count, dtype, root },
        4 => Call::AllGather { counts, dtype },
        5 => Call::ReduceScatter { counts, reduction: reduction()? },
        6 => Call::Barrier,
        7 => Call::AllToAll { counts, dtype },
        8 => Call::Gather { counts, dtype, root },
        9 => Call::Scatter { counts, dtype, root },
        10 => Call::Scan { count, reduction: reduction()? },
        11 => Call::ExScan { count, reduction: reduction()? },
        12 => Call::AllReduceBucketed { counts, reduction: reduction()? },
        13 => Call::Split,
        _ => return None,
    };
    // Fields the call lacks must be zero: one call has one encoding.
    (call_words(&call) == words).then_some(call)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reductions() -> impl Strategy<Value = Reduction> {
        let known = (0..DataType::ALL.len(), 0..RedOp::ALL.len())
            .prop_filter_map("refused", |(d, r)| Fold::new(DataType::ALL[d], RedOp::ALL[r]).ok());
        let created = prop_oneof![
            Just(Operator::PreMulSum),
            any::<bool>().prop_map(|commutative| Operator::User { commutative }),
        ];
        let created = (0..DataType::ALL.len(), created)
            .prop_map(|(dtype, operator)| Reduction { dtype: DataType::ALL[dtype], operator });
        prop_oneof![known.prop_map(Reduction::from), created]
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
                    0 => Call::AllReduce { count, reduction },
                    1 => Call::Reduce { count, reduction, root },
                    2 => Call::Broadcast { count, dtype, root },
                    3 => Call::AllGather { counts, dtype },
                    4 => Call::ReduceScatter { counts, reduction },
                    5 => Call::AllToAll { counts: pairs, dtype },
                    6 => Call::Gather { counts: pairs, dtype, root },
                    7 => Call::Scatter { counts: pairs, dtype, root },
                    8 => Call::Scan { count, reduction },
                    9 => Call::ExScan { count, reduction },
                    10 => Call::AllReduceBucketed { counts: list, reduction },
                    11 => Call::Split,
                    _ => Call::Barrier,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_comes_back_as_it_went(
            call in calls(),
            previous in prop::option::of(calls()),
            seq: u64,
            digest: u32,
            step: u32,
            bytes: usize,
        ) {
            let previous = previous.as_ref().map_or(NO_CALL, call_words);
            let header = Header { seq, call, past: Past { previous, digest }, step, bytes };
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
