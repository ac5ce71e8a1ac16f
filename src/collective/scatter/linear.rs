//! | card       | scatter, linear                                                           |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in which the root sends to a few ranks at once                         |
//! | bytes sent | all blocks but its own by the root, each a message                        |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | large blocks, and blocks that differ in length                            |
//!
//! n = 4, root 0:
//!
//! ```text
//! 0 -> 1   0 -> 2   0 -> 3
//! ```

use futures_util::{TryStreamExt, stream};

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::error::Result;
use crate::rank::Rank;

/// The number of ranks to which the root sends at once.
const AT_ONCE: usize = 8;

/// The root sends the others their `blocks` of `input`. At other ranks, `own` becomes this rank's
/// block.
pub async fn linear(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    input: &[u8],
    own: &mut [u8],
) -> Result<()> {
    let me = exchange.me();
    if me.rank != root {
        return exchange.recv(root, 0, own).await;
    }
    let others = (1..me.size).map(|distance| Ok(me.after(distance)));
    let send = |peer: Rank| exchange.send(peer, 0, &input[blocks.get(peer.0)]);
    stream::iter(others).try_for_each_concurrent(AT_ONCE, send).await
}
