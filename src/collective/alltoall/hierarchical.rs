//! | card       | all-to-all, hierarchical                                                  |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | on each host, between the hosts, on each host                             |
//! | bytes sent | by the first rank of each host, one message to each other host            |
//! | scratch    | at the first rank of a host, four times its host's blocks for other hosts |
//! | restricted | several hosts, one of which has several ranks; blocks of equal length     |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on several hosts, short blocks                                            |
//!
//! The first rank of each host gathers the blocks for other hosts, exchanges them with the first
//! ranks of those, one message in place of one for each pair of ranks, and scatters what it has
//! received. Meanwhile the ranks of a host exchange their blocks. n = 4, blocks as `from to`:
//!
//! ```text
//! host a: 0 1      02 03 12 13  -->   <--  20 21 30 31      0: 20 30   1: 21 31
//! host b: 2 3      20 21 30 31  -->   <--  02 03 12 13      2: 02 12   3: 03 13
//! ```

use std::ops::Range;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::try_join;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::alltoall::flat::FlatAllToAll;
use crate::collective::epochs::copy_flat;
use crate::collective::exchange::Exchange;
use crate::collective::gather::flat::FlatGather;
use crate::collective::passes;
use crate::collective::scatter::flat::FlatScatter;
use crate::error::Result;
use crate::rank::Rank;

/// How many exchanges between hosts are under way at once.
const AT_ONCE: usize = 4;

pub async fn hierarchical(
    exchange: &Exchange<'_>,
    blocks: &Blocks,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let (me, hosts, mine) = (exchange.me(), exchange.hosts(), exchange.hosts().mine());
    let away = || hosts.groups().iter().filter(|group| group[0] != mine[0]).flatten();
    let host = HostBlocks { bytes: blocks.longest(), ranks: mine.len(), away: away().count() };
    let (inside, is_first) = (exchange.inside(), mine[0] == me.rank);

    let mut own = passes::zeroed(host.of_rank()).await?;
    for (index, to) in away().enumerate() {
        own[host.block(index)].copy_from_slice(&buffers.input()[blocks.get(to.0)]);
    }
    let all = Blocks::equal(host.of_rank(), host.ranks);
    let mut outgoing = passes::zeroed(if is_first { all.extent() } else { 0 }).await?;
    if is_first {
        passes::copy(&own, &mut outgoing[all.get(0)]).await;
    }
    if let Some(inside) = &inside {
        let (me, root, output) = (inside.me(), Rank(0), &mut outgoing[..]);
        copy_flat(inside, FlatGather { me, root, blocks: &all, own: &own, output }).await?;
    }
    let across = async {
        if is_first { exchange_hosts(exchange, host, &outgoing).await } else { Ok(Vec::new()) }
    };
    let (incoming, ()) =
        try_join!(across, exchange_inside(inside.as_ref(), blocks, mine, &mut buffers))?;
    if is_first {
        passes::copy(&incoming[all.get(0)], &mut own).await;
    }
    if let Some(inside) = &inside {
        let scatter = FlatScatter::new(inside.me(), Rank(0), &all, &incoming, &mut own);
        copy_flat(inside, scatter).await?;
    }
    for (index, from) in away().enumerate() {
        buffers.output_mut()[blocks.get(from.0)].copy_from_slice(&own[host.block(index)]);
    }
    Ok(())
}

/// The blocks that the ranks of a host exchange with those of other hosts.
#[derive(Clone, Copy)]
struct HostBlocks {
    /// The bytes of a block.
    bytes: usize,
    /// The ranks of this host.
    ranks: usize,
    /// The ranks of other hosts.
    away: usize,
}

impl HostBlocks {
    /// The bytes that one rank exchanges.
    fn of_rank(self) -> usize {
        self.away * self.bytes
    }

    fn block(self, index: usize) -> Range<usize> {
        index * self.bytes..(index + 1) * self.bytes
    }
}

/// Exchanges the blocks among the ranks of this host, and copies that of a rank for itself.
async fn exchange_inside(
    inside: Option<&Exchange<'_>>,
    blocks: &Blocks,
    mine: &[Rank],
    buffers: &mut Buffers<'_>,
) -> Result<()> {
    let own = Blocks::at(mine.iter().map(|rank| blocks.get(rank.0)).collect());
    match (inside, buffers) {
        (Some(inside), buffers) => {
            copy_flat(inside, FlatAllToAll::new(inside.me(), &own, buffers.reborrow())).await
        }
        (None, Buffers::Apart { input, output }) => {
            passes::copy(&input[own.get(0)], &mut output[own.get(0)]).await;
            Ok(())
        }
        (None, Buffers::Shared { .. }) => Ok(()),
    }
}

/// Exchanges the blocks of all ranks of this host with the first ranks of the others. `outgoing`:
/// by rank of this host, those for the ranks of other hosts. Returns by rank of this host those
/// from the ranks of other hosts.
async fn exchange_hosts(
    exchange: &Exchange<'_>,
    host: HostBlocks,
    outgoing: &[u8],
) -> Result<Vec<u8>> {
    let (groups, mine) = (exchange.hosts().groups(), exchange.hosts().mine());
    let position = groups.iter().position(|group| group[0] == mine[0]).unwrap_or(0);
    // The index of the first rank of each other host among all ranks of other hosts.
    let mut before = 0;
    let mut peers = Vec::new();
    for (index, group) in groups.iter().enumerate().filter(|(index, _)| *index != position) {
        peers.push(((position + index) % groups.len(), before, group));
        before += group.len();
    }
    // Two hosts meet in the same step, as two ranks in a pairwise exchange.
    peers.sort_by_key(|(step, ..)| *step);
    let with_host = async |(_, before, group): (usize, usize, &Vec<Rank>)| {
        let mut packed = passes::zeroed(host.ranks * group.len() * host.bytes).await?;
        let mut arrived = passes::zeroed(packed.len()).await?;
        for (from, into) in packed.chunks_mut(group.len() * host.bytes).enumerate() {
            let first = host.block(from * host.away + before).start;
            into.copy_from_slice(&outgoing[first..first + into.len()]);
        }
        try_join!(exchange.send(group[0], 0, &packed), exchange.recv(group[0], 0, &mut arrived))?;
        Ok((before, arrived))
    };
    let exchanges = stream::iter(peers).map(with_host).buffer_unordered(AT_ONCE);
    let arrived: Vec<_> = exchanges.try_collect().await?;
    let mut incoming = passes::zeroed(outgoing.len()).await?;
    for (before, arrived) in arrived {
        for (index, block) in arrived.chunks(host.bytes).enumerate() {
            let (from, to) = (index / host.ranks, index % host.ranks);
            incoming[host.block(to * host.away + before + from)].copy_from_slice(block);
        }
    }
    Ok(incoming)
}
