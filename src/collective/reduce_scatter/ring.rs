//! | card       | reduce-scatter, ring                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1                                                                     |
//! | bytes sent | all blocks but this rank's own, a message per segment                     |
//! | scratch    | two of the longest block; in place a block more                           |
//! | restricted | operators that commute                                                    |
//! | fold order | block b: ranks b+1, b+2, ..., round the ring, b last                      |
//! | chosen     | large blocks                                                              |
//!
//! Block b starts at rank b+1 and travels round the ring, to which each rank adds its share, until
//! it is complete at rank b. A segment is forwarded as soon as it has arrived. n = 4, block sent in
//! each step:
//!
//! ```text
//! rank 0:  b3   b2   b1
//! rank 1:  b0   b3   b2
//! rank 2:  b1   b0   b3
//! rank 3:  b2   b1   b0
//! ```

use std::ops::Range;

use tokio::try_join;

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::segments::{SEGMENT, Segments, segments};
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::Side;

/// `load(part, into)` writes a part of this rank's input; `output` becomes this rank's block.
pub async fn ring(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    blocks: &Blocks,
    load: impl Fn(Range<usize>, &mut [u8]),
    output: &mut [u8],
) -> Result<()> {
    let me = exchange.me();
    let (left, right) = (me.before(1), me.after(1));
    let (longest, width) = (blocks.longest(), reducer.dtype().whole(SEGMENT));
    let (mut even, mut odd) = (passes::zeroed(longest).await?, passes::zeroed(longest).await?);
    let scratch = [Segments::whole(&mut even, width), Segments::whole(&mut odd, width)];
    // Every step receives into one half of the scratch and sends from the other, so the turn of
    // each segment is the step. A block that lacks a segment leaves the turn unused.
    let part = |block: usize, segment: usize| {
        let block = blocks.get(block);
        let start = block.end.min(block.start + segment * width);
        start..block.end.min(start + width)
    };
    let all = scratch[0].of(0);

    let sending = async {
        for step in 0..me.size - 1 {
            for segment in all.clone() {
                let part = part(me.before(step + 1).0, segment);
                let mut partial = scratch[(step + 1) % 2].hold(segment, step).await;
                let partial = &mut partial[..part.len()];
                if step == 0 {
                    load(part.clone(), partial);
                }
                if !part.is_empty() {
                    exchange.send(right, step, partial).await?;
                }
            }
        }
        Ok(())
    };
    let receiving = async {
        for step in 0..me.size - 1 {
            for segment in all.clone() {
                let part = part(me.before(step + 2).0, segment);
                let mut partial = scratch[step % 2].hold(segment, step).await;
                let partial = &mut partial[..part.len()];
                load(part.clone(), partial);
                if !part.is_empty() {
                    exchange.recv_fold(left, step, reducer, Side::Left, partial).await?;
                }
            }
        }
        Ok(())
    };
    try_join!(sending, receiving)?;

    if me.size == 1 {
        load(blocks.get(0), output);
        return Ok(());
    }
    for (segment, part) in segments(0..output.len(), width).enumerate() {
        let complete = scratch[me.size % 2].hold(segment, me.size - 1).await;
        output[part.clone()].copy_from_slice(&complete[..part.len()]);
    }
    Ok(())
}
