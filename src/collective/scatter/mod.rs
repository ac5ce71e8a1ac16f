//! Scatter: every rank gets its block of what the root has.

pub mod binomial;
pub mod flat;
pub mod linear;
