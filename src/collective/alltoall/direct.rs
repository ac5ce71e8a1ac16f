//! | card       | all-to-all, direct                                                        |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1                                                                         |
//! | bytes sent | none; each rank reads its blocks from the memory of the others            |
//! | scratch    | a copy of the buffer, in place or if the system cannot read it            |
//! | restricted | ranks of one host that can read each other's memory, blocks of equal length |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one such host, large blocks of more than four ranks                    |
//!
//! Every rank publishes the address of its input, and reads its block from each other rank's by
//! process_vm_readv(2): one copy instead of two. n = 4, what rank 1 reads:
//!
//! ```text
//! rank 0:  . 1 . .
//! rank 2:  . 1 . .
//! rank 3:  . 1 . .
//! ```

use futures_util::future::try_join_all;

use crate::blocks::{self, Blocks};
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::error::{Error, Result};

/// Its step is that of no other algorithm, so that none is taken for it.
const STEP: usize = 1;

pub async fn direct(exchange: &Exchange<'_>, blocks: &Blocks, buffers: Buffers<'_>) -> Result<()> {
    let me = exchange.me();
    let own = blocks.get(me.rank.0);
    let is_apart = buffers.are_apart();
    let copied = match &buffers {
        Buffers::Apart { .. } => Vec::new(),
        Buffers::Shared { both } => passes::copied(both).await?,
    };
    let (input, output) = match buffers {
        Buffers::Apart { input, output } => (input, output),
        Buffers::Shared { both } => (&copied[..], both),
    };
    let mut epochs = exchange.epochs(STEP, 1);
    let readable;
    if !epochs.publish_address(0, input).await? {
        readable = passes::copied(input).await?;
        if !epochs.publish_address(0, &readable).await? {
            let what =
                "the peers can no longer read this process's memory: set NEXAR_SHM_DISABLE=1";
            return Err(Error::System(what.to_owned()));
        }
    }
    if is_apart {
        passes::copy(&input[own.clone()], &mut output[own.clone()]).await;
    }
    let peers = || (1..me.size).map(|distance| me.after(distance));
    let theirs: Vec<_> = peers().map(|peer| blocks.get(peer.0)).collect();
    let fetches = peers().zip(blocks::cut(output, &theirs));
    // Concurrent, so that blocks of ranks that have published are read while others are awaited.
    let fetch = |(peer, into)| epochs.read_remote(0, peer, input.len(), own.start, into);
    try_join_all(fetches.map(fetch)).await?;
    epochs.release(0);
    epochs.wait_released().await
}
