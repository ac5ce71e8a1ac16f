//! Reduce: the root gets the fold of all.

pub mod binomial;
pub mod pipeline;
