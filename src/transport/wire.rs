//! Bytes on the wire: fixed layouts, little endian, checked field by field.
//!
//! ```text
//! call, 16 bytes     0          8                   12       13        14           15
//!                    count u64  root or digest u32  kind u8  dtype u8  operator u8  counts u8
//! ```
//!
//! A call is built as words, because a load that spans several smaller stores stalls the processor.
//! Leaves to `header` what precedes a message. Invariant: a decoder returns `None` for anything
//! that no encoder writes: reserved bytes that are not zero, unknown codes, bytes left over.

use crate::dtype::DataType;
use crate::op::{Call, Counts, Fold, Operator, RedOp, Reduction};
use crate::rank::Rank;

pub const CALL_BYTES: usize = 16;

/// A call as words. Their bytes, little endian, are what is sent.
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

/// Encodes that there is no call.
pub const NO_CALL: CallWords = [0; 2];

/// The little-endian bytes of words.
pub fn bytes_of_words<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    let bytes = words.map(u64::to_le_bytes);
    bytes.as_flattened().try_into().expect("BYTES is 8 * WORDS")
}

/// Codes of the operators that have no code in the C header.
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
