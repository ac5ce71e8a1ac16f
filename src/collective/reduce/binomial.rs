//! | card       | reduce, binomial tree                                                     |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up; one more if the operator does not commute and the     |
//! |            | root is not rank 0                                                        |
//! | bytes sent | one buffer per rank, none by the root, each a message; with the step more |
//! |            | one by each rank                                                          |
//! | scratch    | one buffer on every rank but the root                                     |
//! | restricted | no                                                                        |
//! | fold order | ranks counted from the root; each folds its subtrees, nearest first. If   |
//! |            | the operator does not commute, counted from rank 0                        |
//! | chosen     | small buffers                                                             |
//!
//! The tree of the broadcast, upwards. n = 4, root 0:
//!
//! ```text
//! 0 <- 1   2 <- 3
//! 0 <- 2
//! ```

use crate::collective::exchange::Exchange;
use crate::collective::tree;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::reduce::Side;

/// `data` holds this rank's share. At the root it becomes the result, at other ranks it is
/// overwritten.
pub async fn binomial(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    root: Rank,
    data: &mut [u8],
) -> Result<()> {
    let me = exchange.me().rank;
    let top = if reducer.reduction().is_commutative() { root } else { Rank(0) };
    let tree = tree::binomial(exchange.me(), top);
    for child in tree.children.into_iter().rev() {
        exchange.recv_fold(child, 0, reducer, Side::Right, data).await?;
    }
    if let Some(parent) = tree.parent {
        exchange.send(parent, 0, data).await?;
    }
    if me == top && top != root {
        exchange.send(root, 1, data).await?;
    }
    if me == root && top != root {
        exchange.recv(top, 1, data).await?;
    }
    Ok(())
}
