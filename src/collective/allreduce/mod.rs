//! All-reduce: every rank gets the fold of all.

pub mod flat;
pub mod hierarchical;
pub mod one_shot;
pub mod rabenseifner;
pub mod recursive_doubling;
pub mod ring;
pub mod rs_ag;
pub mod slices;
