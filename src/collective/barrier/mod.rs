//! Barrier: no rank leaves before all have come.

pub mod dissemination;
pub mod flat;
pub mod hierarchical;
