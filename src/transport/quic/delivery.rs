//! A fault reaches the peers before the program can exit.
//!
//! A program that prints its error and exits at once must not look like the culprit: its peers
//! would see it die before they learn of the fault that it reported. So a rank does two things with
//! a fault. It publishes it in the memory that it shares with its host, where it outlives the
//! process; a peer that sees a death looks there first. And every call that returns an error waits
//! until the peers know, for `DELIVERY` at most. A peer that learns of a fault sends it to all its
//! links, so its own frame is the acknowledgement of this rank's.
//!
//! Leaves to `context` what a fault is, and to `control_plane` how frames travel. Invariant: no
//! call waits longer than `DELIVERY`.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::rank::Rank;

use super::context_id::ContextId;
use super::control::Frame;
use super::mutex::lock;

/// How long a fault may keep the calls that report it from returning, from when it was learned.
/// Users are promised 50 ms; the rest is for the scheduler.
const DELIVERY: Duration = Duration::from_millis(40);

/// Where the ranks of one host publish their faults to each other.
pub trait PublishedFaults: Send + Sync {
    /// The longest frame that can be published.
    fn longest(&self) -> usize;

    /// Publishes the encoded fault of this rank's communicator, once.
    fn publish(&self, frame: &[u8]);

    /// What a rank of this host has published as its fault, if anything.
    fn published_by(&self, rank: Rank) -> Option<Vec<u8>>;
}

/// The delivery of the fault of one context: where it is published, and which members know of it.
pub(super) struct FaultDelivery {
    context: ContextId,
    /// When this rank learned of the fault.
    failed_at: OnceLock<Instant>,
    /// Members, by their ranks in the roster, that have reported a fault themselves.
    informed: Mutex<HashSet<Rank>>,
    /// Set once the ranks of this host share memory.
    published: OnceLock<Box<dyn PublishedFaults>>,
}

impl FaultDelivery {
    pub fn new(context: ContextId) -> Self {
        let (failed_at, published) = (OnceLock::new(), OnceLock::new());
        Self { context, failed_at, informed: Mutex::default(), published }
    }

    /// The context has failed. Must be called before the fault can be seen, because a call that
    /// reports it waits for its delivery.
    pub fn begin(&self) {
        let _ = self.failed_at.set(Instant::now());
    }

    /// Publishes faults to the ranks of this host from now on. True for the first caller, which
    /// must publish an earlier fault.
    pub fn publish_to(&self, published: Box<dyn PublishedFaults>) -> bool {
        self.published.set(published).is_ok()
    }

    /// Publishes the fault, if the ranks of this host share memory.
    pub fn publish(&self, fault: &Error) {
        if let Some(published) = self.published.get() {
            let frame = Frame::short_fault(self.context, fault, published.longest());
            published.publish(&frame.encode());
        }
    }

    /// The fault that a rank of this host has published, if any.
    pub fn published_by(&self, rank: Rank) -> Option<Error> {
        match Frame::first_of(&self.published.get()?.published_by(rank)?)? {
            (Frame::Fault { context, code, text }, []) if context == self.context => {
                Some(Error::Reported { code, text })
            }
            _ => None,
        }
    }

    /// A member of the roster knows that the communicator has failed: it has reported that itself.
    pub fn add_informed(&self, member: Rank) {
        lock(&self.informed).insert(member);
    }

    /// Whether the fault is still being delivered to one of these members: one that has not
    /// reported it and may still answer.
    pub fn is_under_way(&self, members: &[Rank], may_answer: impl Fn(Rank) -> bool) -> bool {
        let is_late = |at: &Instant| at.elapsed() >= DELIVERY;
        if self.failed_at.get().is_none_or(is_late) {
            return false;
        }
        let informed = lock(&self.informed);
        members.iter().any(|member| !informed.contains(member) && may_answer(*member))
    }
}
