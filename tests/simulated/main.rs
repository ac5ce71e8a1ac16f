//! Communicators over the memory mesh, all ranks on one thread: deterministic, without sockets.

mod case;
mod collective;
mod fault;
mod message;
mod oracle;
mod traffic;
mod varying;
mod world;
