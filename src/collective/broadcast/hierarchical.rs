//! | card       | broadcast, hierarchical                                                   |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | between the hosts, on each host                                           |
//! | bytes sent | by one rank of each host, as another broadcast of these ranks             |
//! | scratch    | none                                                                      |
//! | restricted | several hosts, one of which has several ranks                             |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on several hosts                                                          |
//!
//! The root and the first rank of each other host broadcast the data among themselves. Then each
//! of them publishes it for its host. n = 4, root 0:
//!
//! ```text
//! host a: 0 1                0 > 1
//! host b: 2 3      0 > 2     2 > 3
//! ```

use crate::buffer::Buffers;
use crate::collective::broadcast::flat::FlatBroadcast;
use crate::collective::epochs::copy_flat;
use crate::collective::exchange::Exchange;
use crate::collective::leaders::leaders;
use crate::error::Result;
use crate::rank::Rank;

/// `data` is valid at the root and becomes valid everywhere. `across` broadcasts it between one
/// rank of each host.
pub async fn hierarchical(
    exchange: &Exchange<'_>,
    root: Rank,
    data: &mut [u8],
    across: impl AsyncFnOnce(&Exchange<'_>, Rank, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let (hosts, bytes) = (exchange.hosts(), data.len());
    let leaders = leaders(hosts, Some(root));
    let among = |ranks: &[Rank], rank| ranks.iter().position(|one| *one == rank).map(Rank);
    if among(&leaders, exchange.me().rank).is_some() {
        let root = among(&leaders, root).expect("the root leads its host");
        across(&exchange.among(&leaders), root, data).await?;
    }
    let Some(inside) = exchange.inside() else { return Ok(()) };
    let leader = hosts.mine().iter().position(|rank| leaders.contains(rank));
    let leader = Rank(leader.expect("each host has one"));
    let both = Buffers::Shared { both: data };
    copy_flat(&inside, FlatBroadcast::new(inside.me(), leader, bytes, both)).await
}
