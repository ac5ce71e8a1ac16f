//! | card       | reduce, pipeline                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1, a segment behind each other; one more if the operator does not     |
//! |            | commute and the root is not the last rank                                 |
//! | bytes sent | one buffer per rank, none by the root, a message per segment; with the    |
//! |            | step more one by each rank                                                |
//! | scratch    | a few segments on every rank but a root that is the last of the chain; at |
//! |            | another root one buffer more                                              |
//! | restricted | no                                                                        |
//! | fold order | ranks after the root, round the ring, the root last. If the operator does |
//! |            | not commute, rank order                                                   |
//! | chosen     | large buffers                                                             |
//!
//! The ranks form a chain that ends at the root. Each folds its share into a segment and forwards
//! it. If the operator does not commute, the chain runs from rank 0 to the last rank, which sends
//! the result to the root. n = 4, root 0, and in rank order:
//!
//! ```text
//! 1 -> 2 -> 3 -> 0          0 -> 1 -> 2 -> 3 => 0
//! ```

use std::ops::Range;

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::segments::{SEGMENT, SLOTS, Slots, segments};
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::reduce::Side;

/// `load(part, into)` writes a part of this rank's share, which is `bytes` long. At the root,
/// `data` holds its share and becomes the result; at other ranks it is empty.
pub async fn pipeline(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    root: Rank,
    bytes: usize,
    load: impl Fn(Range<usize>, &mut [u8]),
    data: &mut [u8],
) -> Result<()> {
    let (me, width) = (exchange.me(), reducer.dtype().whole(SEGMENT));
    let last = match reducer.reduction().is_commutative() {
        true => root,
        false => Rank(me.size - 1),
    };
    if me.size == 1 {
        return Ok(());
    }
    let left = Some(me.before(1)).filter(|left| *left != last);
    match me.rank {
        rank if rank == root && rank == last => {
            for part in segments(0..bytes, width) {
                let part = &mut data[part];
                exchange.recv_fold(me.before(1), 0, reducer, Side::Left, part).await?;
            }
            Ok(())
        }
        rank if rank == last => pass_on(exchange, reducer, left, (root, 1), bytes, load).await,
        rank if rank == root => {
            let own = pass_on(exchange, reducer, left, (me.after(1), 0), bytes, load);
            let result = async {
                for part in segments(0..bytes, width) {
                    exchange.recv(last, 1, &mut data[part]).await?;
                }
                Ok(())
            };
            try_join!(own, result)?;
            Ok(())
        }
        _ => pass_on(exchange, reducer, left, (me.after(1), 0), bytes, load).await,
    }
}

/// Folds this rank's share into what arrives from `left`, if given, and forwards it.
async fn pass_on(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    left: Option<Rank>,
    (to, step): (Rank, usize),
    bytes: usize,
    load: impl Fn(Range<usize>, &mut [u8]),
) -> Result<()> {
    let width = reducer.dtype().whole(SEGMENT);
    let mut scratch = passes::zeroed(bytes.min(SLOTS * width)).await?;
    let slots = Slots::new(&mut scratch, width);

    let folding = async {
        for (number, part) in segments(0..bytes, width).enumerate() {
            let mut partial = slots.fill(number).await;
            let partial = &mut partial[..part.len()];
            load(part, partial);
            if let Some(left) = left {
                exchange.recv_fold(left, 0, reducer, Side::Left, partial).await?;
            }
        }
        Ok(())
    };
    let sending = async {
        for (number, part) in segments(0..bytes, width).enumerate() {
            let partial = slots.empty(number).await;
            exchange.send(to, step, &partial[..part.len()]).await?;
        }
        Ok(())
    };
    try_join!(folding, sending)?;
    Ok(())
}
