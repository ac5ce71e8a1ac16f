//! The initialization shared by the programs of this package.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nexar::{ClusterConfig, CpuAdapter, NexarClient, NexarConfig};

/// Connects a rank of a world on loopback. Rank 0 listens at `seed`.
pub async fn connect(
    rank: u32,
    ranks: u32,
    seed: SocketAddr,
    config: NexarConfig,
) -> nexar::Result<NexarClient> {
    let cluster = ClusterConfig::new(ranks)
        .with_bind_addr(([127, 0, 0, 1], 0).into())
        .with_requested_rank(rank)
        .with_cluster_token("a token for the comparison")
        .with_join_timeout(Duration::from_secs(60))
        .with_nexar(config);
    let adapter = Arc::new(CpuAdapter::new());
    match rank {
        0 => NexarClient::bootstrap_seed(seed, &cluster, adapter).await,
        _ => NexarClient::bootstrap_join(seed, &cluster, adapter).await,
    }
}
