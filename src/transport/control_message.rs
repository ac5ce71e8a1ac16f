//! Control messages of the message protocol between two ranks of a communicator.
//!
//! ```text
//! head, 24 bytes   0        1         2          3     4        8       16
//!                  kind u8  dtype u8  tagged u8  zero  tag u32  id u64  count u64
//!
//! of opaque elements, instead of bytes 1 to 3:  bits 0-21  22      23
//!                                               size - 1   tagged  1
//! ```
//!
//! The payload of an eager message follows its head. An RTS may have the location of its payload in
//! an arena, which follows the head; such an RTS exists only inside a host. Fields that a control
//! message lacks are zero. The count of a credit is in bytes. Leaves to `message_queues` what
//! follows from a message. Invariant: one control message has one encoding, and a decoder returns
//! `None` for anything else.

use crate::dtype::{DataType, ElementType};
use crate::message::{Envelope, Tag};

use super::wire::{Reader, size_code, size_of_code};

pub const CONTROL_HEAD_BYTES: usize = 24;

/// The longest message that is sent with its envelope.
pub const EAGER: usize = 16 << 10;

/// The kind of an eager message that wants no CTS, which the fast path writes and reads.
const EAGER_WITHOUT_CTS: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlMessage {
    /// A message, eager or as RTS. Ids count from 0 in each direction between two ranks.
    Message { id: u64, envelope: Envelope, protocol: Protocol },
    /// CTS: message `id`, which the destination of this CTS has sent, has matched a receive.
    ClearToSend { id: u64 },
    /// Message `id`, whose RTS had a location, has matched a receive, and its payload was read.
    PayloadRead { id: u64 },
    /// Returns credit: memory for this many bytes of messages is free again.
    Credit { bytes: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The payload is sent with the envelope. `wants_cts`: the sender waits for the CTS.
    Eager { payload: Vec<u8>, wants_cts: bool },
    /// RTS: the payload follows on its own, after the CTS. If it has a location, the receiver may
    /// read it there, and then reports that instead of sending a CTS.
    Rendezvous { location: Option<Location> },
}

/// Where a receiver on the same host can read a payload: an offset in the sender's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location([u8; 8]);

impl Location {
    pub fn new(offset: u64) -> Self {
        Self(offset.to_le_bytes())
    }

    pub fn offset(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

impl ControlMessage {
    /// The encoding, for a link between hosts: an RTS has no location there.
    pub fn encode(&self) -> Vec<u8> {
        let payload = self.payload();
        let mut out = Vec::with_capacity(CONTROL_HEAD_BYTES + payload.len());
        out.extend_from_slice(&self.head());
        out.extend_from_slice(payload);
        out
    }

    /// The encoded head.
    pub fn head(&self) -> [u8; CONTROL_HEAD_BYTES] {
        let (kind, id, envelope, count) = match self {
            Self::Message { id, envelope, protocol } => {
                let kind = match protocol {
                    Protocol::Eager { wants_cts: false, .. } => EAGER_WITHOUT_CTS,
                    Protocol::Eager { wants_cts: true, .. } => 2,
                    Protocol::Rendezvous { location: None } => 3,
                    Protocol::Rendezvous { location: Some(_) } => 6,
                };
                (kind, *id, Some(envelope), envelope.count)
            }
            Self::ClearToSend { id } => (4, *id, None, 0),
            Self::Credit { bytes } => (5, 0, None, *bytes),
            Self::PayloadRead { id } => (7, *id, None, 0),
        };
        head(kind, id, envelope, count)
    }

    /// Decodes a head that arrived over a link between hosts. The payload has its full length; the
    /// caller reads it into `payload_mut`.
    pub fn decode(head: &[u8; CONTROL_HEAD_BYTES]) -> Option<Self> {
        Self::decode_shared(head).filter(|message| !message.is_of_one_host())
    }

    /// Whether only ranks of one host exchange such messages.
    fn is_of_one_host(&self) -> bool {
        match self {
            Self::Message { protocol: Protocol::Rendezvous { location }, .. } => location.is_some(),
            Self::PayloadRead { .. } => true,
            Self::Message { .. } | Self::ClearToSend { .. } | Self::Credit { .. } => false,
        }
    }

    /// The head of an eager message that wants no CTS.
    #[inline]
    pub fn eager_head(id: u64, envelope: &Envelope) -> [u8; CONTROL_HEAD_BYTES] {
        head(EAGER_WITHOUT_CTS, id, Some(envelope), envelope.count)
    }

    /// Id and envelope of an eager message that wants no CTS. `None` if the head is another's.
    #[inline]
    pub fn eager(head: &[u8; CONTROL_HEAD_BYTES]) -> Option<(u64, Envelope)> {
        if head[0] != EAGER_WITHOUT_CTS {
            return None;
        }
        let (_, id, envelope) = fields(head)?;
        (envelope.bytes() <= EAGER).then_some((id, envelope))
    }

    /// As `decode`, for a head from a rank of this host, which may have a location.
    pub fn decode_shared(head: &[u8; CONTROL_HEAD_BYTES]) -> Option<Self> {
        let (kind, id, envelope) = fields(head)?;
        let eager = |wants_cts| {
            let payload = vec![0; Some(envelope.bytes()).filter(|bytes| *bytes <= EAGER)?];
            Some(Protocol::Eager { payload, wants_cts })
        };
        let rendezvous = |location| Protocol::Rendezvous { location };
        let message = match kind {
            EAGER_WITHOUT_CTS => Self::Message { id, envelope, protocol: eager(false)? },
            2 => Self::Message { id, envelope, protocol: eager(true)? },
            3 => Self::Message { id, envelope, protocol: rendezvous(None) },
            4 => Self::ClearToSend { id },
            5 => Self::Credit { bytes: envelope.count },
            // The caller reads the location into `payload_mut`.
            6 => Self::Message { id, envelope, protocol: rendezvous(Some(Location::new(0))) },
            7 => Self::PayloadRead { id },
            _ => return None,
        };
        (message.head() == *head).then_some(message)
    }

    /// The bytes that follow the head.
    pub fn payload(&self) -> &[u8] {
        match self {
            Self::Message { protocol: Protocol::Eager { payload, .. }, .. } => payload,
            Self::Message {
                protocol: Protocol::Rendezvous { location: Some(location) }, ..
            } => &location.0,
            _ => &[],
        }
    }

    /// The buffer for the bytes that follow the head.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Message { protocol: Protocol::Eager { payload, .. }, .. } => payload,
            Self::Message {
                protocol: Protocol::Rendezvous { location: Some(location) }, ..
            } => &mut location.0,
            _ => &mut [],
        }
    }
}

/// Bits of bytes 1 to 3 of a head. `TAGGED` is that of an envelope of opaque elements.
const OPAQUE: u32 = 1 << 23;
const TAGGED: u32 = 1 << 22;

fn head(kind: u8, id: u64, envelope: Option<&Envelope>, count: usize) -> [u8; CONTROL_HEAD_BYTES] {
    let (tagged, tag) = match envelope.map_or(Tag::None, |one| one.tag) {
        Tag::None => (false, 0),
        Tag::Number(number) => (true, number),
    };
    let codes = match envelope.map(|one| one.dtype) {
        None => 0,
        Some(ElementType::Known(dtype)) => dtype as u32 | u32::from(tagged) << 8,
        Some(ElementType::Opaque(size)) => {
            OPAQUE | size_code(size) | if tagged { TAGGED } else { 0 }
        }
    };
    let mut head = [0; CONTROL_HEAD_BYTES];
    head[..4].copy_from_slice(&(u32::from(kind) | codes << 8).to_le_bytes());
    head[4..8].copy_from_slice(&tag.to_le_bytes());
    head[8..16].copy_from_slice(&id.to_le_bytes());
    head[16..].copy_from_slice(&(count as u64).to_le_bytes());
    head
}

/// Kind, id and envelope of a head. Those that have no envelope have zeros in its place.
fn fields(head: &[u8; CONTROL_HEAD_BYTES]) -> Option<(u8, u64, Envelope)> {
    let mut reader = Reader(head);
    let [kind, dtype, tagged, zero] = reader.array()?;
    let codes = u32::from_le_bytes([dtype, tagged, zero, 0]);
    let (dtype, tagged) = if codes & OPAQUE != 0 {
        (ElementType::Opaque(size_of_code(codes)?), u8::from(codes & TAGGED != 0))
    } else if zero == 0 {
        (DataType::from_code(dtype.into())?.into(), tagged)
    } else {
        return None;
    };
    let (tag, id) = (reader.u32()?, reader.u64()?);
    let count = usize::try_from(reader.u64()?).ok()?;
    let tag = match tagged {
        0 if tag == 0 => Tag::None,
        1 if i32::try_from(tag).is_ok() => Tag::Number(tag),
        _ => return None,
    };
    Some((kind, id, Envelope { tag, dtype, count }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::ElementSize;

    fn messages() -> Vec<ControlMessage> {
        let mut messages =
            vec![ControlMessage::ClearToSend { id: 7 }, ControlMessage::Credit { bytes: 1 << 40 }];
        let opaque = |bytes| ElementType::Opaque(ElementSize::new(bytes).unwrap());
        for (tag, dtype) in [
            (Tag::None, DataType::Uint16.into()),
            (Tag::Number(9), DataType::Int8.into()),
            (Tag::None, opaque(12)),
            (Tag::Number(9), opaque(5461)),
        ] {
            let envelope = Envelope { tag, dtype, count: 3 };
            for wants_cts in [false, true] {
                let payload = vec![5; envelope.bytes()];
                let protocol = Protocol::Eager { payload, wants_cts };
                messages.push(ControlMessage::Message { id: 1 << 50, envelope, protocol });
            }
            messages.push(ControlMessage::Message {
                id: 0,
                envelope,
                protocol: Protocol::Rendezvous { location: None },
            });
        }
        messages
    }

    #[test]
    fn control_messages_decode_to_themselves() {
        for message in messages() {
            let bytes = message.encode();
            let (head, payload) = bytes.split_first_chunk().unwrap();
            let mut back = ControlMessage::decode(head).unwrap();
            back.payload_mut().copy_from_slice(payload);
            assert_eq!(back, message);
        }
    }

    #[test]
    fn the_decoder_refuses_what_no_encoder_writes() {
        for message in messages() {
            let bytes = message.encode();
            let head: [u8; CONTROL_HEAD_BYTES] = *bytes.first_chunk().unwrap();
            let is_opaque = head[3] & 0x80 != 0;
            // Bytes 1 and 2 of opaque elements are their size.
            let unknown: &[_] = if is_opaque { &[] } else { &[(1, 12), (2, 2)] };
            let wrong = [(0, 0), (0, 6), (0, 7), (3, 1), (7, 0x80)];
            for (at, value) in wrong.into_iter().chain(unknown.iter().copied()) {
                let mut wrong = head;
                wrong[at] = value;
                assert_eq!(
                    ControlMessage::decode(&wrong),
                    None,
                    "{message:?} with byte {at} = {value}"
                );
            }
        }
        let envelope = Envelope { tag: Tag::None, dtype: DataType::Int8.into(), count: EAGER + 1 };
        let protocol = Protocol::Eager { payload: Vec::new(), wants_cts: false };
        let long = ControlMessage::Message { id: 0, envelope, protocol }.encode();
        assert_eq!(ControlMessage::decode(long.first_chunk().unwrap()), None, "longer than eager");
        let longest = ElementType::Opaque(ElementSize::new(ElementSize::MOST).unwrap());
        let envelope = Envelope { tag: Tag::Number(9), dtype: longest, count: 1 };
        let protocol = Protocol::Rendezvous { location: None };
        let mut head = ControlMessage::Message { id: 0, envelope, protocol }.head();
        assert_eq!(head[1..4], [255, 255, 0xff]);
        assert!(ControlMessage::decode(&head).is_some());
        head[3] = 0xbf;
        assert_eq!(ControlMessage::decode(&head), None, "a tag of a message without one");
        let head = ControlMessage::ClearToSend { id: 7 }.encode();
        let mut head: [u8; CONTROL_HEAD_BYTES] = head.try_into().unwrap();
        head[16] = 1;
        assert_eq!(ControlMessage::decode(&head), None, "a count where there is none");
    }
}
