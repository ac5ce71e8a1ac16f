//! | card       | scatter, binomial tree                                                    |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | to each child the blocks of its subtree, in one message                   |
//! | scratch    | the blocks of the subtree                                                 |
//! | restricted | blocks of equal length                                                    |
//! | fold order | nothing is folded                                                         |
//! | chosen     | small blocks                                                              |
//!
//! The tree of the gather, downwards. n = 4, root 0:
//!
//! ```text
//! 0 -> 2
//! 0 -> 1   2 -> 3
//! ```

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::tree;
use crate::error::Result;
use crate::rank::{Rank, RankOf};

/// At the root, `input` holds all blocks, its own included. At other ranks, `own` becomes this
/// rank's block.
pub async fn binomial(
    exchange: &Exchange<'_>,
    root: Rank,
    input: &[u8],
    own: &mut [u8],
) -> Result<()> {
    let me = exchange.me();
    let tree = tree::binomial(me, root);
    let bytes = if me.rank == root { input.len() / me.size } else { own.len() };

    // The blocks of the subtree, counted from the root.
    let mut held = passes::zeroed(tree.span * bytes).await?;
    match tree.parent {
        Some(parent) => exchange.recv(parent, 0, &mut held).await?,
        None => {
            let (from_first, to_last) = input.split_at(root.0 * bytes);
            held[..to_last.len()].copy_from_slice(to_last);
            held[to_last.len()..].copy_from_slice(from_first);
        }
    }
    for child in tree.children {
        let below = tree::binomial(RankOf::new(child, me.size), root);
        let first = below.from_root - tree.from_root;
        let part = first * bytes..(first + below.span) * bytes;
        exchange.send(child, 0, &held[part]).await?;
    }
    if me.rank != root {
        own.copy_from_slice(&held[..bytes]);
    }
    Ok(())
}
