//! | card       | gather of blocks that differ in length, flat                              |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank but the root publishes its block                          |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host, blocks that differ in length                                 |
//!
//! Every rank but the root publishes its block, part by part, with the length of the whole in the
//! header of each part. A rank whose block is short returns without waiting for the root. n = 4,
//! root 0, where the block of rank 3 is the longest:
//!
//! ```text
//!     part 0    part 1
//! 1:  1
//! 2:  2
//! 3:  3         3
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::paired::{Paired, exchange_paired};
use crate::error::Result;
use crate::rank::Rank;

/// At the root, `output` becomes all `blocks`; its own is in it already. At other ranks, `own` is
/// published.
pub async fn flat_v(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    own: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let paired = Paired::Gather { root, received: blocks };
    exchange_paired(exchange, paired, Buffers::Apart { input: own, output }).await
}
