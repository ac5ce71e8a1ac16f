//! | card       | gather, linear                                                            |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in which the root receives from a few ranks at once                    |
//! | bytes sent | one block by each rank but the root, a message                            |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | large blocks, and blocks that differ in length                            |
//!
//! n = 4, root 0:
//!
//! ```text
//! 1 -> 0   2 -> 0   3 -> 0
//! ```

use futures_util::{TryStreamExt, stream};

use crate::blocks::{self, Blocks};
use crate::collective::exchange::Exchange;
use crate::error::Result;
use crate::rank::Rank;

/// The number of ranks from which the root receives at once.
const AT_ONCE: usize = 8;

/// At the root, `output` becomes all `blocks`; its own is in it already. At other ranks, `own` is
/// sent.
pub async fn linear(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    own: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let me = exchange.me().rank;
    if me != root {
        return exchange.send(root, 0, own).await;
    }
    let ranges: Vec<_> = blocks.iter().collect();
    let parts = blocks::cut(output, &ranges).into_iter().enumerate();
    let others = parts.filter(|(peer, _)| Rank(*peer) != me);
    stream::iter(others.map(Ok))
        .try_for_each_concurrent(AT_ONCE, async |(peer, part)| {
            exchange.recv(Rank(peer), 0, part).await
        })
        .await
}
