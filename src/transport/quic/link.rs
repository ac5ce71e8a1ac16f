//! A connection to one peer: for each context a stream per lane and direction, one for notes and one for
//! each body under way; and one control stream for all.
//!
//! Leaves to `preamble` how a stream says what it carries.
//!
//! A receive is the read itself: no task stands between the connection and the caller, flow
//! control is the back-pressure. Lanes see to it that at most one caller reads and one writes a
//! stream at a time, so a stream is taken out while it is used and put back after a whole message;
//! one that is not put back was broken off, and its communicator has failed.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bytes::Bytes;
use quinn::{Connection, ReadError, RecvStream, SendStream, WriteError};
use tokio::sync::{mpsc, watch};

use super::super::{Header, LANES, Lane};
use super::beacon::Beacon;
use super::bodies::Bodies;
use super::context::ContextId;
use super::control::{Frame, HEAD_BYTES};
use super::notes::Notes;
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::reader::StreamReader;
use super::{endpoint, lock};

/// A message up to this long travels in one piece with its header.
const SMALL: usize = 1024;
/// How much of a long message is handed over at once.
pub const PART: usize = 128 << 10;
/// Contexts that this rank has yet to make may be known to a peer: one for each split that is under way,
/// of which a context has at most one in each lane; and some more, so that nobody counts them.
const MOST_EARLY: usize = 1024;

pub struct Link {
    pub connection: Connection,
    /// Frames for the peer, written in order by the link's own task.
    pub control: mpsc::UnboundedSender<Frame>,
    /// `None` if TLS gave no keys for it.
    beacon: Option<Arc<Beacon>>,
    said_bye: AtomicBool,
    contexts: Mutex<HashMap<ContextId, Arc<Streams>>>,
    /// For how many contexts the limits are.
    allowed: Mutex<usize>,
}

/// The streams of one context to and from one peer.
pub struct Streams {
    connection: Connection,
    context: ContextId,
    senders: [Mutex<Option<SendStream>>; LANES],
    receivers: [Mutex<Receiver>; LANES],
    pub notes: Notes,
    pub bodies: Bodies,
    /// The peer has left the context, and all streams it had opened are here.
    left: watch::Sender<bool>,
    /// The peer has said that it cannot share memory in the context.
    shares_no_memory: watch::Sender<bool>,
}

#[derive(Default)]
struct Receiver {
    opened: bool,
    stream: Option<StreamReader>,
    waiting: Option<Waker>,
}

/// What can go wrong on a stream, before the mesh says whose fault it is.
#[derive(Debug)]
pub enum LinkError {
    /// The connection is gone; the mesh knows why.
    Lost,
    /// The peer sent what no nexar sends.
    Protocol(String),
}

impl From<WriteError> for LinkError {
    fn from(_: WriteError) -> Self {
        Self::Lost
    }
}

impl From<ReadError> for LinkError {
    fn from(_: ReadError) -> Self {
        Self::Lost
    }
}

impl From<quinn::ConnectionError> for LinkError {
    fn from(_: quinn::ConnectionError) -> Self {
        Self::Lost
    }
}

impl Link {
    pub fn new(
        connection: Connection,
        control: mpsc::UnboundedSender<Frame>,
        beacon: Option<Arc<Beacon>>,
    ) -> Self {
        let said_bye = AtomicBool::new(false);
        let (contexts, allowed) = (Mutex::default(), Mutex::default());
        Self { connection, control, beacon, said_bye, contexts, allowed }
    }

    /// Grows with all that only the peer itself can have sent.
    pub fn heard(&self) -> u64 {
        let frames = self.connection.stats().frame_rx;
        let over_quic =
            frames.acks + frames.stream + frames.ping + frames.max_data + frames.max_stream_data;
        over_quic + self.beacon.as_ref().map_or(0, |beacon| beacon.heard())
    }

    /// The peer has left all contexts of the link.
    pub fn note_bye(&self) {
        self.said_bye.store(true, Ordering::Release);
    }

    pub fn has_said_bye(&self) -> bool {
        self.said_bye.load(Ordering::Acquire)
    }

    /// The streams of a context, made when first asked for by either side.
    pub fn streams(&self, context: ContextId) -> Arc<Streams> {
        let mut contexts = lock(&self.contexts);
        let streams = contexts.entry(context).or_insert_with(|| {
            Arc::new(Streams {
                connection: self.connection.clone(),
                context,
                senders: Default::default(),
                receivers: Default::default(),
                notes: Notes::default(),
                bodies: Bodies::default(),
                left: watch::Sender::new(false),
                shares_no_memory: watch::Sender::new(false),
            })
        });
        Arc::clone(streams)
    }

    /// Whether the peer has left a context.
    pub fn has_left(&self, context: ContextId) -> bool {
        lock(&self.contexts).get(&context).is_some_and(|streams| streams.has_left())
    }

