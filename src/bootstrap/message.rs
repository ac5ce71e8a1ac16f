//! The messages between a rank and the root, on one stream that the root opens.
//!
//! ```text
//! frame   0       1 .. 4  4 .. 8      8 ..
//!         kind u8 zero    length u32  body
//!
//! root -> rank   Hello                      the root has accepted the connection
//! rank -> root   Join                       rank, settings and key, signed for this connection
//! root -> rank   Table | Refused            all ranks have joined | why initialisation failed
//! rank -> root   Seen                       hash of the received table
//! root -> rank   Go | Refused               all ranks have received the same table
//! ```
//!
//! Every build must be able to refuse every other one. Therefore these never change: the head of a
//! frame, Hello, Refused, and the introduction at the beginning of a Join, which is decoded first.

use std::net::SocketAddr;

use bytes::Bytes;
use quinn::{RecvStream, SendStream};

use crate::error::{Code, Error, Result};
use crate::transport::key::PublicKey;
use crate::transport::quic::Member;
use crate::transport::quic::process::Process;
use crate::transport::wire::Reader;

use super::fingerprint::{Build, Introduction};
use super::id::{decode_address, encode_address};

/// The largest number of ranks of a communicator.
pub const MAX_RANKS: usize = 1 << 16;
/// The largest number of addresses of a rank.
const MAX_ADDRESSES: usize = 2;
/// An entry of the table: key, number of addresses, two addresses, process, host (each zero if not
/// known), and whether the rank has CUDA devices.
pub const ENTRY_BYTES: usize = CUDA_AT + 1;
const CUDA_AT: usize = HOST_AT + 16;
const HOST_AT: usize = PROCESS_AT + 28;
const PROCESS_AT: usize = 32 + 1 + 18 * MAX_ADDRESSES;
/// The longest body of a frame, except for the table, whose length follows from the number of
/// ranks.
const MAX_BODY: usize = 4096;
pub const HEAD_BYTES: usize = 8;
const JOIN: u8 = 2;
const TABLE: u8 = 4;

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Hello,
    Join(Join),
    /// The Join of a rank that runs another build. `None`: a build before introductions existed.
    OtherBuild(Option<Introduction>),
    Refused {
        code: Code,
        text: String,
    },
    Table(Vec<Member>),
    Seen([u8; 32]),
    Go,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    pub rank: usize,
    pub nranks: usize,
    /// How long this rank waits for the others.
    pub init_timeout_ms: u32,
    /// Hash of the settings that all ranks must share.
    pub settings: u64,
    pub member: Member,
    /// The signature of `signed` with the member's key.
    pub signature: [u8; 64],
}

impl Join {
    /// The bytes that the signature covers. Only the two ends of one connection know `binding`, so
    /// the signature is not valid on any other connection.
    pub fn signed(&self, binding: &[u8; 32]) -> Vec<u8> {
        [&b"nexar/1 join"[..], binding, &self.fields()].concat()
    }

    fn fields(&self) -> Vec<u8> {
        let introduction = Introduction { rank: self.rank, build: Build::of_this() };
        let mut out = introduction.encode().to_vec();
        out.extend((self.nranks as u32).to_le_bytes());
        out.extend(self.init_timeout_ms.to_le_bytes());
        out.extend(self.settings.to_le_bytes());
        out.extend(encode_member(&self.member));
        out
    }
}

impl Message {
    pub fn refused(error: &Error) -> Self {
        let text: String = error.to_string().chars().take(1000).collect();
        Self::Refused { code: error.code(), text }
    }

    pub fn encode(&self) -> Vec<u8> {
        let (kind, body): (u8, Vec<u8>) = match self {
            Self::Hello => (1, Vec::new()),
            Self::Join(join) => (JOIN, [&join.fields()[..], &join.signature].concat()),
            Self::OtherBuild(introduction) => {
                let introduction = introduction.as_ref().map(Introduction::encode);
                (JOIN, introduction.into_iter().flatten().collect())
            }
            Self::Refused { code, text } => (3, [&[*code as u8], text.as_bytes()].concat()),
            Self::Table(members) => (TABLE, encode_table(members)),
            Self::Seen(hash) => (5, hash.to_vec()),
            Self::Go => (6, Vec::new()),
        };
        let length = (body.len() as u32).to_le_bytes();
        [&[kind, 0, 0, 0], &length[..], &body].concat()
    }

