//! The first bytes of a stream: what it carries. Streams are one-way.
//!
//! ```text
//! preamble   0                    1        2 .. 8  8                     16
//!            1 control            lane u8  zero    context u64, or zero  id u64 of a payload
//!            2 data
//!            3 control messages
//!            4 payload
//! ```
//!
//! Leaves to `stream_opening` how it is sent and received. Invariant: one preamble has one
//! encoding, and a decoder returns `None` for anything else.

use crate::transport::wire::Reader;
use crate::transport::{LANES, Lane};

use super::context_id::ContextId;

pub const PREAMBLE_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    Control,
    Data(ContextId, Lane),
    ControlMessages(ContextId),
    /// The id of the message follows.
    Payload(ContextId),
}

impl Preamble {
    pub fn encode(self) -> [u8; PREAMBLE_BYTES] {
        let (kind, lane, context) = match self {
            Self::Control => (1, 0, ContextId(0)),
            Self::Data(context, lane) => (2, lane.0 as u8, context),
            Self::ControlMessages(context) => (3, 0, context),
            Self::Payload(context) => (4, 0, context),
        };
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..2].copy_from_slice(&[kind, lane]);
        bytes[8..].copy_from_slice(&context.0.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; PREAMBLE_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (kind, lane) = (reader.u8()?, Lane(reader.u8()?.into()));
        reader.zeros(6)?;
        let context = ContextId(reader.u64()?);
        let preamble = match kind {
            1 => Self::Control,
            2 if lane.0 < LANES => Self::Data(context, lane),
            3 => Self::ControlMessages(context),
            4 => Self::Payload(context),
            _ => return None,
        };
        (preamble.encode() == *bytes).then_some(preamble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preambles_decode_to_themselves_and_nothing_else_is_one() {
        let context = ContextId(u64::MAX - 1);
        let lanes = (0..LANES).map(|lane| Preamble::Data(context, Lane(lane)));
        let others =
            [Preamble::Control, Preamble::ControlMessages(context), Preamble::Payload(context)];
        for preamble in lanes.chain(others) {
            let bytes = preamble.encode();
            assert_eq!(Preamble::decode(&bytes), Some(preamble));
            for (at, value) in [(0, 0), (0, 5), (1, LANES as u8), (2, 1), (7, 0x80)] {
                let mut wrong = bytes;
                wrong[at] = value;
                assert_eq!(Preamble::decode(&wrong), None, "{preamble:?}, byte {at} = {value}");
            }
        }
        let mut of_a_context = Preamble::Control.encode();
        of_a_context[8] = 1;
        assert_eq!(Preamble::decode(&of_a_context), None);
    }
}
