//! Splits: communicators created from the ranks of another.
//!
//! Every rank sends its color and key to all others. The ranks of one color, ordered by key, then
//! form a communicator of their own, which shares the links of its parent. Leaves to the mesh how
//! they connect. Invariant: the new communicator is determined by the colors and keys alone, so the
//! ranks need no further exchange to agree on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use tracing::info;

use crate::config::Config;
use crate::error::{Doing, Error, Result};
use crate::op::{Call, Op};
use crate::rank::Rank;
use crate::transport::Split;

use super::cuda::Prepared;
use super::run::{Batch, Operation, Ticket, Work, collective, with_issue_lock};
use super::{Communicator, hosts};

/// Bytes of a color (-1: none) and a key on the wire, little endian.
const COLOR_KEY_BYTES: usize = 8;

/// The arguments of a rank in a split. Without a color it gets no new communicator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColorKey {
    pub color: Option<u32>,
    pub key: i32,
}

/// One rank's part in the split of a communicator.
pub struct SplitRequest {
    pub communicator: Arc<Communicator>,
    pub color_key: ColorKey,
    /// The settings of the new communicator.
    pub config: Config,
}

/// Splits communicators concurrently. Returns the new communicator of each request, or `None` if
/// the request has no color. A request whose creation succeeds returns its communicator even if
/// others fail: its peers may wait for this rank there.
pub fn split(requests: &[SplitRequest]) -> Vec<Result<Option<Arc<Communicator>>>> {
    let outcomes: Vec<_> = requests.iter().map(|_| OnceLock::new()).collect();
    // Before any color is sent: no rank starts a call on the new communicator before all have their
    // pinned memory.
    let prepared: Vec<_> = requests.iter().map(SplitRequest::prepare).collect();
    let mut batch = Batch::default();
    let issued: Vec<_> = with_issue_lock(|| {
        let all = requests.iter().zip(prepared).zip(&outcomes);
        all.map(|((request, prepared), outcome)| {
            let communicator = Arc::clone(&request.communicator);
            let splitting = Splitting { request, prepared, outcome };
            batch.add(communicator, Work::Other(Box::new(splitting)))
        })
        .collect()
    });
    let mut executed = batch.run_each().into_iter();
    let result = |(issued, outcome): (Result<()>, OnceLock<_>)| {
        issued?;
        executed.next().expect("every issued split was executed")?;
        outcome.into_inner().expect("a split that succeeds has an outcome")
    };
    issued.into_iter().zip(outcomes).map(result).collect()
}

/// A split as an operation, which sets `outcome`.
struct Splitting<'a> {
    request: &'a SplitRequest,
    prepared: Prepared,
    outcome: &'a OnceLock<Result<Option<Arc<Communicator>>>>,
}

impl Operation for Splitting<'_> {
    fn begin(&self, communicator: Arc<Communicator>) -> Result<Ticket> {
        Ticket::of_call(communicator, Call::split())
    }

    fn describe(&self) -> String {
        Call::split().to_string()
    }

    fn perform<'t>(
        self: Box<Self>,
        ticket: &'t Ticket,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + 't>>
    where
        Self: 't,
    {
        Box::pin((*self).execute(ticket))
    }
}

impl Splitting<'_> {
    /// The call on the parent completes when the colors and keys are known. A new communicator that
    /// cannot be created is no failure of its parent.
    async fn execute(self, ticket: &Ticket) -> Result<()> {
        let Doing::Collective { seq, .. } = ticket.doing else {
            unreachable!("a split has a sequence number")
        };
        let mut colors_and_keys = self.request.colors_and_keys();
        // Keeps the parent's links open until the new communicator, which uses them, is created.
        let _running = ticket.communicator.keep_running();
        let mut split = Op::split(&mut colors_and_keys, ticket.communicator.me().size);
        let known = ticket.end(collective(ticket, &mut split, None).await);
        if let (Err(fault), Some(color)) = (&known, self.request.color_key.color) {
            ticket.communicator.mesh.membership.renounce(seq, color, fault.clone());
        }
        known?;
        let created = self.request.create(seq, &colors_and_keys, self.prepared).await;
        let _ = self.outcome.set(created);
        Ok(())
    }
}

impl SplitRequest {
    /// Prepares this rank's device for the new communicator, if the rank will be a member.
    fn prepare(&self) -> Prepared {
        let device = self.color_key.color.and_then(|_| self.communicator.device());
        Prepared::new(Ok(device), &self.config)
    }

