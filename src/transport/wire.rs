//! Bytes on the wire: fixed layouts, little endian, checked field by field.
//!
//! ```text
//! call, 16 bytes     0          8                   12       13        14           15
//!                    count u64  root or digest u32  kind u8  dtype u8  operator u8  counts u8
//!
//! codes of a call    bits 0-5  6-7     8-29      30       31
//! on opaque elements kind      counts  size - 1  ordered  1
//! ```
//!
//! The four codes take 32 bits, of which a built-in type leaves the last at 0. Opaque elements are
//! reduced by functions of the program alone: in rank order if *ordered* is 1.
//!
//! A call is built as words, because a load that spans several smaller stores stalls the processor.
//! Leaves to `header` the header of a message. Invariant: a decoder returns `None` for anything
//! that no encoder writes: reserved bytes that are not zero, unknown codes, trailing bytes.

use crate::dtype::{DataType, ElementSize, ElementType};
use crate::op::{Call, Collective, Counts, Fold, Operator, RedOp};
use crate::rank::Rank;

pub const CALL_BYTES: usize = 16;

/// A call as words, which are sent in little-endian order.
pub type CallWords = [u64; CALL_BYTES / 8];

/// Reads fields from the front of received bytes.
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

/// The encoding of "no call".
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

/// Set in the codes of a call on opaque elements.
const OPAQUE: u32 = 1 << 31;
/// Set in the codes of such a call if operands are reduced in rank order.
const IN_RANK_ORDER: u32 = 1 << 30;
/// Where the size is in the codes, and the form of the counts.
const SIZE_AT: u32 = 8;
const FORM_AT: u32 = 6;

/// The size of an opaque element, less one, as it is sent.
pub fn size_code(size: ElementSize) -> u32 {
    size.get() as u32 - 1
}

/// The size whose code is in the lowest bits.
pub fn size_of_code(code: u32) -> Option<ElementSize> {
    ElementSize::new((code % (1 << ElementSize::BITS)) as usize + 1)
}

pub fn encode_call(call: &Call) -> [u8; CALL_BYTES] {
    bytes_of_words(call_words(call))
}

pub fn decode_call(bytes: &[u8; CALL_BYTES]) -> Option<Call> {
    let mut reader = Reader(bytes);
    call_of_words([reader.u64()?, reader.u64()?])
}

/// Encodes a call. Fields that it lacks are zero; the kind never is.
#[inline(always)]
pub fn call_words(call: &Call) -> CallWords {
    // A call with a list of counts has no root.
    let root = call.root().map_or(0, |root| root.0 as u32);
    let (count, root_or_digest, form) = match call.counts() {
        Counts::Each(count) => (count, root, EACH),
        Counts::Listed { total, digest } => (total, digest, LISTED),
        Counts::Pairwise => (0, root, PAIRWISE),
    };
    let (kind, reduction) = (call.collective() as u8, call.reduction());
    let codes = match call.dtype() {
        Some(ElementType::Opaque(size)) => {
            let in_order = reduction.is_some_and(|reduction| !reduction.is_commutative());
            let order = if in_order { IN_RANK_ORDER } else { 0 };
            let kind_and_form = u32::from(kind) | u32::from(form) << FORM_AT;
            OPAQUE | order | size_code(size) << SIZE_AT | kind_and_form
        }
        Some(ElementType::Known(dtype)) => {
            let operator = match reduction.map(|reduction| reduction.operator) {
                None => 0,
                Some(Operator::Known(redop)) => redop as u8,
                Some(Operator::PreMulSum) => PRE_MUL_SUM,
                Some(Operator::User { commutative: true }) => USER,
                Some(Operator::User { commutative: false }) => USER_IN_RANK_ORDER,
            };
            u32::from_le_bytes([kind, dtype as u8, operator, form])
        }
        None => u32::from_le_bytes([kind, 0, 0, form]),
    };
    [count as u64, u64::from(root_or_digest) | u64::from(codes) << 32]
}

pub fn call_of_words(words: CallWords) -> Option<Call> {
    let count = usize::try_from(words[0]).ok()?;
    let root_or_digest = words[1] as u32;
    let codes = (words[1] >> 32) as u32;
    let [mut kind, dtype, operator, mut form] = codes.to_le_bytes();
    let is_opaque = codes & OPAQUE != 0;
    if is_opaque {
        (kind, form) = (kind % (1 << FORM_AT), kind >> FORM_AT);
    }
    let root = Rank(root_or_digest as usize);
    let counts = match form {
        EACH => Counts::Each(count),
        LISTED => Counts::Listed { total: count, digest: root_or_digest },
        PAIRWISE => Counts::Pairwise,
        _ => return None,
    };
    let collective = Collective::from_code(kind)?;
    let (dtype, operator) = if is_opaque {
        let commutative = codes & IN_RANK_ORDER == 0;
        let size = size_of_code(codes >> SIZE_AT)?;
        (ElementType::Opaque(size), Some(Operator::User { commutative }))
    } else {
        let dtype = DataType::from_code(dtype.into())?;
        (dtype.into(), known_operator(collective, dtype, operator)?)
    };
    let call = Call::received(collective, counts, dtype, operator, root)?;
    // Fields that the call lacks must be zero: one call has one encoding.
    (call_words(&call) == words).then_some(call)
}

