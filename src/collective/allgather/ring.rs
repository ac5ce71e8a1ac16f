//! | card       | all-gather, ring                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1                                                                     |
//! | bytes sent | all blocks but the right neighbour's, a message per segment               |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | large blocks, and blocks that differ in length                            |
//!
//! Each rank sends its own block to the right and forwards what arrives from the left, each segment
//! as soon as it has arrived. n = 4, block sent in each step:
//!
//! ```text
//! rank 0:  b0   b3   b2
//! rank 1:  b1   b0   b3
//! rank 2:  b2   b1   b0
//! rank 3:  b3   b2   b1
//! ```

use tokio::try_join;

use crate::blocks::Blocks;
use crate::collective::exchange::Exchange;
use crate::collective::segments::{SEGMENT, Segments};
use crate::error::Result;

/// `output` becomes the blocks of all ranks; this rank's own is in it already.
pub async fn ring(exchange: &Exchange<'_>, blocks: &Blocks, output: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let (left, right) = (me.before(1), me.after(1));
    let segments = Segments::new(output, blocks.iter(), SEGMENT);

    let sending = async {
        for step in 0..me.size - 1 {
            for segment in segments.of(me.before(step).0) {
                let known = segments.hold(segment, step.min(1)).await;
                exchange.send(right, step, &known).await?;
            }
        }
        Ok(())
    };
    let receiving = async {
        for step in 0..me.size - 1 {
            for segment in segments.of(me.before(step + 1).0) {
                let mut next = segments.hold(segment, 0).await;
                exchange.recv(left, step, &mut next).await?;
            }
        }
        Ok(())
    };
    try_join!(sending, receiving)?;
    Ok(())
}
