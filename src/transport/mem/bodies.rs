//! The bytes of announced messages between ranks of one process: a bounded queue for each.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer;
use crate::error::{Error, Result};
use crate::rank::Rank;

use super::super::Inbox;
use super::PART;
use super::queue::{Parcel, Queue, Reason};

/// Which message: its sender, its receiver and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Key {
    pub from: Rank,
    pub to: Rank,
    pub id: u64,
}

#[derive(Default)]
pub(in super::super) struct Bodies {
    /// Made by whoever of the two comes first, taken out when the receiver has all.
    queues: Mutex<HashMap<Key, Arc<Queue>>>,
}

impl Bodies {
    /// Sends from the rank whose inbox this is. `delay` is how long to hold back each part.
    pub async fn send(
        &self,
        key: Key,
        inbox: &Inbox,
        bytes: &[u8],
        delay: impl Fn() -> u32,
    ) -> Result<()> {
        let lost = || inbox.lost(key.to);
        if let Some(lost) = lost() {
            return Err(lost);
        }
        if bytes.is_empty() {
            return Ok(()); // Its receiver waits for nothing, and would leave a queue behind.
        }
        let queue = self.queue(key);
        for part in bytes.chunks(PART) {
            let bytes = buffer::copied(part)?;
            let mut parcel = Some(Parcel { header: None, bytes, delay: delay() });
            poll_fn(|context| queue.poll_put(context, &mut parcel, || lost().is_some()))
                .await
                .map_err(|reason| lost().unwrap_or_else(|| gone(key.to, reason)))?;
        }
        Ok(())
    }

    /// Receives on the rank whose inbox this is.
    pub async fn recv(&self, key: Key, inbox: &Inbox, mut into: &mut [u8]) -> Result<()> {
        let queue = self.queue(key);
        let lost = || inbox.lost(key.from);
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

    /// A rank sends and receives no more. The inboxes of the others know it already.
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

    /// Lets both ends of all queues look again. The inboxes know why.
    pub fn wake(&self) {
        self.lock().values().for_each(|queue| queue.wake_both());
    }

    fn queue(&self, key: Key) -> Arc<Queue> {
        Arc::clone(self.lock().entry(key).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone(peer: Rank, reason: Option<Reason>) -> Error {
    Error::PeerLost { peer, how: reason.unwrap_or("cannot be reached").to_owned() }
}
