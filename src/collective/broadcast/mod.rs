//! Broadcast: every rank gets the root's buffer.

pub mod binomial;
