//! | card       | broadcast, binomial tree                                                  |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | n - 1 buffers over all ranks, log2 n, rounded up, by the root; each a     |
//! |            | message                                                                   |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | small buffers                                                             |
//!
//! Ranks are counted from the root. A rank that has the buffer sends it to the rank half as far
//! away as before. n = 4, root 0:
//!
//! ```text
//! 0 -> 2
//! 0 -> 1   2 -> 3
//! ```

use crate::collective::exchange::Exchange;
use crate::collective::tree;
use crate::error::Result;
use crate::rank::Rank;

pub async fn binomial(exchange: &Exchange<'_>, root: Rank, data: &mut [u8]) -> Result<()> {
    let tree = tree::binomial(exchange.me(), root);
    if let Some(parent) = tree.parent {
        exchange.recv(parent, 0, data).await?;
    }
    for child in tree.children {
        exchange.send(child, 0, data).await?;
    }
    Ok(())
}
