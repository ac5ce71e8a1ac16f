//! The poller of device memory (`poller.rs`): a thread that waits for a word is woken when the word
//! has come, whenever it registers, and the word is not read after its wait.
//!
//! loom runs the file itself, its thread included, which ends with the scenario. Time stands still
//! unless a scenario lets it pass. loom lets a thread that yields run only when all others wait, so
//! the poller's first two pauses are none.

#[path = "../../../../src/device/poller.rs"]
pub mod file;
pub mod scenarios;

include!(concat!(env!("OUT_DIR"), "/device_poller.rs"));
