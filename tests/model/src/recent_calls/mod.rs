//! The seqlock of recent calls (`recent_calls.rs`): a reader gets whole calls of the numbers that
//! it asks for, while the writer goes on and overwrites them.
//!
//! loom runs the file itself, with room for two calls. Its loads return every store that the
//! language allows, stale ones too. Two release/acquire pairs order the words of a call, that of
//! its stamp and that of `end`. Only the copies without both have torn calls; without the one of
//! `end` alone a call may be missing.

#[path = "../../../../src/transport/recent_calls.rs"]
pub mod file;
pub mod scenarios;

include!(concat!(env!("OUT_DIR"), "/recent_calls.rs"));
