//! Control messages of the message protocol between two ranks of a communicator.
//!
//! ```text
//! head, 24 bytes   0        1         2          3     4        8       16
//!                  kind u8  dtype u8  tagged u8  zero  tag u32  id u64  count u64
//! ```
//!
//! The payload of an eager message follows its head. Fields that a control message lacks are zero.
//! The count of a credit is in bytes. Leaves to `inbox` what follows from one. Invariant: one
//! control message has one encoding, and a decoder returns `None` for anything else.

use crate::dtype::DataType;
use crate::message::{Envelope, Tag};

use super::wire::Reader;

pub const NOTE_HEAD_BYTES: usize = 24;

/// The longest message that is sent with its envelope.
pub const EAGER: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A message, eager or as RTS. Ids count up from 0 in each direction between two ranks.
    Message { id: u64, envelope: Envelope, form: Form },
    /// CTS: message `id`, which the receiver of this has sent, was matched.
    Ready { id: u64 },
    /// Returns credit: memory for this many bytes of messages is free again.
    Credit { bytes: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// With its payload. `wants_ready`: its sender waits for the CTS.
    Eager { payload: Vec<u8>, wants_ready: bool },
    /// RTS: the payload follows after the CTS, on its own (rendezvous).
    Announced,
}

impl Note {
    pub fn encode(&self) -> Vec<u8> {
        let (kind, id, envelope, count, payload) = match self {
            Self::Message { id, envelope, form } => {
                let (kind, payload) = match form {
                    Form::Eager { payload, wants_ready: false } => (1, &payload[..]),
                    Form::Eager { payload, wants_ready: true } => (2, &payload[..]),
                    Form::Announced => (3, &[][..]),
                };
                (kind, *id, Some(envelope), envelope.count, payload)
            }
            Self::Ready { id } => (4, *id, None, 0, &[][..]),
            Self::Credit { bytes } => (5, 0, None, *bytes, &[][..]),
        };
        let (dtype, tag) = envelope.map_or((0, Tag::None), |one| (one.dtype as u8, one.tag));
        let (tagged, tag) = match tag {
            Tag::None => (0, 0),
            Tag::Number(number) => (1, number),
        };
        let mut out = Vec::with_capacity(NOTE_HEAD_BYTES + payload.len());
        out.extend_from_slice(&[kind, dtype, tagged, 0]);
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(count as u64).to_le_bytes());
        out.extend_from_slice(payload);
        out
    }

    /// Decodes a head. The payload has its full length and is still to be filled in.
    pub fn decode(head: &[u8; NOTE_HEAD_BYTES]) -> Option<Self> {
        let mut reader = Reader(head);
        let (kind, dtype, tagged) = (reader.u8()?, reader.u8()?, reader.u8()?);
        reader.zeros(1)?;
        let (tag, id) = (reader.u32()?, reader.u64()?);
        let count = usize::try_from(reader.u64()?).ok()?;
        let tag = match tagged {
            0 => Tag::None,
            1 if i32::try_from(tag).is_ok() => Tag::Number(tag),
            _ => return None,
        };
        let dtype = DataType::from_code(dtype.into())?;
        let envelope = Envelope { tag, dtype, count };
        let eager = |wants_ready| {
            let payload = vec![0; Some(envelope.bytes()).filter(|bytes| *bytes <= EAGER)?];
            Some(Form::Eager { payload, wants_ready })
        };
        let note = match kind {
            1 => Self::Message { id, envelope, form: eager(false)? },
            2 => Self::Message { id, envelope, form: eager(true)? },
            3 => Self::Message { id, envelope, form: Form::Announced },
            4 => Self::Ready { id },
            5 => Self::Credit { bytes: count },
            _ => return None,
        };
        (note.encode()[..NOTE_HEAD_BYTES] == *head).then_some(note)
    }

    /// The buffer for the payload that follows the head.
    pub fn payload(&mut self) -> &mut [u8] {
        match self {
            Self::Message { form: Form::Eager { payload, .. }, .. } => payload,
            _ => &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes() -> Vec<Note> {
        let mut notes = vec![Note::Ready { id: 7 }, Note::Credit { bytes: 1 << 40 }];
        for (tag, dtype) in [(Tag::None, DataType::Uint16), (Tag::Number(9), DataType::Int8)] {
            let envelope = Envelope { tag, dtype, count: 3 };
            for wants_ready in [false, true] {
                let payload = vec![5; envelope.bytes()];
                let form = Form::Eager { payload, wants_ready };
                notes.push(Note::Message { id: 1 << 50, envelope, form });
            }
            notes.push(Note::Message { id: 0, envelope, form: Form::Announced });
        }
        notes
    }

    #[test]
    fn notes_come_back_as_they_went() {
        for note in notes() {
            let bytes = note.encode();
            let (head, payload) = bytes.split_first_chunk().unwrap();
            let mut back = Note::decode(head).unwrap();
            back.payload().copy_from_slice(payload);
            assert_eq!(back, note);
        }
    }

    #[test]
    fn what_no_encoder_writes_is_nothing() {
        for note in notes() {
            let bytes = note.encode();
            let head: [u8; NOTE_HEAD_BYTES] = *bytes.first_chunk().unwrap();
            for (at, value) in [(0, 0), (0, 6), (1, 12), (2, 2), (3, 1), (7, 0x80)] {
                let mut wrong = head;
                wrong[at] = value;
                assert_eq!(Note::decode(&wrong), None, "{note:?} with byte {at} = {value}");
            }
        }
        let envelope = Envelope { tag: Tag::None, dtype: DataType::Int8, count: EAGER + 1 };
        let form = Form::Eager { payload: Vec::new(), wants_ready: false };
        let long = Note::Message { id: 0, envelope, form }.encode();
        assert_eq!(Note::decode(long.first_chunk().unwrap()), None, "longer than eager");
        let head = Note::Ready { id: 7 }.encode();
        let mut head: [u8; NOTE_HEAD_BYTES] = head.try_into().unwrap();
        head[16] = 1;
        assert_eq!(Note::decode(&head), None, "a count where there is none");
    }
}
