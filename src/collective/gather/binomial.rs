//! | card       | gather, binomial tree                                                     |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | the blocks of its subtree by each rank but the root, in one message       |
//! | scratch    | the blocks of the subtree                                                 |
//! | restricted | blocks of equal length                                                    |
//! | fold order | nothing is folded                                                         |
//! | chosen     | small blocks                                                              |
//!
//! The tree of the reduce; blocks are gathered instead of folded. n = 4, root 0:
//!
//! ```text
//! 0 <- 1   2 <- 3
//! 0 <- 2
//! ```

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::tree;
use crate::error::Result;
use crate::rank::{Rank, RankOf};

/// `own` is this rank's block. At the root, `output` becomes all blocks.
pub async fn binomial(
    exchange: &Exchange<'_>,
    root: Rank,
    own: &[u8],
    output: &mut [u8],
) -> Result<()> {
    let me = exchange.me();
    let tree = tree::binomial(me, root);
    let bytes = own.len();

    // The blocks of the subtree, counted from the root.
    let mut collected = passes::zeroed(tree.span * bytes).await?;
    collected[..bytes].copy_from_slice(own);
    for child in tree.children.into_iter().rev() {
        let below = tree::binomial(RankOf::new(child, me.size), root);
        let first = below.from_root - tree.from_root;
        let part = first * bytes..(first + below.span) * bytes;
        exchange.recv(child, 0, &mut collected[part]).await?;
    }
    match tree.parent {
        Some(parent) => exchange.send(parent, 0, &collected).await,
        None => {
            let (to_last, from_first) = collected.split_at((me.size - root.0) * bytes);
            output[root.0 * bytes..].copy_from_slice(to_last);
            output[..root.0 * bytes].copy_from_slice(from_first);
            Ok(())
        }
    }
}
