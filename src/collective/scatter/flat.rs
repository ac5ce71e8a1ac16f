//! | card       | scatter, flat                                                             |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; the root lays out all blocks but its own, in columns                |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, blocks of equal length                                 |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank copies the column that the root has laid out for it. n = 4, root 0:
//!
//! ```text
//! 0 -> 1 2 3
//! ```

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{Columns, count, part, stores};
use crate::error::Result;
use crate::rank::Rank;
use crate::reduce::copy;

/// `input`, at the root, has the blocks of all ranks; `own` becomes this rank's, except at the root.
pub async fn flat(
    exchange: &Exchange<'_>,
    root: Rank,
    blocks: &Blocks,
    input: &[u8],
    own: &mut [u8],
) -> Result<()> {
    let place = exchange.place();
    let columns = Columns::new(place.size, blocks.longest());
    let (bytes, stores) = (blocks.longest(), stores(blocks.longest()));
    let parts = count(bytes, columns.width);
    let mut rounds = exchange.rounds(0, parts);
    for number in 0..parts {
        let here = part(&(0..bytes), columns.width, number);
        let used = columns.used(root, |_| here.len());
        if place.rank == root {
            let fill = |slot: &mut [u8], stores| {
                for peer in (1..place.size).map(|distance| place.after(distance)) {
                    let block = &input[part(&blocks.get(peer.0), columns.width, number)];
                    let column = columns.column(root, peer, block.len());
                    copy(&mut slot[column], block, stores);
                }
            };
            rounds.lay(number, used, fill).await?;
        } else {
            let sight = rounds.look(number, root, used).await?;
            let column = columns.column(root, place.rank, here.len());
            copy(&mut own[here], &sight[column], stores);
        }
        rounds.pass(number);
    }
    Ok(())
}
