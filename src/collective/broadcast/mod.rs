//! Broadcast: every rank gets what the root has.

pub mod binomial;
pub mod flat;
pub mod hierarchical;
pub mod pipeline;
