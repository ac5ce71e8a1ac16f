//! | card       | all-to-all, pairwise                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n, a few of them at once                                                  |
//! | bytes sent | all blocks but this rank's own, each a message                            |
//! | scratch    | none; in place a few blocks                                               |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | large blocks, and blocks that differ in length                            |
//!
//! In step k two ranks exchange their blocks if their sum is k modulo n. n = 4:
//!
//! ```text
//! step 0: 1 <-> 3   0   2     step 1: 0 <-> 1   2 <-> 3
//! step 2: 0 <-> 2   1   3     step 3: 0 <-> 3   1 <-> 2
//! ```

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::try_join;

use crate::blocks::{self, Blocks};
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::error::Result;
use crate::rank::Rank;

/// How many exchanges are under way at once.
const AT_ONCE: usize = 4;

pub async fn pairwise(
    exchange: &Exchange<'_>,
    sent: &Blocks,
    received: &Blocks,
    buffers: Buffers<'_>,
) -> Result<()> {
    let me = exchange.me();
    let ranges: Vec<_> = received.iter().collect();
    let (input, output) = match buffers {
        Buffers::Apart { input, output } => (Some(input), output),
        Buffers::Shared { both } => (None, both),
    };
    let mut parts = blocks::cut(output, &ranges).into_iter().enumerate().collect::<Vec<_>>();
    parts.sort_by_key(|(peer, _)| (me.rank.0 + peer) % me.size);

    let with_peer = |(peer, theirs)| exchange_blocks(exchange, sent, input, Rank(peer), theirs);
    stream::iter(parts).map(Ok).try_for_each_concurrent(AT_ONCE, with_peer).await
}

/// Sends a peer its block and receives this rank's block from it. In place, without an `input`,
/// both have the same memory.
async fn exchange_blocks(
    exchange: &Exchange<'_>,
    sent: &Blocks,
    input: Option<&[u8]>,
    peer: Rank,
    theirs: &mut [u8],
) -> Result<()> {
    let kept;
    let ours = match input {
        Some(input) => &input[sent.get(peer.0)],
        None => {
            kept = passes::copied(theirs).await?;
            &kept
        }
    };
    if peer == exchange.me().rank {
        passes::copy(ours, theirs).await;
        return Ok(());
    }
    try_join!(exchange.send(peer, 0, ours), exchange.recv(peer, 0, theirs))?;
    Ok(())
}
