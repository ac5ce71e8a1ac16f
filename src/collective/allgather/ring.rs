//! | card       | all-gather, ring                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1                                                                     |
//! | bytes sent | n - 1 blocks per rank                                                     |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | always                                                                    |
//!
//! Each rank sends on to the right what it got from the left, its own block first. n = 4, block
//! sent in each step:
//!
//! ```text
//! rank 0:  b0   b3   b2
//! rank 1:  b1   b0   b3
//! rank 2:  b2   b1   b0
//! rank 3:  b3   b2   b1
//! ```

use tokio::try_join;

use crate::collective::exchange::{Exchange, two_parts};
use crate::error::Result;
use crate::transport::Mesh;

/// `blocks` holds all ranks' blocks of equal length; this rank's own is in its place already.
pub async fn ring<M: Mesh>(exchange: &Exchange<'_, M>, blocks: &mut [u8]) -> Result<()> {
    let place = exchange.place();
    let (left, right) = (place.before(1), place.after(1));
    let bytes = blocks.len() / place.size;
    let block = |index: usize| index * bytes..(index + 1) * bytes;

    for step in 0..place.size - 1 {
        let known = block(place.before(step).0);
        let next = block(place.before(step + 1).0);
        let (known, next) = two_parts(blocks, known, next);
        try_join!(exchange.send(right, step, known), exchange.recv(left, step, next))?;
    }
    Ok(())
}
