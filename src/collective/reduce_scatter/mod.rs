//! Reduce-scatter: rank i gets block i of the fold of all ranks' buffers.

pub mod ring;
