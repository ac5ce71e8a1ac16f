//! The control messages between two ranks of a context: one stream in each direction, opened with
//! the first message.
//!
//! Leaves to `message_delivery` the task that reads them. Invariant: control messages are written
//! whole, in the order of first polls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use quinn::{Connection, SendStream};
use tokio::sync::{Mutex as FairMutex, Notify};

use crate::transport::ControlMessage;

use super::context_id::ContextId;
use super::link_error::LinkError;
use super::mutex::lock;
use super::preamble::Preamble;
use super::stream_opening::open;
use super::stream_reader::StreamReader;

/// The control messages of one context to and from one peer.
#[derive(Default)]
pub struct ControlMessages {
    outgoing: FairMutex<OutgoingStream>,
    incoming: Mutex<IncomingStream>,
    opened: Notify,
    is_read: AtomicBool,
}

#[derive(Default)]
enum OutgoingStream {
    #[default]
    Unopened,
    Open(SendStream),
    /// A message is being written, or its writer was cancelled.
    Busy,
}

#[derive(Default)]
enum IncomingStream {
    #[default]
    Unopened,
    Open(StreamReader),
    Taken,
}

impl ControlMessages {
    /// Writes a control message. Not cancel safe: dropping the future half-way breaks the stream.
    pub async fn write(
        &self,
        connection: &Connection,
        context: ContextId,
        message: &ControlMessage,
    ) -> Result<(), LinkError> {
        let mut outgoing = self.outgoing.lock().await;
        let mut stream = match std::mem::replace(&mut *outgoing, OutgoingStream::Busy) {
            OutgoingStream::Unopened => {
                open(connection, Preamble::ControlMessages(context)).await?
            }
            OutgoingStream::Open(stream) => stream,
            OutgoingStream::Busy => return Err(LinkError::Lost),
        };
        stream.write_chunk(Bytes::from(message.encode())).await?;
        *outgoing = OutgoingStream::Open(stream);
        Ok(())
    }

    /// Adds the stream that the peer has opened. Fails if it has opened one before.
    pub fn add(&self, reader: StreamReader) -> Result<(), LinkError> {
        let mut incoming = lock(&self.incoming);
        if !matches!(*incoming, IncomingStream::Unopened) {
            return Err(LinkError::Protocol("opened its control messages twice".to_owned()));
        }
        *incoming = IncomingStream::Open(reader);
        drop(incoming);
        self.opened.notify_one();
        Ok(())
    }

    /// Takes out the stream of this side, so that it can be finished.
    pub fn take_sender(&self) -> Option<SendStream> {
        match std::mem::replace(&mut *self.outgoing.try_lock().ok()?, OutgoingStream::Busy) {
            OutgoingStream::Open(stream) => Some(stream),
            OutgoingStream::Unopened | OutgoingStream::Busy => None,
        }
    }

    /// True for the first caller, which must read the peer's stream.
    pub fn begin_to_read(&self) -> bool {
        !self.is_read.swap(true, Ordering::AcqRel)
    }

    /// Waits for the peer to open its stream.
    pub async fn reader(&self) -> StreamReader {
        loop {
            {
                let mut incoming = lock(&self.incoming);
                if let IncomingStream::Open(_) = &*incoming
                    && let IncomingStream::Open(reader) =
                        std::mem::replace(&mut *incoming, IncomingStream::Taken)
                {
                    return reader;
                }
            }
            self.opened.notified().await;
        }
    }
}
