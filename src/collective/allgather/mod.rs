//! All-gather: every rank gets all ranks' blocks, in rank order.

pub mod ring;
