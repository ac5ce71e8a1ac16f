//! Communicators over the memory mesh, all ranks on one thread: no sockets, no clock, no chance.

mod case;
mod collective;
mod fault;
mod message;
mod oracle;
mod traffic;
mod world;
