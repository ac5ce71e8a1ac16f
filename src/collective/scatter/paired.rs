//! | card       | scatter of blocks that differ in length, each in its own epochs           |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; the root publishes all blocks but its own                           |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, at most 4                                              |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host, blocks of at most 4 ranks that differ in length              |
//!
//! In each row of epochs the root publishes a part of the block for the next rank, one of that for
//! the rank after it, and so on. n = 4, root 0, the blocks in the epochs of the first two rows,
//! where the block for rank 2 is the longest:
//!
//! ```text
//! rank 0:  1 2 3   . 2 .
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::paired::{Paired, exchange_paired};
use crate::error::Result;
use crate::rank::Rank;

/// The root publishes its `blocks` of `input`. At other ranks, `own` becomes this rank's block.
pub async fn paired(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    input: &[u8],
    own: &mut [u8],
) -> Result<()> {
    // The root has copied its own block.
    let output = if exchange.me().rank == root { &mut [] } else { own };
    let paired = Paired::Scatter { root, sent: blocks };
    exchange_paired(exchange, paired, Buffers::Apart { input, output }).await
}
