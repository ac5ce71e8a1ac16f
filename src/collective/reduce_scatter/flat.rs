//! | card       | reduce-scatter, flat                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; each rank lays out all blocks but its own, in columns               |
//! | scratch    | a part of a block                                                         |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host                                                               |
//!
//! Every rank folds its own block with the columns that the others have laid out for it. n = 4, columns of
//! each slot:
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
use crate::collective::rounds::{
    Columns, Shares, Turn, ahead, count, fold_all, load, look_at_each, others, own_and_block, part,
    stores, turns,
};
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;

pub async fn flat(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    blocks: &Blocks,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let columns = Columns::new(place.size, blocks.longest());
    let (parts, stores) =
        (count(blocks.longest(), columns.width), stores(blocks.get(place.rank.0).len()));
    let mut rounds = exchange.rounds(0, parts);
    let mut scratch = Vec::new();
    for turn in turns(parts, ahead(place.size)) {
        let part_of = |rank: Rank, number| part(&blocks.get(rank.0), columns.width, number);
        match turn {
            Turn::Lay(number) => {
                let used = columns.used(place.rank, |rank| part_of(rank, number).len());
                let fill = |slot: &mut [u8], stores| {
                    for rank in others(place) {
                        let share = &buffers.input()[part_of(rank, number)];
                        let column = columns.column(place.rank, rank, share.len());
                        if !share.is_empty() {
                            load(reducer, share, place.size, &mut slot[column], stores);
                        }
                    }
                };
                rounds.lay(number, used, fill).await?;
            }
            Turn::Look(number) => {
                let here = part_of(place.rank, number);
                let used = |rank| columns.used(rank, |of| part_of(of, number).len());
                let wanted = others(place).map(|rank| (rank, used(rank)));
                let sights = look_at_each(&rounds, number, wanted).await?;
                let column = |rank| columns.column(rank, place.rank, here.len());
                let (own, into) =
                    own_and_block(reducer, &mut buffers, blocks, here.clone(), place, &mut scratch);
                let mut shares: Shares<'_> = others(place)
                    .zip(&sights)
                    .map(|(rank, sight)| if into.is_empty() { &[] } else { &sight[column(rank)] })
                    .collect();
                shares.insert(place.rank.0, own);
                fold_all(reducer, &shares, into, stores);
                reducer.finish(into, place.size);
                drop(shares);
                drop(sights);
                rounds.pass(number);
            }
        }
    }
    Ok(())
}
