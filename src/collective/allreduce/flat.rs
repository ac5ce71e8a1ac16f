//! | card       | all-reduce, flat                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; each rank lays out its buffer and looks at all others               |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host, small buffers or few ranks                                   |
//!
//! Every rank lays out its share and folds the shares of all. n = 4, shares each rank folds:
//!
//! ```text
//! rank 0:  0 1 2 3
//! rank 1:  0 1 2 3
//! rank 2:  0 1 2 3
//! rank 3:  0 1 2 3
//! ```

use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{
    Shares, Turn, ahead, count, fold_all, load, look_at, others, own_and_output, part, stores,
    turns,
};
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::Side;
use crate::transport::SLOT;

pub async fn flat(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let size = place.size;
    let whole = 0..buffers.input().len();
    let (parts, stores) = (count(whole.len(), SLOT), stores(whole.len()));
    let shown = buffers.input_apart().filter(|_| !reducer.prepares(size));
    let mut rounds = exchange.rounds(0, parts);
    let mut scratch = Vec::new();
    for turn in turns(parts, ahead(place.size)) {
        match turn {
            Turn::Lay(number) => {
                let part = part(&whole, SLOT, number);
                if let Some(input) = shown {
                    rounds.show(number, &input[part]).await?;
                } else {
                    let share = &buffers.input()[part];
                    let fill = |slot: &mut [u8], stores| load(reducer, share, size, slot, stores);
                    rounds.lay(number, share.len(), fill).await?;
                }
            }
            Turn::Look(number) => {
                let part = part(&whole, SLOT, number);
                let sights = look_at(&rounds, number, others(place), part.len()).await?;
                let into = match (&mut buffers, &*sights) {
                    // Where it lies it is folded sooner than apart.
                    (Buffers::Shared { both }, [theirs]) if !reducer.prepares(size) => {
                        let side = Side::of(1 - place.rank.0, place.rank.0);
                        reducer.fold(&mut both[part.clone()], theirs, side);
                        &mut both[part]
                    }
                    _ => {
                        let (own, into) =
                            own_and_output(reducer, &mut buffers, part, size, &mut scratch);
                        let mut shares: Shares<'_> = sights.iter().map(|sight| &**sight).collect();
                        shares.insert(place.rank.0, own);
                        fold_all(reducer, &shares, into, stores);
                        into
                    }
                };
                reducer.finish(into, size);
                drop(sights);
                rounds.pass(number);
            }
        }
    }
    rounds.passed().await
}
