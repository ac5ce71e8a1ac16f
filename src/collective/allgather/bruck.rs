//! | card       | all-gather, Bruck's                                                       |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | n - 1 blocks per rank, a message per step                                 |
//! | scratch    | n blocks                                                                  |
//! | restricted | blocks of equal length                                                    |
//! | fold order | nothing is folded                                                         |
//! | chosen     | small blocks                                                              |
//!
//! In step k each rank sends up to 2^k of its blocks to the rank 2^k before it, and receives as
//! many from the rank 2^k after it. n = 4, blocks of rank 0 after each step:
//!
//! ```text
//! b0   |   b0 b1   |   b0 b1 b2 b3
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::error::Result;

/// `output` becomes the blocks of all ranks; this rank's own is in it already.
pub async fn bruck(exchange: &Exchange<'_>, output: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let bytes = output.len() / me.size;
    let own = me.rank.0 * bytes;

    // Blocks in the order of arrival: this rank's, its right neighbour's, ...
    let mut known = passes::zeroed(output.len()).await?;
    known[..bytes].copy_from_slice(&output[own..own + bytes]);
    let mut count = 1;
    for step in 0..me.size.next_power_of_two().ilog2() as usize {
        let more = count.min(me.size - count);
        let (mine, theirs) = known.split_at_mut(count * bytes);
        try_join!(
            exchange.send(me.before(count), step, &mine[..more * bytes]),
            exchange.recv(me.after(count), step, &mut theirs[..more * bytes])
        )?;
        count += more;
    }
    let (from_here, from_first) = known.split_at(output.len() - own);
    output[own..].copy_from_slice(from_here);
    output[..own].copy_from_slice(from_first);
    Ok(())
}
