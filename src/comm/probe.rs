//! Probes: operations that look for a message and leave it where it is.
//!
//! Leaves to `messaging` what a probe finds. Invariants: a probe that waits is an operation like a
//! receive, with the same order, deadline and failures; one that does not wait is not delayed by
//! other operations either.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Result;
use crate::message::{Envelope, MessageCall, Wanted};
use crate::messaging;
use crate::rank::Rank;
use crate::transport::Peers;

use super::Communicator;
use super::run::{Operation, Ticket, Work, run_alone};

/// Source and envelope of the first message that a receive would find. `waits`: whether to wait
/// until there is one, instead of returning `None`.
pub fn probe(
    communicator: Arc<Communicator>,
    wanted: Wanted,
    waits: bool,
) -> Result<Option<(Rank, Envelope)>> {
    let mut found = None;
    run_alone(communicator, Work::Other(Box::new(Probing { wanted, waits, found: &mut found })))?;
    Ok(found)
}

/// As `probe`, as a future without a deadline.
#[cfg(feature = "testing")]
pub async fn probe_async(
    communicator: &Arc<Communicator>,
    wanted: Wanted,
    waits: bool,
) -> Result<Option<(Rank, Envelope)>> {
    let mut found = None;
    let probing = Probing { wanted, waits, found: &mut found };
    communicator.run_async(Work::Other(Box::new(probing))).await?;
    Ok(found)
}

/// A probe as an operation, which sets `found`.
struct Probing<'a> {
    wanted: Wanted,
    waits: bool,
    found: &'a mut Option<(Rank, Envelope)>,
}

impl Operation for Probing<'_> {
    fn begin(&self, communicator: Arc<Communicator>) -> Result<Ticket> {
        let call = MessageCall::Probe(self.wanted);
        match self.waits {
            true => Ticket::of_message(communicator, call),
            false => Ticket::of_unordered(communicator, call),
        }
    }

    fn describe(&self) -> String {
        MessageCall::Probe(self.wanted).to_string()
    }

    fn message(&self) -> Option<Peers> {
        Some(self.wanted.source.map_or(Peers::Any, Peers::One))
    }

    fn perform<'t>(
        self: Box<Self>,
        ticket: &'t Ticket,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + 't>>
    where
        Self: 't,
    {
        Box::pin(async move {
            let Self { wanted, waits, found } = *self;
            let mesh = &ticket.communicator.mesh;
            *found = match waits {
                true => Some(messaging::probe(mesh, wanted).await?),
                false => messaging::probe_now(mesh, wanted).await?,
            };
            Ok(())
        })
    }
}
