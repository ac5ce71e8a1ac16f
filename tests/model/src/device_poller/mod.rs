//! The poller of device memory (`poller.rs`): a thread that waits for a value of a device's word is
//! woken when the value is reached, whenever the thread registers. After its wait the word is not
//! read any more.
//!
//! loom runs the file itself and its thread, which ends with the scenario. Time stands still unless
//! a scenario calls `let_time_pass`. loom resumes a thread that yields only when all others are
//! blocked, so the poller's first two calls of `yield_now` do not yield.

#[path = "../../../../src/device/poller.rs"]
pub mod file;
pub mod scenarios;

include!(concat!(env!("OUT_DIR"), "/device_poller.rs"));
