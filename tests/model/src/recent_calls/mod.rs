//! The seqlock of recent calls (`recent_calls.rs`): a reader gets untorn calls with the sequence
//! numbers that it asks for, while the writer overwrites them.
//!
//! loom runs the file itself, with a capacity of two calls. A load returns any store that the
//! language allows, also a stale one. Two release/acquire pairs order the words of a call: that on
//! its stamp and that on `end`. Only the copies that lack both read torn calls. Without the pair on
//! `end` alone, a call may be missing.

#[path = "../../../../src/transport/recent_calls.rs"]
pub mod file;
pub mod scenarios;

include!(concat!(env!("OUT_DIR"), "/recent_calls.rs"));
