//! | card       | all-to-all of blocks that differ in length, each in its own epochs        |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in epochs                                                              |
//! | bytes sent | none; each rank publishes all blocks but its own                          |
//! | scratch    | a copy of the buffer, in place if blocks are read by their address        |
//! | restricted | ranks of one host, at most 4                                              |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host, blocks of at most 4 ranks that differ in length              |
//!
//! In each row of epochs a rank publishes a part of its block for the next rank, one of that for
//! the rank after it, and so on. n = 4, the blocks in the epochs of the first two rows, where the
//! block of rank 1 for rank 3 is the longest:
//!
//! ```text
//! rank 0:  1 2 3
//! rank 1:  2 3 0   . 3 .
//! rank 2:  3 0 1
//! rank 3:  0 1 2
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::paired::{Paired, exchange_paired};
use crate::collective::passes;
use crate::error::Result;

pub async fn paired(
    exchange: &Exchange<'_>,
    sent: &Blocks,
    received: &Blocks,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let me = exchange.me().rank.0;
    if let Buffers::Apart { input, output } = &mut buffers {
        passes::copy(&input[sent.get(me)], &mut output[received.get(me)]).await;
    }
    exchange_paired(exchange, Paired::AllToAll { sent, received }, buffers).await
}
