//! The rendezvous payloads between ranks of one process, and of messages that a rank sends to
//! itself: a bounded queue for each.
//!
//! Leaves to the caller when a peer is lost, and to `MessageQueues` to wake both ends when that
//! changes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer;
use crate::error::{Error, Result};
use crate::rank::Rank;

use super::queue::{Parcel, ParcelQueue, Reason};

/// Longest part of a payload that is copied at once; a multiple of every built-in type's size.
pub const PART: usize = 128 << 10;

/// Names a message: its sender, its receiver and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub from: Rank,
    pub to: Rank,
    pub id: u64,
}

#[derive(Default)]
pub struct Payloads {
    /// Created by the first of the two ends, removed when the receiver has everything.
    queues: Mutex<HashMap<Key, Arc<ParcelQueue>>>,
}

impl Payloads {
    /// Sends one payload. `lost` returns an error once the receiver is lost.
    pub async fn send(
        &self,
        key: Key,
        bytes: &[u8],
        lost: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        if let Some(lost) = lost() {
            return Err(lost);
        }
        if bytes.is_empty() {
            return Ok(()); // Its receiver reads nothing and would not remove the queue.
        }
        let queue = self.queue(key);
        for part in bytes.chunks(PART) {
            let mut parcel = Some(Parcel { header: None, bytes: buffer::copied(part)? });
            poll_fn(|context| queue.poll_put(context, &mut parcel, || lost().is_some()))
                .await
                .map_err(|reason| lost().unwrap_or_else(|| gone(key.to, reason)))?;
        }
        Ok(())
    }

    /// Receives one payload. `lost` returns an error once the sender is lost.
    pub async fn recv(
        &self,
        key: Key,
        mut into: &mut [u8],
        lost: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let queue = self.queue(key);
        while !into.is_empty() {
            let parcel = poll_fn(|context| queue.poll_take(context, || lost().is_some()))
                .await
                .map_err(|reason| lost().unwrap_or_else(|| gone(key.from, reason)))?;
            let (now, rest) = into.split_at_mut(parcel.bytes.len());
            now.copy_from_slice(&parcel.bytes);
            into = rest;
        }
        self.lock().remove(&key);
        Ok(())
    }

    /// A rank sends and receives no more. The message queues of the others know it already.
    pub fn rank_gone(&self, rank: Rank, reason: Reason) {
        for (key, queue) in self.lock().iter() {
            if key.from == rank {
                queue.close_sender(reason);
            }
            if key.to == rank {
                queue.close_receiver(reason);
            }
        }
    }

    /// Has both ends of all queues check again whether the other end is lost.
    pub fn wake(&self) {
        self.lock().values().for_each(|queue| queue.wake_both());
    }

    fn queue(&self, key: Key) -> Arc<ParcelQueue> {
        Arc::clone(self.lock().entry(key).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<ParcelQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone(peer: Rank, reason: Option<Reason>) -> Error {
    Error::PeerLost { peer, how: reason.unwrap_or("cannot be reached").to_owned() }
}
