//! Bytes on the wire: fixed layouts, little endian, checked field by field.
//!
//! ```text
//! header, 56 bytes   0        8          16        20    24    40
//!                    seq u64  bytes u64  step u32  zero  call  previous call, or zero
//! call, 16 bytes     0          8         12       13        14        15
//!                    count u64  root u32  kind u8  dtype u8  redop u8  zero
//! ```
//!
//! A decoder returns `None` for anything that no encoder writes: reserved bytes that are not
//! zero, unknown codes, bytes left over.

use crate::dtype::DataType;
use crate::op::{Call, Fold, RedOp};
use crate::rank::Rank;

use super::Header;

pub const HEADER_BYTES: usize = 56;

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
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..16].copy_from_slice(&(self.bytes as u64).to_le_bytes());
        out[16..20].copy_from_slice(&self.step.to_le_bytes());
        out[24..40].copy_from_slice(&encode_call(&self.call));
        if let Some(previous) = &self.previous {
            out[40..56].copy_from_slice(&encode_call(previous));
        }
        out
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (seq, bytes) = (reader.u64()?, usize::try_from(reader.u64()?).ok()?);
        let step = reader.u32()?;
        reader.zeros(4)?;
        let call = decode_call(&reader.array()?)?;
        let previous: [u8; 16] = reader.array()?;
        reader.end()?;
        let previous = if previous == [0; 16] { None } else { Some(decode_call(&previous)?) };
        Some(Self { seq, call, previous, step, bytes })
    }
}

/// Fields a call lacks are zero; the kind never is.
pub fn encode_call(call: &Call) -> [u8; 16] {
    let folded = |fold: Fold| (fold.dtype() as u8, fold.redop() as u8);
    let (kind, count, root, (dtype, redop)) = match *call {
        Call::AllReduce { count, fold } => (1, count, 0, folded(fold)),
        Call::Reduce { count, fold, root } => (2, count, root.0, folded(fold)),
        Call::Broadcast { count, dtype, root } => (3, count, root.0, (dtype as u8, 0)),
        Call::AllGather { count, dtype } => (4, count, 0, (dtype as u8, 0)),
        Call::ReduceScatter { count, fold } => (5, count, 0, folded(fold)),
        Call::Barrier => (6, 0, 0, (0, 0)),
    };
    let mut out = [0; 16];
    out[0..8].copy_from_slice(&(count as u64).to_le_bytes());
    out[8..12].copy_from_slice(&(root as u32).to_le_bytes());
    out[12..15].copy_from_slice(&[kind, dtype, redop]);
    out
}

pub fn decode_call(bytes: &[u8; 16]) -> Option<Call> {
    let mut reader = Reader(bytes);
    let count = usize::try_from(reader.u64()?).ok()?;
    let root = Rank(reader.u32()? as usize);
    let (kind, dtype, redop) = (reader.u8()?, reader.u8()?, reader.u8()?);
    reader.zeros(1)?;
    let dtype = DataType::from_code(dtype.into())?;
    let fold = || Fold::new(dtype, RedOp::from_code(redop.into())?).ok();
    let call = match kind {
        1 => Call::AllReduce { count, fold: fold()? },
        2 => Call::Reduce { count, fold: fold()?, root },
        3 => Call::Broadcast { count, dtype, root },
        4 => Call::AllGather { count, dtype },
        5 => Call::ReduceScatter { count, fold: fold()? },
        6 => Call::Barrier,
        _ => return None,
    };
    // Fields the call lacks must be zero: one call has one encoding.
    (encode_call(&call) == *bytes).then_some(call)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calls() -> impl Strategy<Value = Call> {
        let fold = (0..DataType::ALL.len(), 0..RedOp::ALL.len())
            .prop_filter_map("refused", |(d, r)| Fold::new(DataType::ALL[d], RedOp::ALL[r]).ok());
        (0..6, any::<usize>(), fold, any::<u32>()).prop_map(|(kind, count, fold, root)| {
            let (dtype, root) = (fold.dtype(), Rank(root as usize));
            match kind {
                0 => Call::AllReduce { count, fold },
                1 => Call::Reduce { count, fold, root },
                2 => Call::Broadcast { count, dtype, root },
                3 => Call::AllGather { count, dtype },
                4 => Call::ReduceScatter { count, fold },
                _ => Call::Barrier,
            }
        })
    }

    proptest! {
        #[test]
        fn a_header_comes_back_as_it_went(
            call in calls(),
            previous in prop::option::of(calls()),
            seq: u64,
            step: u32,
            bytes: usize,
        ) {
            let header = Header { seq, call, previous, step, bytes };
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
