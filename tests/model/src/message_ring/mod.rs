//! The ring of control messages (`message_ring.rs`): a message is read whole and in order, and no
//! line and no payload is overwritten before the receiver has consumed it.
//!
//! The file is built with two lines and room for one long payload, so that three messages use
//! everything again. `transport.rs` replaces the control messages, whose heads the ring does not
//! interpret. Leaves the count of consumed messages, which `segment` stores with release
//! ordering, to the scenarios, and the sleep of a receiver to `doorbell`.

include!(concat!(env!("OUT_DIR"), "/message_ring.rs"));
