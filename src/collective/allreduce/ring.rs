//! | card       | all-reduce, ring                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 2 (n - 1)                                                                 |
//! | bytes sent | 2 (n - 1) / n of the buffer per rank, if n divides the count, a message   |
//! |            | per segment                                                               |
//! | scratch    | none                                                                      |
//! | restricted | operators that commute                                                    |
//! | fold order | chunk c: ranks c+1, c+2, ..., round the ring, c last                      |
//! | chosen     | large buffers                                                             |
//!
//! The buffer is cut into n chunks, one per rank. Chunk c starts at rank c+1 and travels once round
//! the ring, to which each rank adds its share, until it is complete at rank c. Then each complete
//! chunk travels round once more. A segment is forwarded as soon as it has arrived. n = 4, chunk
//! sent in each step:
//!
//! ```text
//!            reduce       |      gather
//! rank 0:  c3   c2   c1   |   c0   c3   c2
//! rank 1:  c0   c3   c2   |   c1   c0   c3
//! rank 2:  c1   c0   c3   |   c2   c1   c0
//! rank 3:  c2   c1   c0   |   c3   c2   c1
//! ```

use tokio::try_join;

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::collective::segments::{SEGMENT, Segments};
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::Side;

pub async fn ring(exchange: &Exchange<'_>, reducer: &Reducer, data: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let size = me.size;
    let (left, right) = (me.before(1), me.after(1));
    let (dtype, element) = (reducer.dtype(), reducer.dtype().size());
    let chunks = Blocks::even(data.len() / element, element, size);
    let segments = Segments::new(data, chunks.iter(), dtype.whole(SEGMENT));

    // How often this rank holds a segment of a chunk in the first half: it only receives its own
    // chunk and only sends its left neighbour's.
    let reduced = |chunk| if chunk == me.rank || chunk == left { 1 } else { 2 };

    let sending = async {
        for step in 0..size - 1 {
            for segment in segments.of(me.before(step + 1).0) {
                let partial = segments.hold(segment, step.min(1)).await;
                exchange.send(right, step, &partial).await?;
            }
        }
        for step in 0..size - 1 {
            let chunk = me.before(step);
            for segment in segments.of(chunk.0) {
                let complete = segments.hold(segment, reduced(chunk) + step.min(1)).await;
                exchange.send(right, size - 1 + step, &complete).await?;
            }
        }
        Ok(())
    };
    let receiving = async {
        for step in 0..size - 1 {
            for segment in segments.of(me.before(step + 2).0) {
                let mut partial = segments.hold(segment, 0).await;
                exchange.recv_fold(left, step, reducer, Side::Left, &mut partial).await?;
            }
        }
        for step in 0..size - 1 {
            let chunk = me.before(step + 1);
            for segment in segments.of(chunk.0) {
                let mut complete = segments.hold(segment, reduced(chunk)).await;
                exchange.recv(left, size - 1 + step, &mut complete).await?;
            }
        }
        Ok(())
    };
    try_join!(sending, receiving)?;
    Ok(())
}
