//! | card       | reduce-scatter, pairwise                                                  |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in which every rank receives from one rank after another               |
//! | bytes sent | all blocks but this rank's own, each a message                            |
//! | scratch    | the input, unless the operator is the program's; in place a block more    |
//! | restricted | no                                                                        |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | operators that do not commute                                             |
//!
//! Each rank sends every other its block and folds what it receives in rank order. As all wait for
//! rank 0 first, large blocks arrive from one sender after another. n = 4, blocks sent:
//!
//! ```text
//! rank 0:  b1 b2 b3
//! rank 1:  b2 b3 b0
//! rank 2:  b3 b0 b1
//! rank 3:  b0 b1 b2
//! ```

use futures_util::future::try_join_all;
use tokio::try_join;

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;

/// `output` becomes this rank's block of the fold of all ranks' `input`.
pub async fn pairwise(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    blocks: &Blocks,
    input: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let me = exchange.me();
    let own = &input[blocks.get(me.rank.0)];
    let send_block = |peer: Rank| exchange.send(peer, 0, &input[blocks.get(peer.0)]);
    let sending = try_join_all((1..me.size).map(|k| send_block(me.after(k))));
    let folding = exchange.recv_fold_all(reducer, own, output);
    try_join!(sending, folding)?;
    Ok(())
}