    /// As `streams`, for what the peer says. It may not name contexts without end.
    pub fn streams_of_peer(&self, context: ContextId) -> Result<Arc<Streams>, LinkError> {
        let most = MOST_EARLY + (LANES + 1) * *lock(&self.allowed);
        let contexts = lock(&self.contexts);
        if contexts.len() >= most && !contexts.contains_key(&context) {
            return Err(LinkError::Protocol("named too many communicators".to_owned()));
        }
        drop(contexts);
        Ok(self.streams(context))
    }

    /// This rank has left a context: nothing of it is read any more.
    pub fn forget(&self, context: ContextId) {
        lock(&self.contexts).remove(&context);
    }

    /// Lets the peer open the streams of so many contexts. Limits never shrink.
    pub fn allow(&self, contexts: usize) {
        let mut allowed = lock(&self.allowed);
        if contexts > *allowed {
            *allowed = contexts;
            endpoint::set_limits(&self.connection, contexts);
        }
    }
}

impl Streams {
    /// Writes one message. Returns when the connection has taken it over.
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

    /// Takes the lane's reader out, once the peer has opened it.
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

    /// The peer has opened its stream of a lane, which it does once.
    pub fn add_reader(&self, lane: Lane, reader: StreamReader) -> Result<(), LinkError> {
        if std::mem::replace(&mut lock(&self.receivers[lane.0]).opened, true) {
            return Err(LinkError::Protocol(format!("opened lane {} twice", lane.0)));
        }
        self.put_reader(lane, reader);
        Ok(())
    }

    pub fn put_reader(&self, lane: Lane, reader: StreamReader) {
        let mut receiver = lock(&self.receivers[lane.0]);
        receiver.stream = Some(reader);
        if let Some(waker) = receiver.waiting.take() {
            drop(receiver);
            waker.wake();
        }
    }

    /// The data streams this side has opened, to be finished.
    pub fn take_senders(&self) -> Vec<SendStream> {
        let lanes = self.senders.iter().filter_map(|sender| lock(sender).take());
        let messages = self.notes.take_sender().into_iter().chain(self.bodies.take_senders());
        lanes.chain(messages).collect()
    }

    /// The peer has left the context: it reads nothing more of it. Streams that stayed open would
    /// count against those it lets this side open.
    pub fn leave(&self) {
        self.left.send_replace(true);
        drop(self.take_senders());
    }

    /// Waits until the peer has left the context.
    pub async fn left(&self) {
        let _ = self.left.subscribe().wait_for(|left| *left).await;
    }

    /// The peer cannot share memory in the context.
    pub fn refuse_memory(&self) {
        self.shares_no_memory.send_replace(true);
    }

    /// Waits until the peer has said that it cannot share memory in the context.
    pub async fn memory_refused(&self) {
        let _ = self.shares_no_memory.subscribe().wait_for(|refused| *refused).await;
    }

    pub fn has_left(&self) -> bool {
        *self.left.borrow()
    }
}

/// What a stream the peer opened is for.
pub enum Opened {
    Control(RecvStream),
    Data(ContextId, Lane, StreamReader),
    Notes(ContextId, StreamReader),
    /// Of the message with this number.
    Body(ContextId, u64, StreamReader),
}

/// Reads the preamble of a stream the peer opened.
pub async fn opened(mut stream: RecvStream) -> Result<Opened, LinkError> {
    let mut preamble = [0; PREAMBLE_BYTES];
    stream.read_exact(&mut preamble).await.map_err(|_| LinkError::Lost)?;
    let malformed = || LinkError::Protocol(format!("opened a stream with preamble {preamble:?}"));
    Ok(match Preamble::decode(&preamble).ok_or_else(malformed)? {
        Preamble::Control => Opened::Control(stream),
        Preamble::Data(context, lane) => Opened::Data(context, lane, StreamReader::new(stream)),
        Preamble::Notes(context) => Opened::Notes(context, StreamReader::new(stream)),
        Preamble::Body(context) => {
            let mut id = [0; 8];
            stream.read_exact(&mut id).await.map_err(|_| LinkError::Lost)?;
            Opened::Body(context, u64::from_le_bytes(id), StreamReader::new(stream))
        }
    })
}

/// Opens a stream of this side's.
pub async fn open(connection: &Connection, preamble: Preamble) -> Result<SendStream, LinkError> {
    let mut stream = connection.open_uni().await?;
    stream.write_all(&preamble.encode()).await?;
    Ok(stream)
}

/// Opens this side's control stream.
pub async fn open_control(connection: &Connection) -> Result<SendStream, LinkError> {
    let stream = open(connection, Preamble::Control).await?;
    // Heartbeats and failures go before data.
    let _ = stream.set_priority(1);
    Ok(stream)
}

pub async fn read_frame(stream: &mut RecvStream) -> Result<Frame, LinkError> {
    let malformed = || LinkError::Protocol("sent a malformed control frame".to_owned());
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.map_err(|_| LinkError::Lost)?;
    let (kind, length) = Frame::head(head).ok_or_else(malformed)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(|_| LinkError::Lost)?;
    Frame::decode(kind, &body).ok_or_else(malformed)
}
