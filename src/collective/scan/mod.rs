//! Scan: every rank gets the fold of all ranks up to it, or before it.

pub mod chain;
pub mod flat;
pub mod hillis_steele;
pub mod pipeline;
