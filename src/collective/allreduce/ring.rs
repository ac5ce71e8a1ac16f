//! | card       | all-reduce, ring                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 2 (n - 1)                                                                 |
//! | bytes sent | 2 (n - 1) / n of the buffer per rank, if n divides the count              |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | chunk c: ranks c+1, c+2, ..., round the ring, c last                      |
//! | chosen     | large buffers                                                             |
//!
//! The buffer is cut into n chunks, one per rank. Chunk c starts at rank c+1 and travels once
//! round the ring, growing by each rank's share, until it is complete at rank c; then each
//! complete chunk travels round once more. n = 4, chunk sent in each step:
//!
//! ```text
//!            reduce       |      gather
//! rank 0:  c3   c2   c1   |   c0   c3   c2
//! rank 1:  c0   c3   c2   |   c1   c0   c3
//! rank 2:  c1   c0   c3   |   c2   c1   c0
//! rank 3:  c2   c1   c0   |   c3   c2   c1
//! ```

use tokio::try_join;

use crate::collective::chunks::Chunks;
use crate::collective::exchange::{Exchange, two_parts};
use crate::error::Result;
use crate::op::Fold;
use crate::transport::Mesh;

pub async fn ring<M: Mesh>(exchange: &Exchange<'_, M>, fold: Fold, data: &mut [u8]) -> Result<()> {
    let place = exchange.place();
    let (me, size) = (place.rank.0, place.size);
    let (left, right) = (place.before(1), place.after(1));
    let element = fold.dtype().size();
    let chunks = Chunks::new(data.len() / element, size, element);

    for step in 0..size - 1 {
        let partial = chunks.bytes(me + 2 * size - 1 - step);
        let next = chunks.bytes(me + 2 * size - 2 - step);
        let (partial, next) = two_parts(data, partial, next);
        try_join!(exchange.send(right, step, partial), exchange.recv_fold(left, step, fold, next))?;
    }
    for step in 0..size - 1 {
        let complete = chunks.bytes(me + size - step);
        let next = chunks.bytes(me + size - 1 - step);
        let (complete, next) = two_parts(data, complete, next);
        try_join!(
            exchange.send(right, size - 1 + step, complete),
            exchange.recv(left, size - 1 + step, next)
        )?;
    }
    Ok(())
}
