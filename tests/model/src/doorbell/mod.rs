//! The Dekker handshake of shared memory (`dekker.rs`): a wake-up is never lost, with a full fence
//! on both sides and with membarrier(2) on the sleeper's side alone.
//!
//! loom runs the file itself. Its SeqCst fences are those of the language; its SeqCst accesses
//! count as AcqRel, which is weaker, so nothing is proved by them. `sync.rs` has the model of
//! membarrier(2) and of futexes. In the library a lost wake-up costs at most the sleeper's limit;
//! here sleep has no limit, and loom reports a deadlock. Not modelled: a compiler that moves the
//! writer's load before its store, which `compiler_fence` forbids; an interrupt between the two
//! would then order nothing.

#[path = "../../../../src/transport/shm/dekker.rs"]
pub mod file;
pub mod scenarios;

include!(concat!(env!("OUT_DIR"), "/doorbell.rs"));
