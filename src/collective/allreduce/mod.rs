//! All-reduce: every rank gets the fold of all ranks' buffers.

pub mod recursive_doubling;
pub mod ring;
