//! A fault reaches the peers before the program can exit.
//!
//! A program that prints its error and exits at once must not look like the culprit: its peers
//! would see it die before they hear of the fault that it reported. So a rank does two things with
//! a fault. It publishes it in the memory that it shares with its host, where it outlives the
//! process; a peer that sees a death looks there first. And every call that returns an error waits
//! until the peers know, for `DELIVERY` at most. A peer that learns of a fault sends it to all its
//! links, so its own frame is the acknowledgement of this rank's: there is no other.
//!
//! Leaves to `context` what a fault is, and to `spine` how frames travel.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::rank::Rank;

use super::context::Context;
use super::control::Frame;
use super::link::Link;
use super::{live, lock};

/// How long a fault may keep the calls that report it from returning, from when it was learned. Users
/// are promised 50 ms; the rest is for the scheduler.
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

impl Context {
    /// From now on faults are published to the ranks of this host, one that came before included.
    pub fn publish_faults(&self, published: impl PublishedFaults + 'static) {
        if self.published.set(Box::new(published)).is_ok()
            && let Some(fault) = self.fault()
        {
            self.publish(fault);
        }
    }

    pub(super) fn publish(&self, fault: &Error) {
        if let Some(published) = self.published.get() {
            let frame = Frame::short_fault(self.id, fault, published.longest());
            published.publish(&frame.encode());
        }
    }

    /// The fault that a rank of this host has published, if any.
    pub fn published_by(&self, rank: Rank) -> Option<Error> {
        match Frame::first_of(&self.published.get()?.published_by(rank)?)? {
            (Frame::Fault { context, code, text }, []) if context == self.id => {
                Some(Error::Told { code, text })
            }
            _ => None,
        }
    }

    /// A member of the roster knows that the communicator has failed: it has said so itself.
    pub fn note_informed(&self, member: Rank) {
        lock(&self.informed).insert(member);
    }

    /// Whether a fault is on its way to some member: one that is linked, has not said that it
    /// knows, and is not itself the culprit.
    fn is_delivering(&self) -> bool {
        let is_late = |at: &Instant| at.elapsed() >= DELIVERY;
        if self.failed_at.get().is_none_or(is_late) {
            return false;
        }
        let informed = lock(&self.informed);
        // A member that broke the protocol may never answer.
        let culprit = self.fault().and_then(Error::culprit);
        let may_answer =
            |link: Arc<Link>| !link.has_left(self.id) && link.connection.close_reason().is_none();
        self.members().iter().any(|member| {
            let uninformed = *member != self.links.place.rank && !informed.contains(member);
            let is_waited_for = uninformed && culprit != Some(*member);
            is_waited_for && self.links.peers[member.0].link().is_some_and(may_answer)
        })
    }
}

/// Whether a fault of this process is on its way to peers, which ends soon in any case.
pub fn is_delivering_faults() -> bool {
    let contexts: Vec<_> = live().iter().filter_map(Weak::upgrade).collect();
    contexts.iter().any(|context| context.is_delivering())
}
