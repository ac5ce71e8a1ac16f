//! All-to-all: every rank gets a block from every rank.

pub mod bruck;
pub mod direct;
pub mod flat;
pub mod pairwise;
