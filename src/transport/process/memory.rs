//! The memory that processes of one host share, as collectives use it, and waiting for it.
//!
//! Leaves to `shm` the layout of the memory. Invariant: a wait ends when the awaited rank is lost
//! or the communicator has failed, but what was published before is still viewed.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::rank::Rank;

use super::super::host::{Attempt, HostMemory, Published, Readers, View};
use super::super::quic::Quic;
use super::super::shm::{Host, MOST_IN_PLACE, doorbell};
use super::super::{EncodedHeader, HAS_LEFT, Header, Hosts, Io, Lane};

/// How long to wait for the reason why a rank has left.
const NEWS_TIME: Duration = Duration::from_millis(200);

/// The reason that is given for a peer whose memory the system no longer reads.
const UNREADABLE: &str = "no longer lets this process read its memory";

pub(super) struct SharedMemory {
    pub quic: Arc<Quic>,
    pub host: Arc<Host>,
    pub hosts: Hosts,
}

impl SharedMemory {
    /// A wait until this rank, which may be `ahead` epochs ahead, may publish in an epoch. `None`
    /// if it may publish now.
    #[inline]
    fn await_slot(&self, lane: Lane, epoch: u64, ahead: u64) -> Option<Io<'_, Result<()>>> {
        let mut slow = self.host.awaited(lane, epoch, ahead, true)?;
        Some(Box::pin(async move {
            let host = &self.host;
            let needed = host.needed(lane, epoch, ahead);
            loop {
                self.until(slow, || host.has_released(lane, slow, needed)).await?;
                match host.awaited(lane, epoch, ahead, false) {
                    Some(next) => slow = next,
                    None => return Ok(()),
                }
            }
        }))
    }

    /// The index of a rank among those of this host.
    #[inline]
    fn index_of(&self, rank: Rank) -> usize {
        let mine = self.hosts.mine();
        match mine.get(rank.0) {
            Some(same) if *same == rank => rank.0,
            _ => mine.binary_search(&rank).expect("only memory of the host is viewed"),
        }
    }

    /// A wait until a rank has published in an epoch. `None` if it does within the spin limit.
    #[inline]
    fn await_publish(&self, lane: Lane, epoch: u64, index: usize) -> Option<Io<'_, Result<()>>> {
        let is_done = move || self.host.has(lane, epoch, index);
        match self.host.spin_until(is_done) {
            true => None,
            false => Some(Box::pin(self.until_later(index, is_done))),
        }
    }

    /// Waits until a rank of this host has stored what `is_done` reads.
    async fn until(&self, index: usize, is_done: impl Fn() -> bool) -> Result<()> {
        if self.host.spin_until(&is_done) {
            return Ok(());
        }
        self.until_later(index, is_done).await
    }

    /// As `until`, beyond the spin limit: the thread may sleep.
    async fn until_later(&self, index: usize, is_done: impl Fn() -> bool) -> Result<()> {
        let (context, peer) = (&self.quic.context, self.hosts.mine()[index]);
        let done = poll_fn(|context| match is_done() {
            true => Poll::Ready(Ok(true)),
            false if self.host.has_left(index) => Poll::Ready(Ok(false)),
            false => {
                doorbell::poll_again(context);
                Poll::Pending
            }
        });
        let waited = context.on_link(peer, context.while_there(peer, done)).await;
        match waited {
            // The rank may have stored it just before it left.
            _ if is_done() => Ok(()),
            Ok(_) => Err(why_gone(&self.quic, peer, HAS_LEFT).await),
            Err(error) => Err(error),
        }
    }

    /// The error of a rank that has published something else than this rank expects.
    fn unexpected(&self, peer: Rank, header: &Header, theirs: Option<Header>) -> Error {
        let me = self.quic.context.me.rank;
        match theirs.map(|theirs| header.check(me, peer, &theirs)) {
            Some(Err(error)) => error,
            _ => Error::Protocol { peer, what: "published a malformed header".to_owned() },
        }
    }
}

/// The error of a rank that is gone. If it has left because of a fault, the fault arrives over
/// its link, which takes longer. `otherwise`: the reason if none arrives.
async fn why_gone(quic: &Quic, peer: Rank, otherwise: &str) -> Error {
    let context = &quic.context;
    if let Some(fault) = context.published_by(peer) {
        return context.learn(fault);
    }
    let news = {
        let _inside = quic.runtime.enter();
        timeout(NEWS_TIME, context.gone(peer))
    };
    match context.or_fault(news).await {
        Ok(how) => context.lost(peer, how.unwrap_or_else(|_| otherwise.to_owned())),
        Err(fault) => fault,
    }
}

