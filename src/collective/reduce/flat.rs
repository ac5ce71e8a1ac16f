//! | card       | reduce, flat                                                              |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; each rank but the root lays out its buffer                          |
//! | scratch    | a part of the root's buffer, if it must be prepared or is in place        |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host                                                               |
//!
//! The root folds what all others have laid out. n = 4, root 0:
//!
//! ```text
//! 1 2 3 -> 0
//! ```

use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{
    Shares, count, fold_all, load, look_at, others, own_and_output, part, stores,
};
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::transport::SLOT;

pub async fn flat(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    root: Rank,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let whole = 0..buffers.input().len();
    let (parts, stores) = (count(whole.len(), SLOT), stores(whole.len()));
    let mut rounds = exchange.rounds(0, parts);
    let mut scratch = Vec::new();
    let part_of = |number| part(&whole, SLOT, number);
    if place.rank != root {
        let input = buffers.input();
        for number in 0..parts {
            let share = &input[part_of(number)];
            if reducer.prepares(place.size) {
                let fill = |slot: &mut [u8], stores| load(reducer, share, place.size, slot, stores);
                rounds.lay(number, share.len(), fill).await?;
            } else {
                rounds.show(number, share).await?;
            }
            rounds.pass(number);
        }
        return rounds.passed().await;
    }
    for number in 0..parts {
        let part = part_of(number);
        let sights = look_at(&rounds, number, others(place), part.len()).await?;
        let (own, into) = own_and_output(reducer, &mut buffers, part, place.size, &mut scratch);
        let mut shares: Shares<'_> = sights.iter().map(|sight| &**sight).collect();
        shares.insert(root.0, own);
        fold_all(reducer, &shares, into, stores);
        reducer.finish(into, place.size);
        drop(shares);
        drop(sights);
        rounds.pass(number);
    }
    Ok(())
}
