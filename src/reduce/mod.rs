//! Folds one array into another, for every data type and operator.
//!
//! Leaves to `collective` which arrays, in which order and when. Invariants:
//! - every operator is commutative to the last bit: a NaN result is always the canonical NaN
//!   and -0 < +0, so a result depends only on the grouping of the operands;
//! - floats of 8 and 16 bits are widened to f32, folded and rounded to nearest even; integers wrap;
//! - an array may begin at any address.

mod array;
mod dispatch;
mod element;
mod elements;
mod environment;
mod floats;
mod integers;
mod isa;
mod reducer;
mod small;
mod stores;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use dispatch::{
    finish, finishes, fold, fold_inline, identity, premultiply, prepare, prepare_inline, prepares,
};
pub use reducer::Side;
pub use stores::{Stores, copy, fold_into};

#[cfg(test)]
mod tests;
