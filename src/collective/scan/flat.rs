//! | card       | scan and exclusive scan, flat                                             |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; each rank but the last lays out its buffer                          |
//! | scratch    | a part of the buffer                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host, small buffers of few ranks                                   |
//!
//! Every rank folds the shares of all ranks before it with its own. n = 4, shares each rank folds:
//!
//! ```text
//! rank 0:  0
//! rank 1:  0 1
//! rank 2:  0 1 2
//! rank 3:  0 1 2 3
//! ```

use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{
    Shares, count, fold_all, load, look_at, own_and_output, part, stores,
};
use crate::collective::scan::shares::{Scanned, folding};
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::transport::SLOT;

pub async fn flat(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    scanned: Scanned,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let whole = 0..buffers.input().len();
    let (parts, stores) = (count(whole.len(), SLOT), stores(whole.len()));
    let mut rounds = exchange.rounds(0, parts);
    let mut scratch = Vec::new();
    for number in 0..parts {
        let part = part(&whole, SLOT, number);
        let share = &buffers.input()[part.clone()];
        if place.rank.0 + 1 < place.size {
            let fill = |slot: &mut [u8], stores| load(reducer, share, folding(place), slot, stores);
            rounds.lay(number, share.len(), fill).await?;
        }
        let before = (0..place.rank.0).map(Rank);
        let sights = look_at(&rounds, number, before, share.len()).await?;
        let (own, into) = own_and_output(reducer, &mut buffers, part, folding(place), &mut scratch);
        let mut shares: Shares<'_> = sights.iter().map(|sight| &**sight).collect();
        if scanned == Scanned::UpTo {
            shares.push(own);
        }
        if scanned == Scanned::UpTo || place.rank != Rank(0) {
            fold_all(reducer, &shares, into, stores);
        }
        drop(shares);
        drop(sights);
        rounds.pass(number);
    }
    Ok(())
}