/// The operator with this code of a call on elements of a built-in type, if it reduces. The outer
/// `None`: no operator on this type has the code.
fn known_operator(collective: Collective, dtype: DataType, code: u8) -> Option<Option<Operator>> {
    Some(match code {
        _ if !collective.reduces() => None,
        PRE_MUL_SUM => Some(Operator::PreMulSum),
        USER => Some(Operator::User { commutative: true }),
        USER_IN_RANK_ORDER => Some(Operator::User { commutative: false }),
        known => {
            let redop = RedOp::from_code(known.into())?;
            Fold::new(dtype, redop).ok()?;
            Some(Operator::Known(redop))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Reduction;

    #[test]
    fn a_call_on_opaque_elements_has_one_encoding() {
        let size = ElementSize::new(12).unwrap();
        let words = call_words(&Call::broadcast(1, ElementType::Opaque(size), Rank(0)));
        let with = |codes: u32| call_of_words([words[0], words[1] | u64::from(codes) << 32]);
        assert!(with(0).is_some());
        assert_eq!(with(IN_RANK_ORDER), None, "an order where nothing is reduced");
        assert_eq!(with(3 << FORM_AT), None, "an unknown form of counts");
        assert_eq!(with(Collective::Split as u32 | 0x30), None, "an unknown collective");
        let barrier = [0, u64::from(OPAQUE | Collective::Barrier as u32) << 32];
        assert_eq!(call_of_words(barrier), None, "a size where there are no elements");
    }

    #[test]
    fn every_collective_fits_the_bits_that_a_call_on_opaque_elements_has_for_it() {
        assert!(Collective::ALL.iter().all(|collective| (*collective as u8) < 1 << FORM_AT));
    }

    /// Peers of other builds and recorded traffic depend on these bytes.
    #[test]
    fn every_collective_has_its_encoding() {
        let reduction = |dtype, operator| Reduction { dtype, operator };
        let sum = reduction(DataType::Int32.into(), Operator::Known(RedOp::Sum));
        let xor = reduction(DataType::Uint8.into(), Operator::Known(RedOp::LogicalXor));
        let scaled = reduction(DataType::Float64.into(), Operator::PreMulSum);
        let user = |commutative| reduction(DataType::Int64.into(), Operator::User { commutative });
        let list = Counts::Listed { total: 9, digest: 0xa1b2_c3d4 };
        let (each, pairs) = (Counts::Each(0x0102), Counts::Pairwise);
        let (dtype, root) = (DataType::Float16, Rank(0x0304));
        // The call; count, root or digest, and the codes: kind, type, operator, form of counts.
        let calls = [
            (Call::all_reduce(0x0102, sum), 0x0102, 0, [1, 2, 0, 0]),
            (Call::reduce(0x0102, xor, root), 0x0102, 0x0304, [2, 1, 37, 0]),
            (Call::broadcast(0x0102, dtype.into(), root), 0x0102, 0x0304, [3, 6, 0, 0]),
            (Call::all_gather(each, dtype.into()), 0x0102, 0, [4, 6, 0, 0]),
            (Call::all_gather(list, dtype.into()), 9, 0xa1b2_c3d4, [4, 6, 0, 1]),
            (Call::reduce_scatter(each, scaled), 0x0102, 0, [5, 8, 64, 0]),
            (Call::reduce_scatter(list, scaled), 9, 0xa1b2_c3d4, [5, 8, 64, 1]),
            (Call::barrier(), 0, 0, [6, 0, 0, 0]),
            (Call::all_to_all(each, dtype.into()), 0x0102, 0, [7, 6, 0, 0]),
            (Call::all_to_all(pairs, dtype.into()), 0, 0, [7, 6, 0, 2]),
            (Call::gather(each, dtype.into(), root), 0x0102, 0x0304, [8, 6, 0, 0]),
            (Call::gather(pairs, dtype.into(), root), 0, 0x0304, [8, 6, 0, 2]),
            (Call::scatter(each, dtype.into(), root), 0x0102, 0x0304, [9, 6, 0, 0]),
            (Call::scatter(pairs, dtype.into(), root), 0, 0x0304, [9, 6, 0, 2]),
            (Call::scan(0x0102, user(true)), 0x0102, 0, [10, 4, 65, 0]),
            (Call::ex_scan(0x0102, user(false)), 0x0102, 0, [11, 4, 66, 0]),
            (Call::all_reduce_bucketed(list, sum), 9, 0xa1b2_c3d4, [12, 2, 0, 1]),
            (Call::split(), 0, 0, [13, 0, 0, 0]),
        ];
        let opaque = |bytes| ElementType::Opaque(ElementSize::new(bytes).unwrap());
        let ordered = |commutative| reduction(opaque(12), Operator::User { commutative });
        // On opaque elements: kind and form of counts, size less one, and two flags.
        let on_opaque = [
            (Call::all_reduce(0x0102, ordered(true)), 0x0102, 0, [1, 11, 0, 0x80]),
            (Call::ex_scan(0x0102, ordered(false)), 0x0102, 0, [11, 11, 0, 0xc0]),
            (Call::all_reduce_bucketed(list, ordered(true)), 9, 0xa1b2_c3d4, [0x4c, 11, 0, 0x80]),
            (Call::gather(pairs, opaque(12), root), 0, 0x0304, [0x88, 11, 0, 0x80]),
            (Call::broadcast(1, opaque(1), root), 1, 0x0304, [3, 0, 0, 0x80]),
            (Call::broadcast(1, opaque(ElementSize::MOST), root), 1, 0x0304, [3, 255, 255, 0xbf]),
        ];
        for (call, count, root_or_digest, codes) in calls.into_iter().chain(on_opaque) {
            let mut bytes = [0; CALL_BYTES];
            bytes[..8].copy_from_slice(&u64::to_le_bytes(count));
            bytes[8..12].copy_from_slice(&u32::to_le_bytes(root_or_digest));
            bytes[12..].copy_from_slice(&codes);
            assert_eq!(encode_call(&call), bytes, "{call}");
            assert_eq!(decode_call(&bytes), Some(call));
        }
    }
}
