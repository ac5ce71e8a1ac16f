//! What this rank keeps for its messages with one other rank of its host, besides the ends of their
//! rings, which belong to the message queues.
//!
//! Leaves to `messages` how it is used. Invariant: each end of the payload slots has one user at a
//! time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::payload_slots::{SlotReader, SlotWriter};

#[derive(Default)]
pub struct MessagePair {
    /// Whether the peer has used its ring, as far as this rank knows. Before, its pages take no
    /// memory, and reading them would change that.
    pub is_opened: AtomicBool,
    /// How many messages of the peer's ring were consumed.
    pub consumed: AtomicU64,
    pub slot_writer: Mutex<SlotWriter>,
    pub slot_reader: Mutex<SlotReader>,
}
