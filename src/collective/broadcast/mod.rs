//! Broadcast: every rank gets what the root has.

pub mod binomial;
pub mod pipeline;
