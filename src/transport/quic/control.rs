//! Frames of the control stream: what two ranks tell each other beside the data.
//!
//! ```text
//! frame    0       1     2 .. 4      4 ..
//!          kind u8 zero  length u16  body
//! ```

use crate::error::{Code, Error};
use crate::op::Call;
use crate::transport::wire::{Reader, decode_call, encode_call};

/// Longest body of a frame.
pub const LONGEST: usize = 2048;
pub const HEAD_BYTES: usize = 4;

#[derive(Debug, PartialEq)]
pub enum Frame {
    /// The accepting side's first word: it has taken the connection.
    Welcome,
    /// Sent twice a second: the latest calls the sender has entered, newest first.
    Heartbeat(Vec<(u64, Call)>),
    /// The communicator has failed.
    Fault { code: Code, text: String },
    /// The sender has left in good order; nothing follows.
    Bye,
}

impl Frame {
    pub fn fault(error: &Error) -> Self {
        let mut text = error.to_string();
        let mut end = text.len().min(LONGEST - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        Self::Fault { code: error.code(), text }
    }

    pub fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Welcome => (1, Vec::new()),
            Self::Heartbeat(calls) => {
                let call = |(seq, call): &(u64, Call)| {
                    [&seq.to_le_bytes()[..], &encode_call(call)[..]].concat()
                };
                (2, calls.iter().flat_map(call).collect())
            }
            Self::Fault { code, text } => (3, [&[*code as u8], text.as_bytes()].concat()),
            Self::Bye => (4, Vec::new()),
        };
        let length = (body.len() as u16).to_le_bytes();
        [&[kind, 0, length[0], length[1]], &body[..]].concat()
    }

    /// Kind and length of the body, from the head of a frame.
    pub fn head(bytes: [u8; HEAD_BYTES]) -> Option<(u8, usize)> {
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        (bytes[1] == 0 && length <= LONGEST).then_some((bytes[0], length))
    }

    pub fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let frame = match kind {
            1 => Self::Welcome,
            2 => {
                let mut calls = Vec::new();
                while !reader.0.is_empty() {
                    calls.push((reader.u64()?, decode_call(&reader.array()?)?));
                }
                Self::Heartbeat(calls)
            }
            3 => {
                let code = reader.u8()?;
                let code = Code::ALL.into_iter().find(|known| *known as u8 == code)?;
                let text = std::str::from_utf8(reader.bytes(reader.0.len())?).ok()?;
                let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
                Self::Fault { code, text: shown.collect() }
            }
            4 => Self::Bye,
            _ => return None,
        };
        reader.end()?;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_went() {
        let frames = [
            Frame::Welcome,
            Frame::Heartbeat(vec![(7, Call::Barrier), (6, Call::Barrier)]),
            Frame::Heartbeat(Vec::new()),
            Frame::Fault { code: Code::RemoteError, text: "rank 3 is gone — really".to_owned() },
            Frame::Bye,
        ];
        for frame in frames {
            let bytes = frame.encode();
            let (kind, length) = Frame::head(bytes[..4].try_into().unwrap()).unwrap();
            assert_eq!(length, bytes.len() - 4);
            assert_eq!(Frame::decode(kind, &bytes[4..]), Some(frame));
        }
    }

    #[test]
    fn a_long_fault_is_cut_and_garbage_is_nothing() {
        let frame = Frame::fault(&Error::Usage("é".repeat(5000)));
        assert!(frame.encode().len() <= HEAD_BYTES + LONGEST);
        assert_eq!(Frame::decode(9, &[]), None);
        assert_eq!(Frame::decode(4, &[0]), None);
        assert_eq!(Frame::decode(3, &[99]), None);
        assert_eq!(Frame::decode(2, &[0; 23]), None);
        assert_eq!(Frame::head([2, 1, 0, 0]), None);
        assert_eq!(Frame::head([2, 0, 0xff, 0xff]), None);
    }
}