    /// Kind and length of the body, from the head of a frame. `None` if the head is malformed or
    /// the body too long; a table may have at most `ranks` entries.
    pub fn head(bytes: [u8; HEAD_BYTES], ranks: usize) -> Option<(u8, usize)> {
        let [kind, 0, 0, 0, a, b, c, d] = bytes else { return None };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let limit = if kind == TABLE { ranks * ENTRY_BYTES } else { MAX_BODY };
        (length <= limit).then_some((kind, length))
    }

    pub fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let message = match kind {
            1 => Self::Hello,
            JOIN => match Introduction::decode(&mut reader) {
                Some(introduction) if introduction.build.fits() => Self::Join(Join {
                    rank: introduction.rank,
                    nranks: reader.u32()? as usize,
                    init_timeout_ms: reader.u32()?,
                    settings: reader.u64()?,
                    member: decode_member(&mut reader)?,
                    signature: reader.array()?,
                }),
                // Only that build can decode the rest.
                other => return Some(Self::OtherBuild(other)),
            },
            3 => {
                let code = Code::of_failure(reader.u8()?)?;
                let text = std::str::from_utf8(reader.bytes(reader.0.len())?).ok()?;
                let text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                Self::Refused { code, text }
            }
            TABLE => {
                let mut members = Vec::new();
                while !reader.0.is_empty() {
                    members.push(decode_member(&mut reader)?);
                }
                Self::Table(members)
            }
            5 => Self::Seen(reader.array()?),
            6 => Self::Go,
            _ => return None,
        };
        reader.end()?;
        Some(message)
    }

    pub async fn write(&self, stream: &mut SendStream) -> Result<()> {
        stream.write_all(&self.encode()).await.map_err(|error| root_lost(&error))
    }

    /// Reads one message. A table may have at most `ranks` entries.
    pub async fn read(stream: &mut RecvStream, ranks: usize) -> Result<Self> {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).await.map_err(|error| root_lost(&error))?;
        let (kind, length) = Self::head(head, ranks).ok_or_else(malformed)?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.map_err(|error| root_lost(&error))?;
        Self::decode(kind, &body).ok_or_else(malformed)
    }
}

/// Writes an encoded message without copying it.
pub async fn write_encoded(stream: &mut SendStream, message: Bytes) -> Result<()> {
    stream.write_chunk(message).await.map_err(|error| root_lost(&error))
}

pub fn encode_table(members: &[Member]) -> Vec<u8> {
    members.iter().flat_map(encode_member).collect()
}

fn encode_member(member: &Member) -> [u8; ENTRY_BYTES] {
    let mut out = [0; ENTRY_BYTES];
    out[..32].copy_from_slice(member.key.bytes());
    let addresses: Vec<SocketAddr> = member.addresses.iter().copied().take(MAX_ADDRESSES).collect();
    out[32] = addresses.len() as u8;
    for (index, address) in addresses.iter().enumerate() {
        let at = 33 + 18 * index;
        out[at..at + 18].copy_from_slice(&encode_address(*address));
    }
    if let Some(process) = &member.process {
        out[PROCESS_AT..PROCESS_AT + 16].copy_from_slice(&process.host);
        out[PROCESS_AT + 16..PROCESS_AT + 20].copy_from_slice(&process.pid.to_le_bytes());
        out[PROCESS_AT + 20..HOST_AT].copy_from_slice(&process.started.to_le_bytes());
    }
    out[HOST_AT..CUDA_AT].copy_from_slice(&member.host.unwrap_or_default());
    out[CUDA_AT] = member.cuda.into();
    out
}

