//! | card       | gather, flat                                                              |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; each rank but the root lays out its block                           |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, blocks of equal length                                 |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! The root looks at the blocks of all others. n = 4, root 0:
//!
//! ```text
//! 1 2 3 -> 0
//! ```

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{count, part, stores};
use crate::error::Result;
use crate::rank::Rank;
use crate::reduce::copy;
use crate::transport::SLOT;

/// `own` is this rank's block; `output`, at the root, becomes the blocks of all others.
pub async fn flat(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    own: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let place = exchange.place();
    let (parts, stores) = (count(blocks.longest(), SLOT), stores(blocks.extent()));
    let mut rounds = exchange.rounds(0, parts);
    for number in 0..parts {
        if place.rank == root {
            for peer in (1..place.size).map(|distance| place.after(distance)) {
                let there = part(&blocks.get(peer.0), SLOT, number);
                let block = rounds.look(number, peer, there.len()).await?;
                copy(&mut output[there], &block, stores);
            }
        } else {
            let block = &own[part(&(0..own.len()), SLOT, number)];
            rounds.show(number, block).await?;
        }
        rounds.pass(number);
    }
    rounds.passed().await
}
