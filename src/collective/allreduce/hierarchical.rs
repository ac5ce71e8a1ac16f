//! | card       | all-reduce, hierarchical                                                  |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | on each host, between the hosts, on each host                             |
//! | bytes sent | by the first rank of each host, as another all-reduce of so many ranks    |
//! | scratch    | that of the other all-reduce                                              |
//! | restricted | several hosts, one of which has several ranks                             |
//! | fold order | ranks of a host in order; the hosts as the other all-reduce               |
//! | chosen     | then                                                                      |
//!
//! The first rank of each host reduces what its host has, all-reduces it with those of the other
//! hosts, and publishes the result for its own. n = 4:
//!
//! ```text
//! host a: 0 1      0 < 1                0 > 1
//! host b: 2 3      2 < 3     0 <> 2     2 > 3
//! ```

use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::leaders::leaders;
use crate::collective::{broadcast, passes, reduce};
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
    let size = exchange.place().size;
    let data = passes::into_output(buffers).await;
    passes::prepare(reducer, data, size).await;
    // What is prepared is folded as it is.
    let fold = &reducer.after_prepare();
    let (inside, leaders) = (exchange.inside(), leaders(exchange.hosts(), None));
    if let Some(inside) = &inside {
        reduce::flat::flat(inside, fold, Rank(0), Buffers::Shared { both: data }).await?;
        exchange.confirm().await?;
    }
    if leaders.contains(&exchange.place().rank) {
        across(&exchange.among(&leaders), fold, data).await?;
    }
    if let Some(inside) = &inside {
        let bytes = data.len();
        broadcast::flat::flat(inside, Rank(0), bytes, Buffers::Shared { both: data }).await?;
    }
    passes::finish(reducer, data, size).await;
    Ok(())
}
