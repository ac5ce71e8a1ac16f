//! | card       | all-to-all, direct                                                        |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1                                                                         |
//! | bytes sent | none; each rank reads its blocks out of the memory of the others          |
//! | scratch    | a copy of the buffer, in place or if the system cannot read it            |
//! | restricted | ranks of one host that can read each other's memory, blocks of equal length |
//! | fold order | nothing is folded                                                         |
//! | chosen     | there, large blocks of more than four ranks                               |
//!
//! Every rank tells where its input lies, and has the system copy its block out of each other's. n = 4, what
//! rank 1 reads:
//!
//! ```text
//! rank 0:  . 1 . .
//! rank 2:  . 1 . .
//! rank 3:  . 1 . .
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::error::Result;
use crate::transport::Mesh;

/// The step of its round: no rank takes it for one of another algorithm.
const STEP: usize = 1;

pub async fn direct<M: Mesh>(
    exchange: &Exchange<'_, M>,
    blocks: &Blocks,
    buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let own = blocks.get(place.rank.0);
    let copied;
    let (input, output) = match buffers {
        Buffers::Apart { input, output } => {
            passes::copy(&input[own.clone()], &mut output[own.clone()]).await;
            (input, output)
        }
        Buffers::Shared { both } => {
            copied = passes::copied(both).await?;
            (&copied[..], both)
        }
    };
    let mut rounds = exchange.rounds(STEP, 1);
    let readable;
    if !rounds.expose(0, input).await? {
        readable = passes::copied(input).await?;
        rounds.expose(0, &readable).await?;
    }
    for peer in (1..place.size).map(|distance| place.after(distance)) {
        let into = &mut output[blocks.get(peer.0)];
        rounds.fetch(0, peer, input.len(), own.start, into).await?;
    }
    rounds.pass(0);
    rounds.passed().await
}
