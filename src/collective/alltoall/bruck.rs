//! | card       | all-to-all, Bruck's                                                       |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | in step k the blocks whose distance has bit k set, in one message         |
//! | scratch    | 2 n blocks, one more if n is odd                                          |
//! | restricted | blocks of equal length                                                    |
//! | fold order | nothing is folded                                                         |
//! | chosen     | small blocks                                                              |
//!
//! The distance of a block is that of its receiver from its sender, counted round the ring. In step
//! k all blocks whose distance has bit k set move by 2^k ranks, together. n = 4, distances sent:
//!
//! ```text
//! step 0: 1 3 to the right neighbour     step 1: 2 3 to the one after it
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::error::Result;

/// `output` holds this rank's blocks, one for each rank, and becomes those from each rank.
pub async fn bruck(exchange: &Exchange<'_>, output: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let bytes = output.len() / me.size;
    let block = |index: usize| index * bytes..(index + 1) * bytes;

    let mut travelling = passes::zeroed(output.len()).await?;
    for distance in 0..me.size {
        let to = me.after(distance).0;
        travelling[block(distance)].copy_from_slice(&output[block(to)]);
    }
    // At most half of the distances, rounded up, have a bit set.
    let half = me.size.div_ceil(2) * bytes;
    let (mut packed, mut arrived) = (passes::zeroed(half).await?, passes::zeroed(half).await?);
    for step in 0..me.size.next_power_of_two().ilog2() as usize {
        let going: Vec<_> = (0..me.size).filter(|distance| distance & (1 << step) != 0).collect();
        for (index, distance) in going.iter().enumerate() {
            packed[block(index)].copy_from_slice(&travelling[block(*distance)]);
        }
        let packed = &packed[..going.len() * bytes];
        let arrived = &mut arrived[..packed.len()];
        try_join!(
            exchange.send(me.after(1 << step), step, packed),
            exchange.recv(me.before(1 << step), step, arrived)
        )?;
        for (index, distance) in going.into_iter().enumerate() {
            travelling[block(distance)].copy_from_slice(&arrived[block(index)]);
        }
    }
    for distance in 0..me.size {
        let from = me.before(distance).0;
        output[block(from)].copy_from_slice(&travelling[block(distance)]);
    }
    Ok(())
}
