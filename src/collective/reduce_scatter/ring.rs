//! | card       | reduce-scatter, ring                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1                                                                     |
//! | bytes sent | n - 1 blocks per rank                                                     |
//! | scratch    | two blocks                                                                |
//! | restricted | no                                                                        |
//! | fold order | block b: ranks b+1, b+2, ..., round the ring, b last                      |
//! | chosen     | always                                                                    |
//!
//! Block b starts at rank b+1 and travels round the ring, growing by each rank's share, until it
//! is complete at rank b. n = 4, block sent in each step:
//!
//! ```text
//! rank 0:  b3   b2   b1
//! rank 1:  b0   b3   b2
//! rank 2:  b1   b0   b3
//! rank 3:  b2   b1   b0
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::error::Result;
use crate::op::Fold;
use crate::transport::Mesh;

/// `load(i, into)` writes this rank's share of block `i`. `partial` and `next` are two blocks of
/// memory; at the end `partial` holds this rank's block of the result.
pub async fn ring<M: Mesh>(
    exchange: &Exchange<'_, M>,
    fold: Fold,
    load: impl Fn(usize, &mut [u8]),
    partial: &mut Vec<u8>,
    next: &mut Vec<u8>,
) -> Result<()> {
    let place = exchange.place();
    let (left, right) = (place.before(1), place.after(1));

    load(left.0, partial);
    for step in 0..place.size - 1 {
        load(place.before(step + 2).0, next);
        try_join!(exchange.send(right, step, partial), exchange.recv_fold(left, step, fold, next))?;
        std::mem::swap(partial, next);
    }
    Ok(())
}
