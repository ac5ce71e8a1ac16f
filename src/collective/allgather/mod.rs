//! All-gather: every rank gets every block.

pub mod bruck;
pub mod flat;
pub mod ring;
