//! Gather: the root gets every block.

pub mod binomial;
pub mod flat;
pub mod linear;
