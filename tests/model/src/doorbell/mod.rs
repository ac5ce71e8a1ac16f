//! The Dekker handshake of shared memory (`dekker.rs`): no wake-up is lost, neither with a full
//! fence on both sides nor with membarrier(2) on the sleeper's side alone.
//!
//! loom runs the file itself. It implements SeqCst fences as the language defines them, but treats
//! SeqCst accesses as AcqRel, which is weaker: the proof does not rely on them. `sync.rs` models
//! membarrier(2) and futexes. In the library a lost wake-up costs at most the sleeper's time limit;
//! here a sleep has no limit, and loom reports a deadlock. Not modelled: a compiler that moves the
//! writer's load before its store, which `compiler_fence` forbids. An interrupt between the two
//! would then order nothing.

#[path = "../../../../src/transport/shm/dekker.rs"]
pub mod file;
pub mod scenarios;

include!(concat!(env!("OUT_DIR"), "/doorbell.rs"));
