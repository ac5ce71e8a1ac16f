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
use crate::collective::rounds::{
    Shares, Turn, ahead, count, fold_all, load, look_at, others, own_and_output, part, stores,
    turns,
};
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

pub async fn slices(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let (place, element) = (exchange.place(), reducer.dtype().size());
    let whole = 0..buffers.input().len();
    let (parts, stores) = (count(whole.len(), SLOT), stores(whole.len()));
    let shown = buffers.input_apart().filter(|_| !reducer.prepares(place.size));
    let mut rounds = exchange.rounds(0, 2 * parts);
    let slices_of = |bytes: usize| Blocks::even(bytes / element, element, place.size);
    let mut scratch = Vec::new();
    // Each part takes two rounds.
    for turn in turns(parts, ahead(place.size) / 2) {
        match turn {
            Turn::Lay(number) => {
                let part = part(&whole, SLOT, number);
                if let Some(input) = shown {
                    rounds.show(2 * number, &input[part]).await?;
                } else {
                    let share = &buffers.input()[part];
                    // Nobody else folds this rank's own slice.
                    let own = slices_of(share.len()).get(place.rank.0);
                    let fill = |slot: &mut [u8], stores| {
                        for part in [0..own.start, own.end..share.len()] {
                            let (share, slot) = (&share[part.clone()], &mut slot[part]);
                            load(reducer, share, place.size, slot, stores);
                        }
                    };
                    rounds.lay(2 * number, share.len(), fill).await?;
                }
            }
            Turn::Look(number) => {
                let part = part(&whole, SLOT, number);
                let slices = slices_of(part.len());
                let slice_of = |rank: Rank| slices.get(rank.0);
                let own = slice_of(place.rank);
                let sights = look_at(&rounds, 2 * number, others(place), part.len()).await?;
                let here = part.start + own.start..part.start + own.end;
                let (share, into) =
                    own_and_output(reducer, &mut buffers, here, place.size, &mut scratch);
                let mut shares: Shares<'_> =
                    sights.iter().map(|sight| &sight[own.clone()]).collect();
                shares.insert(place.rank.0, share);
                fold_all(reducer, &shares, into, Stores::Cached);
                reducer.finish(into, place.size);
                drop(shares);
                drop(sights);
                let fill = |slot: &mut [u8], stores| copy(slot, into, stores);
                rounds.lay(2 * number + 1, own.len(), fill).await?;
                rounds.pass(2 * number);
                let into = &mut buffers.output_mut()[part];
                for rank in others(place) {
                    let slice = slice_of(rank);
                    let result = rounds.look(2 * number + 1, rank, slice.len()).await?;
                    copy(&mut into[slice], &result, stores);
                }
                rounds.pass(2 * number + 1);
            }
        }
    }
    rounds.passed().await
}
