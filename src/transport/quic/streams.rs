//! The streams of one context to and from one peer: one per lane and direction, one for control
//! messages and one for each payload under way.
//!
//! Leaves to `stream_opening` how a stream begins, and to `link` the connection. A receive is the
//! read itself: no task is between the connection and the caller, and flow control is the
//! back-pressure. Invariant: at most one caller reads and one writes the stream of a lane at a
//! time. A stream is taken out while it is used and put back after a whole message. A stream that
//! was not put back was broken off, and its communicator has failed.

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use bytes::Bytes;
use quinn::{Connection, SendStream};
use tokio::sync::watch;

use crate::transport::{Header, LANES, Lane};

use super::context_id::ContextId;
use super::control_messages::ControlMessages;
use super::link_error::LinkError;
use super::mutex::lock;
use super::payload_streams::{PART, PayloadStreams};
use super::preamble::Preamble;
use super::stream_opening::open;
use super::stream_reader::StreamReader;

/// A message up to this long is sent in one piece with its header.
const SMALL: usize = 1024;

/// The streams of one context to and from one peer.
pub struct Streams {
    connection: Connection,
    context: ContextId,
    senders: [Mutex<Option<SendStream>>; LANES],
    receivers: [Mutex<LaneReceiver>; LANES],
    pub control_messages: ControlMessages,
    pub payloads: PayloadStreams,
    /// Whether the peer has left the context. All streams that it had opened have arrived before.
    left: watch::Sender<bool>,
    /// Whether the peer has reported that it cannot share memory in the context.
    shares_no_memory: watch::Sender<bool>,
}

#[derive(Default)]
struct LaneReceiver {
    opened: bool,
    stream: Option<StreamReader>,
    waiting: Option<Waker>,
}

impl Streams {
    pub fn new(connection: Connection, context: ContextId) -> Self {
        Self {
            connection,
            context,
            senders: Default::default(),
            receivers: Default::default(),
            control_messages: ControlMessages::default(),
            payloads: PayloadStreams::default(),
            left: watch::Sender::new(false),
            shares_no_memory: watch::Sender::new(false),
        }
    }

    /// Writes one message. Returns when the connection has accepted all of it.
    pub async fn send(&self, lane: Lane, header: &Header, bytes: &[u8]) -> Result<(), LinkError> {
        if self.has_left() {
            return Err(LinkError::Lost);
        }
        let taken = lock(&self.senders[lane.0]).take();
        let mut stream = match taken {
            Some(stream) => stream,
            None => open(&self.connection, Preamble::Data(self.context, lane)).await?,
        };
        let header = header.encode();
        if bytes.len() <= SMALL {
            stream.write_chunk(Bytes::from([&header[..], bytes].concat())).await?;
        } else {
            stream.write_chunk(Bytes::copy_from_slice(&header)).await?;
            for segment in bytes.chunks(PART) {
                stream.write_chunk(Bytes::copy_from_slice(segment)).await?;
            }
        }
        *lock(&self.senders[lane.0]) = Some(stream);
        Ok(())
    }

    /// Takes the reader of a lane out, once the peer has opened the stream.
    pub async fn take_reader(&self, lane: Lane) -> StreamReader {
        poll_fn(|context| {
            let mut receiver = lock(&self.receivers[lane.0]);
            match receiver.stream.take() {
                Some(stream) => Poll::Ready(stream),
                None => {
                    receiver.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Adds the peer's stream of a lane. Fails if the peer has opened one before.
    pub fn add_reader(&self, lane: Lane, reader: StreamReader) -> Result<(), LinkError> {
        if std::mem::replace(&mut lock(&self.receivers[lane.0]).opened, true) {
            return Err(LinkError::Protocol(format!("opened lane {} twice", lane.0)));
        }
        self.put_reader(lane, reader);
        Ok(())
    }

    /// Puts the reader of a lane back after a whole message.
    pub fn put_reader(&self, lane: Lane, reader: StreamReader) {
        let mut receiver = lock(&self.receivers[lane.0]);
        receiver.stream = Some(reader);
        if let Some(waker) = receiver.waiting.take() {
            drop(receiver);
            waker.wake();
        }
    }

    /// Takes out the data streams that this side has opened, so that they can be finished.
    pub fn take_senders(&self) -> Vec<SendStream> {
        let lanes = self.senders.iter().filter_map(|sender| lock(sender).take());
        let messages = self.control_messages.take_sender();
        lanes.chain(messages).chain(self.payloads.take_senders()).collect()
    }

    /// The peer has left the context and reads no more of it. Streams that stayed open would count
    /// against the number that the peer lets this side open.
    pub fn leave(&self) {
        self.left.send_replace(true);
        drop(self.take_senders());
    }

    /// Waits until the peer has left the context.
    pub async fn left(&self) {
        let _ = self.left.subscribe().wait_for(|left| *left).await;
    }

    /// The peer has reported that it cannot share memory in the context.
    pub fn refuse_memory(&self) {
        self.shares_no_memory.send_replace(true);
    }

    /// Waits until the peer has reported that it cannot share memory in the context.
    pub async fn memory_refused(&self) {
        let _ = self.shares_no_memory.subscribe().wait_for(|refused| *refused).await;
    }

    /// Whether the peer has left the context.
    pub fn has_left(&self) -> bool {
        *self.left.borrow()
    }
}
