//! What this rank keeps for its messages with one other rank of its host: its ends of the two rings
//! and of the payload slots.
//!
//! Leaves to `messages` how they are used. Invariant: each end has one user at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::message_ring::{RingReader, RingWriter};
use super::payload_slots::{SlotReader, SlotWriter};

/// The ends of the rings and payload slots between this rank and another of its host.
#[derive(Default)]
pub struct MessagePair {
    pub writer: Mutex<RingWriter>,
    pub reader: Mutex<RingReader>,
    /// Whether the peer has used its ring, as far as this rank knows. Before, its pages take no
    /// memory, and reading them would change that.
    pub is_opened: AtomicBool,
    /// How many messages the reader has consumed, for polls without its lock.
    pub consumed: AtomicU64,
    pub slot_writer: Mutex<SlotWriter>,
    pub slot_reader: Mutex<SlotReader>,
}
