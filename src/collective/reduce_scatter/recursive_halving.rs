//! | card       | reduce-scatter, recursive halving                                         |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 p, and 2 more if n > p, where p is the largest power of two <= n     |
//! | bytes sent | n - 1 blocks by every rank, all n by the even rank of a pair. A message   |
//! |            | per step                                                                  |
//! | scratch    | the input; in place a block more                                          |
//! | restricted | operators that commute                                                    |
//! | fold order | halves: ((0 4)(2 6))((1 5)(3 7)); a pair is one                           |
//! | chosen     | small blocks                                                              |
//!
//! The halves of a group exchange what the other half needs, and then continue as two groups. If n
//! is not a power of two, each of the first n - p even ranks sends its input to its right neighbour
//! and receives its block from it. n = 4, blocks that each rank keeps:
//!
//! ```text
//! 0 <-> 2   1 <-> 3     rank 0: 0 1   rank 1: 0 1   rank 2: 2 3   rank 3: 2 3
//! 0 <-> 1   2 <-> 3     rank 0: 0     rank 1: 1     rank 2: 2     rank 3: 3
//! ```

use tokio::try_join;

use crate::blocks::{Blocks, two_parts};
use crate::collective::exchange::Exchange;
use crate::collective::pairs::{Pairs, Part};
use crate::collective::passes;
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::Side;

/// `data` holds this rank's input, its `blocks` one after another, and is overwritten. `output`
/// becomes this rank's block.
pub async fn recursive_halving(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    blocks: &Blocks,
    data: &mut [u8],
    output: &mut [u8],
) -> Result<()> {
    let pairs = Pairs::new(exchange.me());
    let last_step = pairs.halvings() + 1;
    let (me, partner) = match pairs.fold_shares(exchange, reducer, data).await? {
        Part::Idle { partner } => return exchange.recv(partner, last_step, output).await,
        Part::Active { virtual_rank, partner } => (virtual_rank, partner),
    };

    // The bytes of the blocks of a row of numbers.
    let bytes = |first: usize, count: usize| {
        let (first, last) = (pairs.ranks(first).start, pairs.ranks(first + count - 1).end - 1);
        blocks.get(first).start..blocks.get(last).end
    };
    let mut group = 0;
    for step in 1..last_step {
        let half = pairs.virtual_size >> step;
        let (mine, theirs) =
            if me < group + half { (group, group + half) } else { (group + half, group) };
        let peer = pairs.rank(me ^ half);
        let (keep, give) = two_parts(data, &bytes(mine, half), &bytes(theirs, half));
        try_join!(
            exchange.send(peer, step, give),
            exchange.recv_fold(peer, step, reducer, Side::Right, keep)
        )?;
        group = mine;
    }

    if let Some(partner) = partner {
        exchange.send(partner, last_step, &data[blocks.get(partner.0)]).await?;
    }
    passes::copy(&data[blocks.get(exchange.me().rank.0)], output).await;
    Ok(())
}
