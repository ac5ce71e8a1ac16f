//! | card       | all-reduce, slices                                                        |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds by twos                                                      |
//! | bytes sent | none; each rank lays out its buffer, and its slice of the result          |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host, large buffers of many ranks                                  |
//!
//! In one round every rank lays out a part of its share, in the next the slice of the result that it has
//! folded. So each element is folded once. n = 4, a part and its slices:
//!
//! ```text
//! rank 0 folds  a0 b0 c0 d0  of  a = a0 a1 a2 a3  (of rank 0),  b, c, d
//! rank 1 folds  a1 b1 c1 d1
//! ...           and all look at the four results
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{Turn, count, fold_all, load, look_at_all, part, stores, turns};
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::reduce::{Stores, copy};
use crate::transport::{Mesh, SLOT};

pub async fn slices<M: Mesh>(
    exchange: &Exchange<'_, M>,
    reducer: &Reducer,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let (place, element) = (exchange.place(), reducer.dtype().size());
    let whole = 0..buffers.input().len();
    let (parts, stores) = (count(whole.len(), SLOT), stores(whole.len()));
    let shows = buffers.are_apart() && !reducer.prepares(place.size);
    let mut rounds = exchange.rounds(0, 2 * parts);
    // Each part takes two rounds.
    for turn in turns(parts, 1) {
        match turn {
            Turn::Lay(number) => {
                let share = &buffers.input()[part(&whole, SLOT, number)];
                if shows {
                    rounds.show(2 * number, share).await?;
                } else {
                    let fill = |slot: &mut [u8]| load(reducer, share, place.size, slot);
                    rounds.lay(2 * number, share.len(), fill).await?;
                }
            }
            Turn::Look(number) => {
                let into = &mut buffers.output_mut()[part(&whole, SLOT, number)];
                let slices = Blocks::even(into.len() / element, element, place.size);
                let own = slices.get(place.rank.0);
                let sights = look_at_all(&rounds, 2 * number, place.size, into.len()).await?;
                let shares: Vec<&[u8]> = sights.iter().map(|sight| &sight[own.clone()]).collect();
                let fill = |slot: &mut [u8]| {
                    fold_all(reducer, &shares, slot, Stores::Cached);
                    reducer.finish(slot, place.size);
                };
                rounds.lay(2 * number + 1, own.len(), fill).await?;
                drop(sights);
                rounds.pass(2 * number);
                for (rank, slice) in slices.iter().enumerate() {
                    let result = rounds.look(2 * number + 1, Rank(rank), slice.len()).await?;
                    copy(&mut into[slice], &result, stores);
                }
                rounds.pass(2 * number + 1);
            }
        }
    }
    rounds.passed().await
}
