//! The rendezvous payloads between two ranks of a context: each has a stream of its own.
//!
//! Leaves to `MessageQueues` which payloads are expected. Invariant: a stream is accepted only if
//! this rank has sent a CTS for it, so the receive that waits for it reads it at once.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Mutex;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use quinn::{Connection, SendStream};
use tokio::sync::Semaphore;

use super::context_id::ContextId;
use super::link_error::LinkError;
use super::mutex::lock;
use super::preamble::Preamble;
use super::stream_opening::open;
use super::stream_reader::StreamReader;

/// Payloads under way to one peer at once. Further ones wait for a permit.
pub const MOST_PAYLOADS: usize = 4;

/// The bytes of a long message that are handed to the connection at once.
pub const PART: usize = 128 << 10;

pub struct PayloadStreams {
    free: Semaphore,
    /// Streams that this side has written and the peer may not have acknowledged.
    written: Mutex<Vec<SendStream>>,
    /// By message id: streams that the peer has opened and no receive reads yet, and receives that
    /// wait for their stream.
    arrived: Mutex<HashMap<u64, Arrived>>,
}

#[derive(Default)]
struct Arrived {
    reader: Option<StreamReader>,
    waiting: Option<Waker>,
}

impl Default for PayloadStreams {
    fn default() -> Self {
        let free = Semaphore::new(MOST_PAYLOADS);
        Self { free, written: Mutex::default(), arrived: Mutex::default() }
    }
}

impl PayloadStreams {
    /// Sends a payload on a stream of its own.
    pub async fn write(
        &self,
        connection: &Connection,
        context: ContextId,
        id: u64,
        bytes: &[u8],
    ) -> Result<(), LinkError> {
        let _free = self.free.acquire().await.map_err(|_| LinkError::Lost)?;
        let mut stream = open(connection, Preamble::Payload(context)).await?;
        stream.write_all(&id.to_le_bytes()).await?;
        for part in bytes.chunks(PART) {
            stream.write_chunk(Bytes::copy_from_slice(part)).await?;
        }
        let _ = stream.finish();
        let mut written = lock(&self.written);
        written.retain_mut(|stream| !has_arrived(stream));
        written.push(stream);
        Ok(())
    }

    /// Adds the stream of a payload, which the peer has opened after the CTS.
    pub fn add(&self, id: u64, reader: StreamReader) -> Result<(), LinkError> {
        let mut arrived = lock(&self.arrived);
        let slot = arrived.entry(id).or_default();
        if slot.reader.is_some() {
            return Err(LinkError::Protocol(format!("opened message {id} twice")));
        }
        slot.reader = Some(reader);
        let waiting = slot.waiting.take();
        drop(arrived);
        waiting.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Waits for the peer to open the stream of a payload.
    pub async fn reader(&self, id: u64) -> StreamReader {
        poll_fn(|context| {
            let mut arrived = lock(&self.arrived);
            let slot = arrived.entry(id).or_default();
            match slot.reader.take() {
                Some(reader) => {
                    arrived.remove(&id);
                    Poll::Ready(reader)
                }
                None => {
                    slot.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The streams that the peer may not have acknowledged.
    pub fn take_senders(&self) -> Vec<SendStream> {
        std::mem::take(&mut lock(&self.written))
    }
}

fn has_arrived(stream: &mut SendStream) -> bool {
    let stopped = std::pin::pin!(stream.stopped());
    stopped.poll(&mut TaskContext::from_waker(Waker::noop())).is_ready()
}
