//! Of `src/transport`, as much as `lane.rs` needs.

pub const LANES: usize = 1;

#[derive(Clone, Copy)]
pub struct Lane(pub usize);
