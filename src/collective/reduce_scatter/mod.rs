//! Reduce-scatter: every rank gets its block of the fold of all.

pub mod flat;
pub mod pairwise;
pub mod recursive_halving;
pub mod ring;
