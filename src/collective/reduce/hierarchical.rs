//! | card       | reduce, hierarchical                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | on each host, between the hosts                                           |
//! | bytes sent | by one rank of each host, as another reduce of these ranks                |
//! | scratch    | one buffer in each rank that sends                                        |
//! | restricted | several hosts, one of which has several ranks; the operator commutes      |
//! | fold order | ranks of a host in order; the hosts as the other reduce                   |
//! | chosen     | on several hosts                                                          |
//!
//! The root and the first rank of each other host reduce the shares of their hosts, and then reduce
//! the results among themselves. n = 4, root 0:
//!
//! ```text
//! host a: 0 1      0 < 1
//! host b: 2 3      2 < 3     0 < 2
//! ```

use crate::buffer::Buffers;
use crate::collective::epochs::reduce_flat;
use crate::collective::exchange::Exchange;
use crate::collective::leaders::leaders;
use crate::collective::passes;
use crate::collective::reduce::flat::FlatReduce;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;

/// `across` reduces prepared data in place between one rank of each host.
pub async fn hierarchical(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    root: Rank,
    buffers: Buffers<'_>,
    across: impl AsyncFnOnce(&Exchange<'_>, &Reducer, Rank, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let (me, hosts) = (exchange.me(), exchange.hosts());
    let mut share;
    let data = if me.rank == root {
        passes::into_output(buffers).await
    } else {
        share = passes::copied(buffers.input()).await?;
        &mut share[..]
    };
    passes::prepare(reducer, data, me.size).await;
    // Prepared data is folded without another preparation.
    let fold = &reducer.after_prepare();
    let leaders = leaders(hosts, Some(root));
    let leader = hosts.mine().iter().position(|rank| leaders.contains(rank));
    let leader = Rank(leader.expect("each host has one"));
    if let Some(inside) = exchange.inside() {
        let both = Buffers::Shared { both: data };
        reduce_flat(&inside, FlatReduce::new(inside.me(), leader, fold, both)).await?;
    }
    if hosts.mine()[leader.0] == me.rank {
        let root = leaders.iter().position(|rank| *rank == root).map(Rank);
        let root = root.expect("the root leads its host");
        across(&exchange.among(&leaders), fold, root, data).await?;
    }
    if me.rank == root {
        passes::finish(reducer, data, me.size).await;
    }
    Ok(())
}
