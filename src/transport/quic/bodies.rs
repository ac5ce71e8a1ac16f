//! The bytes of announced messages between two ranks of a context: a stream of its own for each.
//!
//! Invariant: no stream is taken that this rank did not ask for, so that each is read at once by the
//! receive that waits for it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Mutex;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use quinn::{Connection, SendStream};
use tokio::sync::Semaphore;

use super::context::ContextId;
use super::link::{LinkError, PART, open};
use super::lock;
use super::preamble::Preamble;
use super::reader::StreamReader;

/// Bodies under way to one peer at once; others wait for their turn.
pub const BODIES: usize = 4;

pub struct Bodies {
    free: Semaphore,
    /// Those that this side has written, as far as they may not have arrived.
    written: Mutex<Vec<SendStream>>,
    /// Those that the peer has opened and nobody reads yet, and who waits for one.
    arrived: Mutex<HashMap<u64, Arrived>>,
}

#[derive(Default)]
struct Arrived {
    reader: Option<StreamReader>,
    waiting: Option<Waker>,
}

impl Default for Bodies {
    fn default() -> Self {
        let free = Semaphore::new(BODIES);
        Self { free, written: Mutex::default(), arrived: Mutex::default() }
    }
}

impl Bodies {
    pub async fn write(
        &self,
        connection: &Connection,
        context: ContextId,
        id: u64,
        bytes: &[u8],
    ) -> Result<(), LinkError> {
        let _free = self.free.acquire().await.map_err(|_| LinkError::Lost)?;
        let mut stream = open(connection, Preamble::Body(context)).await?;
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

    /// The peer has opened a stream for bytes that it was asked for.
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

    /// Waits for the peer's stream.
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

    /// The streams that may not have arrived.
    pub fn take_senders(&self) -> Vec<SendStream> {
        std::mem::take(&mut lock(&self.written))
    }
}

fn has_arrived(stream: &mut SendStream) -> bool {
    let stopped = std::pin::pin!(stream.stopped());
    stopped.poll(&mut TaskContext::from_waker(Waker::noop())).is_ready()
}
