//! | card       | all-reduce, recursive doubling                                            |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 p, and 2 more if n > p, where p is the largest power of two <= n     |
//! | bytes sent | log2 p buffers; if n > p one more by the odd rank of a pair, one in all by |
//! |            | the even one                                                              |
//! | scratch    | one buffer                                                                |
//! | restricted | no                                                                        |
//! | fold order | neighbouring groups: ((0 1)(2 3))((4 5)(6 7)); a pair is one: ((0 1)2)(3 4) |
//! | chosen     | small buffers; up to 256 KiB between two ranks                            |
//!
//! Groups of 1, 2, 4, ... ranks exchange their folds whole. If n is not a power of two, each of
//! the first n - p even ranks first hands its buffer to its right neighbour, which takes part for
//! both and hands the result back. n = 4 and n = 5:
//!
//! ```text
//! 0 <-> 1   2 <-> 3          0 -> 1
//! 0 <-> 2   1 <-> 3          1 <-> 2   3 <-> 4
//!                            1 <-> 3   2 <-> 4
//!                            0 <- 1
//! ```

use tokio::try_join;

use crate::buffer;
use crate::collective::exchange::Exchange;
use crate::error::Result;
use crate::op::Fold;
use crate::rank::Rank;
use crate::reduce;
use crate::transport::Mesh;

pub async fn recursive_doubling<M: Mesh>(
    exchange: &Exchange<'_, M>,
    fold: Fold,
    data: &mut [u8],
) -> Result<()> {
    let place = exchange.place();
    let me = place.rank.0;
    let groups = 1 << place.size.ilog2();
    let pairs = place.size - groups;
    let paired = me < 2 * pairs;
    let last_step = groups.ilog2() as usize + 1;

    if paired && me.is_multiple_of(2) {
        let partner = Rank(me + 1);
        exchange.send(partner, 0, data).await?;
        return exchange.recv(partner, last_step, data).await;
    }
    if paired {
        exchange.recv_fold(Rank(me - 1), 0, fold, data).await?;
    }

    // Number the ranks that go on, in rank order: pair p is p, a single rank s is s - pairs.
    let number = if paired { me / 2 } else { me - pairs };
    let rank_of = |number| Rank(if number < pairs { 2 * number + 1 } else { number + pairs });
    let mut theirs = buffer::zeroed(data.len())?;
    for step in 1..last_step {
        let partner = rank_of(number ^ (1 << (step - 1)));
        try_join!(exchange.send(partner, step, data), exchange.recv(partner, step, &mut theirs))?;
        reduce::fold(fold, data, &theirs);
    }

    if paired {
        exchange.send(Rank(me - 1), last_step, data).await?;
    }
    Ok(())
}
