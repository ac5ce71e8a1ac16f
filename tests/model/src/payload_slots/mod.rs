//! The slots of payloads (`payload_slots.rs`): the parts of payloads arrive whole and in order, and
//! no slot is overwritten before the receiver has consumed it.
//!
//! The file is built with one slot of eight bytes. Leaves the count of consumed parts, which
//! `segment` stores with release ordering, to the scenarios.

include!(concat!(env!("OUT_DIR"), "/payload_slots.rs"));
