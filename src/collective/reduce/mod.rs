//! Reduce: the root gets the fold of all.

pub mod binomial;
pub mod flat;
pub mod hierarchical;
pub mod pipeline;
