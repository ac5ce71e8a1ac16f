//! | card       | all-reduce, hierarchical                                                  |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | on each host, between the hosts, on each host                             |
//! | bytes sent | by the first rank of each host, as another all-reduce of these ranks      |
//! | scratch    | that of the other all-reduce                                              |
//! | restricted | several hosts, one of which has several ranks; the operator commutes      |
//! | fold order | ranks of a host in order; the hosts as the other all-reduce               |
//! | chosen     | on several hosts                                                          |
//!
//! The first rank of each host reduces the shares of its host, all-reduces the result with the
//! first ranks of the other hosts, and publishes that for its host. n = 4:
//!
//! ```text
//! host a: 0 1      0 < 1                0 > 1
//! host b: 2 3      2 < 3     0 <> 2     2 > 3
//! ```

use crate::buffer::Buffers;
use crate::collective::broadcast::flat::FlatBroadcast;
use crate::collective::epochs::{copy_flat, reduce_flat};
use crate::collective::exchange::Exchange;
use crate::collective::leaders::leaders;
use crate::collective::passes;
use crate::collective::reduce::flat::FlatReduce;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;

/// `across` all-reduces prepared data in place between the first ranks of the hosts.
pub async fn hierarchical(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    buffers: Buffers<'_>,
    across: impl AsyncFnOnce(&Exchange<'_>, &Reducer, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let size = exchange.me().size;
    let data = passes::into_output(buffers).await;
    passes::prepare(reducer, data, size).await;
    // Prepared data is folded without another preparation.
    let fold = &reducer.after_prepare();
    let (inside, leaders) = (exchange.inside(), leaders(exchange.hosts(), None));
    if let Some(inside) = &inside {
        let both = Buffers::Shared { both: data };
        reduce_flat(inside, FlatReduce::new(inside.me(), Rank(0), fold, both)).await?;
        exchange.confirm().await?;
    }
    if leaders.contains(&exchange.me().rank) {
        across(&exchange.among(&leaders), fold, data).await?;
    }
    if let Some(inside) = &inside {
        let (bytes, both) = (data.len(), Buffers::Shared { both: data });
        copy_flat(inside, FlatBroadcast::new(inside.me(), Rank(0), bytes, both)).await?;
    }
    passes::finish(reducer, data, size).await;
    Ok(())
}