impl HostMemory for SharedMemory {
    fn begin_epochs(&self, lane: Lane, count: u64) -> u64 {
        self.host.begin_epochs(lane, count)
    }

    fn publish(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: &mut dyn FnMut(&mut [u8], Readers),
    ) -> Result<Attempt<'_, ()>> {
        if let Some(wait) = self.await_slot(lane, epoch, self.host.most_ahead(encoded.bytes())) {
            return Ok(Attempt::Wait(wait));
        }
        let readers = self.host.readers();
        self.host.publish(lane, epoch, encoded, |slot| fill(slot, readers));
        Ok(Attempt::Done(()))
    }

    fn publish_in_place<'a>(
        &'a self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &'a [u8],
    ) -> Result<Attempt<'a, Option<Published<'a>>>> {
        let Some(offset) = self.host.arena_offset(bytes) else { return Ok(Attempt::Done(None)) };
        if let Some(wait) = self.await_slot(lane, epoch, MOST_IN_PLACE) {
            return Ok(Attempt::Wait(wait));
        }
        self.host.publish_in_place(lane, epoch, encoded, offset);
        Ok(Attempt::Done(Some(Published::Shared)))
    }

    fn publish_address(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        bytes: &[u8],
    ) -> Result<Attempt<'_, bool>> {
        if !self.host.is_readable_by_peers(bytes) {
            return Ok(Attempt::Done(false));
        }
        if let Some(wait) = self.await_slot(lane, epoch, MOST_IN_PLACE) {
            return Ok(Attempt::Wait(wait));
        }
        self.host.publish_address(lane, epoch, encoded, bytes);
        Ok(Attempt::Done(true))
    }

    fn view(
        &self,
        lane: Lane,
        epoch: u64,
        at: Rank,
        encoded: &EncodedHeader,
    ) -> Result<Attempt<'_, View<'_>>> {
        let index = self.index_of(at);
        if let Some(wait) = self.await_publish(lane, epoch, index) {
            return Ok(Attempt::Wait(wait));
        }
        let found = self.host.view(lane, epoch, index, encoded);
        let bytes = found.map_err(|theirs| match theirs {
            None if self.host.lacks_arena(index) => Error::System(format!(
                "the memory that {at} shares cannot be mapped; a limit (ulimit -v) may be too low. \
                 Without nexarMemAlloc, or with NEXAR_SHM_DISABLE=1, it is not needed"
            )),
            theirs => self.unexpected(at, &encoded.header(), theirs),
        })?;
        Ok(Attempt::Done(View::Shared(bytes)))
    }

    fn read_remote(
        &self,
        lane: Lane,
        epoch: u64,
        from: Rank,
        encoded: &EncodedHeader,
        offset: usize,
        into: &mut [u8],
    ) -> Result<Attempt<'_, ()>> {
        let index = self.index_of(from);
        if let Some(wait) = self.await_publish(lane, epoch, index) {
            return Ok(Attempt::Wait(wait));
        }
        let published_address = self.host.published_address(lane, epoch, index, encoded);
        let address =
            published_address.map_err(|theirs| self.unexpected(from, &encoded.header(), theirs))?;
        match self.host.read(lane, index, address.saturating_add(offset as u64), into) {
            true => Ok(Attempt::Done(())),
            // Its process may have ended just now.
            false => Ok(Attempt::Wait(Box::pin(async move {
                Err(why_gone(&self.quic, from, UNREADABLE).await)
            }))),
        }
    }

    fn release(&self, lane: Lane, epoch: u64) {
        self.host.release(lane, epoch);
    }

    fn released(&self, lane: Lane, epoch: u64) -> Result<Attempt<'_, ()>> {
        let others = || (0..self.host.size()).filter(|index| *index != self.host.me());
        let has_released = |index: usize| self.host.has_released(lane, index, epoch + 1);
        if others().all(|index| self.host.spin_until(|| has_released(index))) {
            return Ok(Attempt::Done(()));
        }
        Ok(Attempt::Wait(Box::pin(async move {
            for index in 0..self.host.size() {
                let is_done =
                    || index == self.host.me() || self.host.has_released(lane, index, epoch + 1);
                let waited = self.until(index, is_done).await;
                // Before the program can overwrite what was published in place.
                waited.inspect_err(|_| self.host.give_up())?;
            }
            Ok(())
        })))
    }

    fn confirm(&self, lane: Lane) -> Attempt<'_, ()> {
        match self.host.rank_that_gave_up(lane) {
            None => Attempt::Done(()),
            Some(index) => Attempt::Wait(Box::pin(async move {
                Err(why_gone(&self.quic, self.hosts.mine()[index], HAS_LEFT).await)
            })),
        }
    }
}
