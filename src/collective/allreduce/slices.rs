//! | card       | all-reduce, slices                                                        |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in two epochs for each part                                            |
//! | bytes sent | none; each rank publishes its buffer, and its slice of the result         |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host, large buffers of many ranks                                  |
//!
//! In one epoch every rank publishes a part of its share, in the next the slice of the result that
//! it has folded. So each element is folded by one rank only. n = 4, a part and its slices:
//!
//! ```text
//! rank 0 folds  a0 b0 c0 d0  of  a = a0 a1 a2 a3  (of rank 0),  b, c, d
//! rank 1 folds  a1 b1 c1 d1
//! ...           and all view the four results
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::epochs::{
    EpochStep, Shares, ahead, count, others, part, schedule, stores, view_each,
};
use crate::collective::exchange::Exchange;
use crate::collective::share::{load, own_and_output};
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
    let (me, element) = (exchange.me(), reducer.dtype().size());
    let (whole, width) = (0..buffers.input().len(), reducer.dtype().whole(SLOT));
    let (parts, stores) = (count(whole.len(), width), stores(whole.len()));
    let in_place = buffers.input_apart().filter(|_| !reducer.prepares(me.size));
    let mut epochs = exchange.epochs(0, 2 * parts);
    let slices_of = |bytes: usize| Blocks::even(bytes / element, element, me.size);
    let mut scratch = Vec::new();
    // Each part takes two epochs.
    for step in schedule(parts, ahead(me.size) / 2) {
        match step {
            EpochStep::Publish(number) => {
                let part = part(&whole, width, number);
                if let Some(input) = in_place {
                    epochs.publish_in_place(2 * number, &input[part]).await?;
                } else {
                    let share = &buffers.input()[part];
                    // No other rank reduces this rank's own slice.
                    let own = slices_of(share.len()).get(me.rank.0);
                    let fill = |slot: &mut [u8], stores| {
                        for part in [0..own.start, own.end..share.len()] {
                            let (share, slot) = (&share[part.clone()], &mut slot[part]);
                            load(reducer, share, me.size, slot, stores);
                        }
                    };
                    epochs.publish(2 * number, share.len(), fill).await?;
                }
            }
            EpochStep::View(number) => {
                let part = part(&whole, width, number);
                let slices = slices_of(part.len());
                let slice_of = |rank: Rank| slices.get(rank.0);
                let own = slice_of(me.rank);
                let wanted = others(me).map(|rank| (rank, part.len()));
                let views = view_each(&epochs, 2 * number, wanted).await?;
                let here = part.start + own.start..part.start + own.end;
                let (share, into) =
                    own_and_output(reducer, &mut buffers, here, me.size, &mut scratch);
                let mut shares: Shares<'_> = views.iter().map(|view| &view[own.clone()]).collect();
                shares.insert(me.rank.0, share);
                reducer.fold_all(into, &shares, Stores::Cached);
                reducer.finish(into, me.size);
                drop(shares);
                drop(views);
                let fill = |slot: &mut [u8], stores| copy(slot, into, stores);
                epochs.publish(2 * number + 1, own.len(), fill).await?;
                epochs.release(2 * number);
                let into = &mut buffers.output_mut()[part];
                for rank in others(me) {
                    let slice = slice_of(rank);
                    let result = epochs.view(2 * number + 1, rank, slice.len()).await?;
                    copy(&mut into[slice], &result, stores);
                }
                epochs.release(2 * number + 1);
            }
        }
    }
    epochs.wait_released().await
}
