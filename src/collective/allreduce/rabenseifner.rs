//! | card       | all-reduce, Rabenseifner's                                                |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 2 log2 p, and 2 more if n > p, where p is the largest power of two <= n   |
//! | bytes sent | 2 (p - 1) / p of the buffer; if n > p one buffer more by the odd rank of  |
//! |            | a pair, one in all by the even one. A message per step                    |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | neighbouring groups: ((0 1)(2 3))((4 5)(6 7)); a pair is one: ((0 1)2)(3 4) |
//! | chosen     | buffers of middle size; large ones if the operator does not commute       |
//!
//! Groups of 1, 2, 4, ... ranks exchange the half of their part that the other keeps, so that parts
//! halve while groups double; then the same steps backwards gather the parts. Pairs as in recursive
//! doubling. n = 4, quarters kept:
//!
//! ```text
//! 0 <-> 1   2 <-> 3     rank 0: 0 1   rank 1: 2 3   rank 2: 0 1   rank 3: 2 3
//! 0 <-> 2   1 <-> 3     rank 0: 0     rank 1: 2     rank 2: 1     rank 3: 3
//! ```

use std::ops::Range;

use tokio::try_join;

use crate::blocks::two_parts;
use crate::collective::exchange::Exchange;
use crate::collective::pairs::{Pairs, Part};
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::Side;

pub async fn rabenseifner(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    data: &mut [u8],
) -> Result<()> {
    let pairs = Pairs::new(exchange.me());
    let halvings = pairs.halvings();
    let last_step = 2 * halvings + 1;
    let (me, partner) = match pairs.fold_shares(exchange, reducer, data).await? {
        Part::Idle { partner } => return exchange.recv(partner, last_step, data).await,
        Part::Active { virtual_rank, partner } => (virtual_rank, partner),
    };

    let parts = parts(me, halvings, data.len(), reducer.dtype().size());
    for (index, (kept, given)) in parts.iter().enumerate() {
        let other = me ^ (1 << index);
        let (peer, side) = (pairs.rank(other), Side::of(other, me));
        let (kept, given) = two_parts(data, kept, given);
        try_join!(
            exchange.send(peer, 1 + index, given),
            exchange.recv_fold(peer, 1 + index, reducer, side, kept)
        )?;
    }
    for (index, (kept, given)) in parts.iter().enumerate().rev() {
        let (peer, step) = (pairs.rank(me ^ (1 << index)), 2 * halvings - index);
        let (kept, given) = two_parts(data, kept, given);
        try_join!(exchange.send(peer, step, kept), exchange.recv(peer, step, given))?;
    }

    match partner {
        Some(partner) => exchange.send(partner, last_step, data).await,
        None => Ok(()),
    }
}

/// The part of its range that a rank keeps, and the part that it sends away, in each step.
fn parts(
    virtual_rank: usize,
    halvings: usize,
    bytes: usize,
    element: usize,
) -> Vec<(Range<usize>, Range<usize>)> {
    let mut part = 0..bytes;
    let halve = |index: usize| {
        let middle = part.start + (part.len() / element).div_ceil(2) * element;
        let (low, high) = (part.start..middle, middle..part.end);
        let lower = virtual_rank & (1_usize << index) == 0;
        let (kept, given) = if lower { (low, high) } else { (high, low) };
        part = kept.clone();
        (kept, given)
    };
    (0..halvings).map(halve).collect()
}
