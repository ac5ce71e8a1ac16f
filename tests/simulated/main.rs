//! Communicators over the memory mesh, all ranks on one thread: no sockets, no clock, no chance.

mod collective;
mod fault;
mod world;
