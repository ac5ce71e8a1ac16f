//! Frames of the control stream: heartbeats, faults and leaves, beside the data.
//!
//! ```text
//! frame    0       1     2 .. 4      4 ..
//!          kind u8 zero  length u16  body
//! ```
//!
//! Leaves to `control_plane` what follows from a frame. Invariant: a decoder returns `None` for
//! anything that no encoder writes.

use super::context_id::ContextId;
use crate::error::{Code, Error};
use crate::op::Call;
use crate::transport::wire::{Reader, decode_call, encode_call};

/// Longest body of a frame.
pub const LONGEST: usize = 2048;
pub const HEAD_BYTES: usize = 4;
/// What precedes the text of a fault: context and code.
const FAULT_BYTES: usize = 9;

/// A call that the sender of a heartbeat has entered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnteredCall {
    pub context: ContextId,
    pub seq: u64,
    pub call: Call,
}

/// The most calls of one heartbeat.
pub const MOST_ENTERED: usize = LONGEST / ENTERED_BYTES;
const ENTERED_BYTES: usize = 32;

#[derive(Debug, PartialEq)]
pub enum Frame {
    /// The first frame of the accepting side: this connection is the link.
    Welcome,
    /// Sent four times a second: the latest calls that the sender has entered, newest first in each
    /// context.
    Heartbeat(Vec<EnteredCall>),
    /// The communicator has failed.
    Fault { context: ContextId, code: Code, text: String },
    /// The ranks of the communicator disagree; one of them chooses the fault and reports it.
    Disagreement { context: ContextId, text: String },
    /// The sender cannot share memory in the communicator, so no rank may wait for its descriptors.
    SharesNoMemory(ContextId),
    /// The sender waits for room in shared memory: the receiver delivers what is there, also while
    /// the program computes.
    DeliverMessages(ContextId),
    /// The sender has left the communicator in good order; its peers have acknowledged all data.
    Leave(ContextId),
    /// The sender has left all communicators of this connection. This is the last frame.
    Bye,
}

impl Frame {
    pub fn fault(context: ContextId, error: &Error) -> Self {
        Self::short_fault(context, error, HEAD_BYTES + LONGEST)
    }

    /// A fault whose frame is at most `most` bytes long: its text is cut.
    pub fn short_fault(context: ContextId, error: &Error, most: usize) -> Self {
        let text = short_text(error, most - HEAD_BYTES - FAULT_BYTES);
        Self::Fault { context, code: error.code(), text }
    }

    pub fn disagreement(context: ContextId, error: &Error) -> Self {
        Self::Disagreement { context, text: short_text(error, LONGEST - FAULT_BYTES) }
    }

    pub fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Welcome => (1, Vec::new()),
            Self::Heartbeat(entered) => {
                let entry = |EnteredCall { context, seq, call }: &EnteredCall| {
                    let (context, seq) = (context.0.to_le_bytes(), seq.to_le_bytes());
                    [&context[..], &seq, &encode_call(call)].concat()
                };
                (2, entered.iter().flat_map(entry).collect())
            }
            Self::Fault { context, code, text } => {
                (3, [&context.0.to_le_bytes()[..], &[*code as u8], text.as_bytes()].concat())
            }
            Self::Bye => (4, Vec::new()),
            Self::Leave(context) => (5, context.0.to_le_bytes().to_vec()),
            Self::SharesNoMemory(context) => (7, context.0.to_le_bytes().to_vec()),
            Self::DeliverMessages(context) => (8, context.0.to_le_bytes().to_vec()),
            Self::Disagreement { context, text } => {
                (6, [&context.0.to_le_bytes()[..], text.as_bytes()].concat())
            }
        };
        let length = (body.len() as u16).to_le_bytes();
        [&[kind, 0, length[0], length[1]], &body[..]].concat()
    }

    /// Kind and length of the body, from the head of a frame.
    pub fn head(bytes: [u8; HEAD_BYTES]) -> Option<(u8, usize)> {
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        (bytes[1] == 0 && length <= LONGEST).then_some((bytes[0], length))
    }

    /// The first of several frames, and the rest.
    pub fn first_of(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk()?;
        let (kind, length) = Self::head(*head)?;
        let (body, rest) = rest.split_at_checked(length)?;
        Some((Self::decode(kind, body)?, rest))
    }

    pub fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let frame = match kind {
            1 => Self::Welcome,
            2 => {
                let mut entered = Vec::new();
                while !reader.0.is_empty() {
                    let (context, seq) = (ContextId(reader.u64()?), reader.u64()?);
                    entered.push(EnteredCall {
                        context,
                        seq,
                        call: decode_call(&reader.array()?)?,
                    });
                }
                Self::Heartbeat(entered)
            }
            3 => {
                let (context, code) = (ContextId(reader.u64()?), Code::of_failure(reader.u8()?)?);
                Self::Fault { context, code, text: printable_text(&mut reader)? }
            }
            4 => Self::Bye,
            5 => Self::Leave(ContextId(reader.u64()?)),
            6 => {
                let context = ContextId(reader.u64()?);
                Self::Disagreement { context, text: printable_text(&mut reader)? }
            }
            7 => Self::SharesNoMemory(ContextId(reader.u64()?)),
            8 => Self::DeliverMessages(ContextId(reader.u64()?)),
            _ => return None,
        };
        reader.end()?;
        Some(frame)
    }
}

/// An error's text, cut to at most `most` bytes.
fn short_text(error: &Error, most: usize) -> String {
    let mut text = error.to_string();
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// The rest of a frame's body as text, without control characters.
fn printable_text(reader: &mut Reader<'_>) -> Option<String> {
    let text = std::str::from_utf8(reader.bytes(reader.0.len())?).ok()?;
    Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_decode_to_themselves() {
        let (context, text) = (ContextId(u64::MAX - 1), "rank 3 is lost — really".to_owned());
        let entered = |seq| EnteredCall { context, seq, call: Call::barrier() };
        let frames = [
            Frame::Welcome,
            Frame::Heartbeat(vec![entered(7), entered(6)]),
            Frame::Heartbeat(vec![entered(0); MOST_ENTERED]),
            Frame::Heartbeat(Vec::new()),
            Frame::Fault { context, code: Code::RemoteError, text: text.clone() },
            Frame::Disagreement { context, text },
            Frame::SharesNoMemory(context),
            Frame::DeliverMessages(context),
            Frame::Leave(context),
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
    fn a_long_fault_is_cut_and_garbage_is_refused() {
        let frame = Frame::fault(ContextId(1), &Error::Usage("é".repeat(5000)));
        assert!(frame.encode().len() <= HEAD_BYTES + LONGEST);
        assert_eq!(Frame::decode(9, &[]), None);
        assert_eq!(Frame::decode(4, &[0]), None);
        assert_eq!(Frame::decode(3, &[99; 9]), None);
        assert_eq!(Frame::decode(5, &[0; 9]), None);
        assert_eq!(Frame::decode(2, &[0; 31]), None);
        assert_eq!(Frame::head([2, 1, 0, 0]), None);
        assert_eq!(Frame::head([2, 0, 0xff, 0xff]), None);
    }

    #[test]
    fn a_fault_whose_code_is_no_failure_is_refused() {
        for code in [Code::Success, Code::InProgress] {
            let fault = Frame::Fault { context: ContextId(1), code, text: String::new() };
            assert_eq!(Frame::decode(3, &fault.encode()[HEAD_BYTES..]), None, "{code:?}");
        }
    }
}
