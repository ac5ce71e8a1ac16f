//! How a stream of a link begins, on the side that opens it and on the side that accepts it.
//!
//! Leaves to `preamble` the first bytes, and to `streams` and `control_plane` the use of the
//! stream. Invariant: nothing precedes the preamble.

use quinn::{Connection, RecvStream, SendStream};

use crate::transport::Lane;

use super::context_id::ContextId;
use super::control::{Frame, HEAD_BYTES};
use super::link_error::LinkError;
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::stream_reader::StreamReader;

/// A stream that the peer has opened.
pub enum OpenedStream {
    Control(RecvStream),
    Data(ContextId, Lane, StreamReader),
    ControlMessages(ContextId, StreamReader),
    /// The payload of the message with this id.
    Payload(ContextId, u64, StreamReader),
}

/// Reads the preamble of a stream that the peer has opened.
pub async fn accept(mut stream: RecvStream) -> Result<OpenedStream, LinkError> {
    let mut preamble = [0; PREAMBLE_BYTES];
    stream.read_exact(&mut preamble).await.map_err(|_| LinkError::Lost)?;
    let malformed = || LinkError::Protocol(format!("opened a stream with preamble {preamble:?}"));
    Ok(match Preamble::decode(&preamble).ok_or_else(malformed)? {
        Preamble::Control => OpenedStream::Control(stream),
        Preamble::Data(context, lane) => {
            OpenedStream::Data(context, lane, StreamReader::new(stream))
        }
        Preamble::ControlMessages(context) => {
            OpenedStream::ControlMessages(context, StreamReader::new(stream))
        }
        Preamble::Payload(context) => {
            let mut id = [0; 8];
            stream.read_exact(&mut id).await.map_err(|_| LinkError::Lost)?;
            OpenedStream::Payload(context, u64::from_le_bytes(id), StreamReader::new(stream))
        }
    })
}

/// Opens a stream to the peer.
pub async fn open(connection: &Connection, preamble: Preamble) -> Result<SendStream, LinkError> {
    let mut stream = connection.open_uni().await?;
    stream.write_all(&preamble.encode()).await?;
    Ok(stream)
}

/// Opens the control stream to the peer.
pub async fn open_control(connection: &Connection) -> Result<SendStream, LinkError> {
    let stream = open(connection, Preamble::Control).await?;
    // Heartbeats and faults overtake data.
    let _ = stream.set_priority(1);
    Ok(stream)
}

/// Reads the next frame of the peer's control stream.
pub async fn read_frame(stream: &mut RecvStream) -> Result<Frame, LinkError> {
    let malformed = || LinkError::Protocol("sent a malformed control frame".to_owned());
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.map_err(|_| LinkError::Lost)?;
    let (kind, length) = Frame::head(head).ok_or_else(malformed)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(|_| LinkError::Lost)?;
    Frame::decode(kind, &body).ok_or_else(malformed)
}
