//! Barrier: no rank leaves before all have come.

pub mod dissemination;
