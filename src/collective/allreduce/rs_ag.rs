//! | card       | all-reduce, reduce-scatter and all-gather                                 |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 2 (n - 1)                                                                 |
//! | bytes sent | 2 (n - 1) / n of the buffer per rank, if n divides the count, a message   |
//! |            | per segment                                                               |
//! | scratch    | three chunks                                                              |
//! | restricted | operators that commute                                                    |
//! | fold order | chunk c: ranks c+1, c+2, ..., round the ring, c last                      |
//! | chosen     | only by name                                                              |
//!
//! The two rings, one after the other, on chunks of which the first `count % n` have one element
//! more. A program that works on its chunk in between calls nexarReduceScatterV and nexarAllGatherV
//! with those counts instead. n = 4, chunk sent in each step:
//!
//! ```text
//!          reduce-scatter |    all-gather
//! rank 0:  c3   c2   c1   |   c0   c3   c2
//! rank 1:  c0   c3   c2   |   c1   c0   c3
//! rank 2:  c1   c0   c3   |   c2   c1   c0
//! rank 3:  c2   c1   c0   |   c3   c2   c1
//! ```

use std::ops::Range;

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::{allgather, reduce_scatter};
use crate::error::Result;
use crate::op::Reducer;

pub async fn rs_ag(exchange: &Exchange<'_>, reducer: &Reducer, data: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let element = reducer.dtype().size();
    let chunks = Blocks::even(data.len() / element, element, me.size);
    let own = chunks.get(me.rank.0);
    let mut complete = passes::zeroed(own.len()).await?;
    let load = |part: Range<usize>, into: &mut [u8]| into.copy_from_slice(&data[part]);
    reduce_scatter::ring::ring(exchange, reducer, &chunks, load, &mut complete).await?;
    passes::copy(&complete, &mut data[own]).await;
    allgather::ring::ring(exchange, &chunks, data).await
}
