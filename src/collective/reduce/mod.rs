//! Reduce: the root gets the fold of all ranks' buffers.

pub mod binomial;