fn decode_member(reader: &mut Reader<'_>) -> Option<Member> {
    let bytes: [u8; ENTRY_BYTES] = reader.array()?;
    let mut reader = Reader(&bytes);
    let key = PublicKey::parse(reader.array()?)?;
    let count = usize::from(reader.u8()?);
    (1..=MAX_ADDRESSES).contains(&count).then_some(())?;
    let mut addresses = Vec::new();
    for _ in 0..count {
        addresses.push(decode_address(reader.array()?)?);
    }
    reader.zeros(18 * (MAX_ADDRESSES - count))?;
    let process = Process { host: reader.array()?, pid: reader.u32()?, started: reader.u64()? };
    let process = Some(process).filter(|process| process.pid != 0);
    let host = Some(reader.array()?).filter(|host| *host != [0; 16]);
    let cuda = reader.u8()? != 0;
    let member = Member { key, addresses, process, host, cuda };
    // Unused fields must be zero: a member has exactly one encoding, which all ranks hash.
    (encode_member(&member) == bytes).then_some(member)
}

fn root_lost(error: &dyn std::fmt::Display) -> Error {
    Error::Reported {
        code: Code::RemoteError,
        text: format!("the root, the process that serves the unique id, was lost: {error}"),
    }
}

fn malformed() -> Error {
    let text = "the peer sent a malformed message of the join protocol".to_owned();
    Error::Reported { code: Code::RemoteError, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::key::Identity;

    #[test]
    fn messages_survive_encoding_and_truncated_ones_are_refused() {
        let member = |port: u16| Member {
            key: Identity::random().unwrap().public(),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], port))],
            process: Some(Process { host: [port as u8; 16], pid: 9, started: 1 << 40 }),
            host: (port != 2).then_some([port as u8; 16]),
            cuda: port == 1,
        };
        let join = Join {
            rank: 1,
            nranks: 3,
            init_timeout_ms: 500,
            settings: 77,
            member: member(5),
            signature: [3; 64],
        };
        let messages = [
            Message::Hello,
            Message::Join(join),
            Message::Refused { code: Code::InvalidUsage, text: "rank 2 joined twice".to_owned() },
            Message::Table(vec![member(1), member(2)]),
            Message::Seen([9; 32]),
            Message::Go,
        ];
        for message in messages {
            let bytes = message.encode();
            let body = &bytes[8..];
            assert_eq!(Message::decode(bytes[0], body).as_ref(), Some(&message));
            for cut in 0..body.len() {
                let short = Message::decode(bytes[0], &body[..cut]);
                assert_ne!(short.as_ref(), Some(&message));
            }
            assert_ne!(Message::decode(bytes[0], &[body, &[0]].concat()), Some(message));
        }
    }

    #[test]
    fn a_join_of_another_build_is_identified_by_its_introduction() {
        let version = "7.8.9".to_owned();
        let build = Build { fingerprint: Build::of_this().fingerprint ^ 1, version };
        let introduction = Introduction { rank: 3, build };
        let mut body = introduction.encode().to_vec();
        body.extend([0xee; 500]);
        assert_eq!(Message::decode(JOIN, &body), Some(Message::OtherBuild(Some(introduction))));
        // Before introductions existed, a join began with the rank and the number of ranks.
        let before = [&[2, 0, 0, 0, 3, 0, 0, 0][..], &[7; 200]].concat();
        assert_eq!(Message::decode(JOIN, &before), Some(Message::OtherBuild(None)));
    }

    #[test]
    fn a_process_without_a_number_has_no_other_field() {
        let key = Identity::random().unwrap().public();
        let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 5))];
        let entry =
            encode_member(&Member { key, addresses, process: None, host: None, cuda: false });
        for at in (PROCESS_AT..PROCESS_AT + 16).chain(PROCESS_AT + 20..HOST_AT) {
            let mut wrong = entry;
            wrong[at] = 1;
            assert_eq!(Message::decode(TABLE, &wrong), None, "byte {at}");
        }
        assert!(Message::decode(TABLE, &entry).is_some());
    }

    #[test]
    fn a_refusal_has_the_code_of_a_failure() {
        for code in [Code::Success, Code::InProgress] {
            let bytes = Message::Refused { code, text: String::new() }.encode();
            assert_eq!(Message::decode(bytes[0], &bytes[HEAD_BYTES..]), None);
        }
    }
}
