//! Communicators over the memory mesh, all ranks on one thread: deterministic, without sockets.

mod capacity;
mod case;
mod collective;
mod fault;
mod message;
mod oracle;
mod traffic;
mod varying;
mod world;
