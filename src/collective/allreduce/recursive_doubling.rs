//! | card       | all-reduce, recursive doubling                                            |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 p, and 2 more if n > p, where p is the largest power of two <= n     |
//! | bytes sent | log2 p buffers; if n > p one more by the odd rank of a pair, one in all by |
//! |            | the even one. Each is a message                                           |
//! | scratch    | one buffer                                                                |
//! | restricted | no                                                                        |
//! | fold order | neighbouring groups: ((0 1)(2 3))((4 5)(6 7)); a pair is one: ((0 1)2)(3 4) |
//! | chosen     | small buffers                                                             |
//!
//! Groups of 1, 2, 4, ... ranks exchange their whole folds. If n is not a power of two, each of the
//! first n - p even ranks first sends its buffer to its right neighbour, which takes part for both
//! and sends the result back. n = 4 and n = 5:
//!
//! ```text
//! 0 <-> 1   2 <-> 3          0 -> 1
//! 0 <-> 2   1 <-> 3          1 <-> 2   3 <-> 4
//!                            1 <-> 3   2 <-> 4
//!                            0 <- 1
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::pairs::{Pairs, Part};
use crate::collective::passes;
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::Side;

pub async fn recursive_doubling(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    data: &mut [u8],
) -> Result<()> {
    let pairs = Pairs::new(exchange.me());
    let last_step = pairs.halvings() + 1;
    let (me, partner) = match pairs.fold_shares(exchange, reducer, data).await? {
        Part::Idle { partner } => return exchange.recv(partner, last_step, data).await,
        Part::Active { virtual_rank, partner } => (virtual_rank, partner),
    };

    let mut theirs = passes::zeroed(data.len()).await?;
    for step in 1..last_step {
        let other = me ^ (1 << (step - 1));
        let peer = pairs.rank(other);
        try_join!(exchange.send(peer, step, data), exchange.recv(peer, step, &mut theirs))?;
        passes::fold(reducer, data, &theirs, Side::of(other, me)).await;
    }

    match partner {
        Some(partner) => exchange.send(partner, last_step, data).await,
        None => Ok(()),
    }
}
