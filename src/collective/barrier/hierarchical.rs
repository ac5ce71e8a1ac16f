//! | card       | barrier, hierarchical                                                     |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | on each host, between the hosts, on each host                             |
//! | bytes sent | none; messages by the first rank of each host, as another barrier         |
//! | scratch    | none                                                                      |
//! | restricted | several hosts, one of which has several ranks                             |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on several hosts                                                          |
//!
//! The ranks of a host publish that they have entered. The first rank of each host then executes a
//! barrier with those of the other hosts, and publishes that all have entered. n = 4:
//!
//! ```text
//! host a: 0 1      0 < 1                0 > 1
//! host b: 2 3      2 < 3     0 <> 2     2 > 3
//! ```

use crate::collective::barrier::dissemination::dissemination;
use crate::collective::barrier::flat::FlatBarrier;
use crate::collective::epochs::copy_flat;
use crate::collective::exchange::Exchange;
use crate::collective::leaders::leaders;
use crate::error::Result;

pub async fn hierarchical(exchange: &Exchange<'_>) -> Result<()> {
    let (inside, leaders) = (exchange.inside(), leaders(exchange.hosts(), None));
    if let Some(inside) = &inside {
        copy_flat(inside, FlatBarrier { me: inside.me() }).await?;
    }
    if leaders.contains(&exchange.me().rank) {
        dissemination(&exchange.among(&leaders)).await?;
    }
    match &inside {
        Some(inside) => copy_flat(inside, FlatBarrier { me: inside.me() }).await,
        None => Ok(()),
    }
}
