//! | card       | all-to-all, flat                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; each rank lays out all blocks but its own, in columns               |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host, blocks of equal length                                 |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank copies the columns that the others have laid out for it. n = 4, columns of each slot:
//!
//! ```text
//! rank 0:     1 2 3
//! rank 1:  0    2 3
//! rank 2:  0 1    3
//! rank 3:  0 1 2
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{Columns, Turn, ahead, count, part, stores, turns};
use crate::error::Result;
use crate::reduce::copy;

pub async fn flat(
    exchange: &Exchange<'_>,
    blocks: &Blocks,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let columns = Columns::new(place.size, blocks.longest());
    let (parts, stores) = (count(blocks.longest(), columns.width), stores(blocks.extent()));
    let mut rounds = exchange.rounds(0, parts);
    for turn in turns(parts, ahead(place.size)) {
        match turn {
            Turn::Lay(number) => {
                let part_of = |rank: usize| part(&blocks.get(rank), columns.width, number);
                let used = columns.used(place.rank, |_| part_of(0).len());
                let fill = |slot: &mut [u8], stores| {
                    for peer in (1..place.size).map(|distance| place.after(distance)) {
                        let block = &buffers.input()[part_of(peer.0)];
                        let column = columns.column(place.rank, peer, block.len());
                        copy(&mut slot[column], block, stores);
                    }
                };
                rounds.lay(number, used, fill).await?;
                if let Buffers::Apart { input, output } = &mut buffers {
                    let own = part_of(place.rank.0);
                    copy(&mut output[own.clone()], &input[own], stores);
                }
            }
            Turn::Look(number) => {
                for peer in (1..place.size).map(|distance| place.after(distance)) {
                    let here = part(&blocks.get(peer.0), columns.width, number);
                    let used = columns.used(peer, |_| here.len());
                    let sight = rounds.look(number, peer, used).await?;
                    let column = columns.column(peer, place.rank, here.len());
                    copy(&mut buffers.output_mut()[here], &sight[column], stores);
                }
                rounds.pass(number);
            }
        }
    }
    Ok(())
}