    /// A buffer for the colors and keys of all ranks, with this rank's own.
    fn colors_and_keys(&self) -> Vec<u8> {
        let me = self.communicator.me();
        let mut all = vec![0; me.size * COLOR_KEY_BYTES];
        let own = me.rank.0 * COLOR_KEY_BYTES;
        all[own..own + COLOR_KEY_BYTES].copy_from_slice(&self.color_key.encode());
        all
    }

    /// Creates the communicator that the colors and keys of call `seq` determine, within the
    /// timeout of initialisation. Fails if the parent fails or is aborted meanwhile.
    async fn create(
        &self,
        seq: u64,
        colors_and_keys: &[u8],
        prepared: Prepared,
    ) -> Result<Option<Arc<Communicator>>> {
        let Some(color) = self.color_key.color else { return Ok(None) };
        let parent = &self.communicator;
        let all = colors_and_keys.chunks_exact(COLOR_KEY_BYTES).map(ColorKey::decode);
        let members = members(&all.collect::<Vec<_>>(), color);
        let mut mesh = parent.mesh.membership.split(Split { seq, color, members })?;
        if let Some(failure) = prepared.failure(mesh.me.rank) {
            return Err(mesh.membership.fail(failure));
        }
        let limit = self.config.init_timeout;
        let connecting = Box::pin(hosts::connect(&mut mesh));
        let connected = match parent.mesh.membership.forming() {
            Some(parent) => parent.within(limit, connecting).await,
            None => Ok(Some(connecting.await)),
        };
        let connected = match connected {
            Ok(Some(connected)) => connected,
            Ok(None) => {
                let blame = mesh.why_incomplete();
                Err(Error::Timeout { limit_ms: limit.as_millis(), blame })
            }
            Err(fault) => {
                mesh.membership.fail(fault.clone());
                return Err(parent.as_reported(fault));
            }
        };
        if let Err(error) = connected {
            // Another rank may have failed the new mesh because the parent failed, before this rank
            // has noticed the latter.
            if let Some(fault) = parent.fault() {
                mesh.membership.fail(fault.clone());
                return Err(parent.as_reported(fault));
            }
            // A communicator that another rank has failed meanwhile is returned all the same: its
            // calls report that fault.
            if mesh.membership.fault().is_none() {
                return Err(mesh.membership.fail(error));
            }
        }
        let own_name = || format!("{}/{color}", parent.name);
        let name = self.config.name.clone().unwrap_or_else(own_name);
        let me = mesh.me;
        let rank = me.rank;
        info!(rank = rank.0 as u64, "communicator {name}: {rank} of {}", me.size);
        let created = Communicator::new(&name, mesh, &self.config)?;
        Ok(Some(prepared.attach_to(created)))
    }
}

/// The ranks of a color in their new order: by key, and by rank among equal keys.
fn members(all: &[ColorKey], color: u32) -> Vec<Rank> {
    let of_color = all.iter().enumerate().filter(|(_, one)| one.color == Some(color));
    let mut members: Vec<_> = of_color.map(|(rank, one)| (one.key, Rank(rank))).collect();
    members.sort_unstable();
    members.into_iter().map(|(_, rank)| rank).collect()
}

impl ColorKey {
    pub fn encode(self) -> [u8; COLOR_KEY_BYTES] {
        // Colors are below 2^31, so -1 can stand for none.
        let color = self.color.map_or(-1, |color| color as i32).to_le_bytes();
        let key = self.key.to_le_bytes();
        std::array::from_fn(|i| if i < 4 { color[i] } else { key[i - 4] })
    }

    pub fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| i32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self { color: u32::try_from(number(0)).ok(), key: number(4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_and_a_key_are_decoded_as_they_were_encoded() {
        for color in [None, Some(0), Some(7), Some(i32::MAX as u32)] {
            for key in [i32::MIN, -1, 0, i32::MAX] {
                let color_key = ColorKey { color, key };
                assert_eq!(ColorKey::decode(&color_key.encode()), color_key);
            }
        }
    }

    #[test]
    fn members_are_those_of_the_color_by_key_and_then_by_rank() {
        let one = |color, key| ColorKey { color, key };
        let all =
            [one(Some(1), 5), one(None, 0), one(Some(1), -3), one(Some(2), 0), one(Some(1), 5)];
        assert_eq!(members(&all, 1), [Rank(2), Rank(0), Rank(4)]);
        assert_eq!(members(&all, 2), [Rank(3)]);
    }
}
