//! | card       | scan and exclusive scan, chain                                            |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1, in the same epochs                                                 |
//! | bytes sent | none; each rank but the last publishes the fold of all ranks up to it     |
//! | scratch    | a part of the buffer                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | on one host, large buffers or many ranks                                  |
//!
//! Each rank views what the rank before it has folded, folds its share into it, and publishes the
//! result in the same epoch. n = 4:
//!
//! ```text
//! 0 -> 1 -> 2 -> 3
//! ```

use crate::buffer::Buffers;
use crate::collective::epochs::{count, part, stores};
use crate::collective::exchange::Exchange;
use crate::collective::scan::shares::{Scanned, folding};
use crate::collective::share::{load, load_twice, own_and_output};
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

pub async fn chain(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    scanned: Scanned,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let me = exchange.me();
    let (whole, width) = (0..buffers.input().len(), reducer.dtype().whole(SLOT));
    let (parts, stores) = (count(whole.len(), width), stores(whole.len()));
    let mut epochs = exchange.epochs(0, parts);
    let (is_first, is_last) = (me.rank.0 == 0, me.rank.0 + 1 == me.size);
    let (mut scratch, mut up_to) = (Vec::new(), Vec::new());
    for number in 0..parts {
        let part = part(&whole, width, number);
        let size = folding(me);
        if is_first {
            // A published share need not have canonical NaNs yet; a result must.
            let folded = if scanned == Scanned::UpTo { me.size } else { size };
            match &mut buffers {
                Buffers::Apart { input, output } if scanned == Scanned::UpTo => {
                    let (share, into) = (&input[part.clone()], &mut output[part]);
                    let fill = |slot: &mut [u8], slot_stores| {
                        let published = (slot, folded, slot_stores);
                        load_twice(reducer, share, published, (into, size, stores));
                    };
                    epochs.publish(number, share.len(), fill).await?;
                }
                buffers => {
                    let share = &buffers.input()[part.clone()];
                    let fill = |slot: &mut [u8], stores| load(reducer, share, folded, slot, stores);
                    epochs.publish(number, share.len(), fill).await?;
                    if scanned == Scanned::UpTo {
                        reducer.prepare(&mut buffers.output_mut()[part], size);
                    }
                }
            }
        } else {
            let before = epochs.view(number, me.before(1), part.len()).await?;
            let (own, into) = own_and_output(reducer, &mut buffers, part, size, &mut scratch);
            if scanned == Scanned::UpTo && is_last {
                reducer.fold_into(into, &before, own, stores);
            } else {
                up_to.resize(own.len(), 0);
                reducer.fold_into(&mut up_to, &before, own, Stores::Cached);
                copy(into, if scanned == Scanned::UpTo { &up_to } else { &before }, stores);
            }
            drop(before);
            if !is_last {
                epochs
                    .publish(number, up_to.len(), |slot, stores| copy(slot, &up_to, stores))
                    .await?;
            }
        }
        epochs.release(number);
    }
    Ok(())
}
