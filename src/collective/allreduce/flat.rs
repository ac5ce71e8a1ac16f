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
    AHEAD, Turn, count, fold_all, load, look_at_all, part, stores, turns,
};
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::transport::{Mesh, SLOT};

pub async fn flat<M: Mesh>(
    exchange: &Exchange<'_, M>,
    reducer: &Reducer,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let size = exchange.place().size;
    let whole = 0..buffers.input().len();
    let (parts, stores) = (count(whole.len(), SLOT), stores(whole.len()));
    let shows = buffers.are_apart() && !reducer.prepares(size);
    let mut rounds = exchange.rounds(0, parts);
    for turn in turns(parts, AHEAD) {
        match turn {
            Turn::Lay(number) => {
                let share = &buffers.input()[part(&whole, SLOT, number)];
                if shows {
                    rounds.show(number, share).await?;
                } else {
                    let fill = |slot: &mut [u8]| load(reducer, share, size, slot);
                    rounds.lay(number, share.len(), fill).await?;
                }
            }
            Turn::Look(number) => {
                let part = part(&whole, SLOT, number);
                let into = &mut buffers.output_mut()[part];
                if size == 2 {
                    // Most calls are small, and lists would take most of their time.
                    let left = rounds.look(number, Rank(0), into.len()).await?;
                    let right = rounds.look(number, Rank(1), into.len()).await?;
                    reducer.fold_into(into, &left, &right, stores);
                } else {
                    let sights = look_at_all(&rounds, number, size, into.len()).await?;
                    let shares: Vec<&[u8]> = sights.iter().map(|sight| &**sight).collect();
                    fold_all(reducer, &shares, into, stores);
                }
                reducer.finish(into, size);
                rounds.pass(number);
            }
        }
    }
    rounds.passed().await
}
