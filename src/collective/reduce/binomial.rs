//! | card       | reduce, binomial tree                                                     |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | one buffer per rank, none by the root                                     |
//! | scratch    | one buffer on every rank but the root                                     |
//! | restricted | no                                                                        |
//! | fold order | ranks counted from the root; each folds its subtrees, nearest first       |
//! | chosen     | always                                                                    |
//!
//! The broadcast's tree upwards. n = 4, root 0:
//!
//! ```text
//! 0 <- 1   2 <- 3
//! 0 <- 2
//! ```

use crate::collective::exchange::Exchange;
use crate::collective::tree;
use crate::error::Result;
use crate::op::Fold;
use crate::rank::Rank;
use crate::transport::Mesh;

/// `data` holds this rank's share; at the root it becomes the result, elsewhere it is used up.
pub async fn binomial<M: Mesh>(
    exchange: &Exchange<'_, M>,
    fold: Fold,
    root: Rank,
    data: &mut [u8],
) -> Result<()> {
    let tree = tree::binomial(exchange.place(), root);
    for child in tree.children.into_iter().rev() {
        exchange.recv_fold(child, 0, fold, data).await?;
    }
    match tree.parent {
        Some(parent) => exchange.send(parent, 0, data).await,
        None => Ok(()),
    }
}
