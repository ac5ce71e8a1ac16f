//! Opens the links of a roster: registers this rank's service, accepts peers, watches them.
//!
//! Leaves to `dial` how a connection becomes a link. Invariant: the rank of a peer follows from the
//! key that it has proved to own, never from what it claims.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::rank::Rank;
use crate::transport::key::PublicKey;

use super::deaths;
use super::dial::accepted;
use super::endpoint::Service;
use super::links::Links;
use super::plan::Plan;
use super::silence;
use super::suspicion::watch_hints;

/// Registers this rank so that peers can connect. Must be called inside the runtime.
pub(super) fn open(plan: Plan) -> Arc<Links> {
    let members = plan.roster.iter().enumerate();
    let ranks: HashMap<_, _> = members.map(|(rank, member)| (member.key, Rank(rank))).collect();
    let expected: HashSet<_> = ranks.keys().copied().collect();
    let service = plan.endpoint.serve(plan.service_of(plan.rank), &plan.me, expected);
    let links = Links::new(plan);
    let accepting = tokio::spawn(accept(Arc::clone(&links), ranks, service));
    let hints = links.plan.endpoint.hints();
    let suspecting = tokio::spawn(watch_hints(Arc::downgrade(&links), hints));
    let peer_timeout = links.plan.peer_timeout;
    let listening = tokio::spawn(silence::watch(Arc::downgrade(&links), peer_timeout));
    let peers = (0..links.me.size).map(Rank);
    let watching = peers.filter_map(|peer| deaths::watch(&links, peer));
    links.keep(watching.chain([accepting, suspecting, listening]).collect());
    links
}

/// Accepts the connections of peers that have dialled this rank.
async fn accept(links: Arc<Links>, ranks: HashMap<PublicKey, Rank>, mut service: Service) {
    while let Some(arrival) = service.arrivals.recv().await {
        let Some(rank) = ranks.get(&arrival.key).copied() else { continue };
        accepted(&links, rank, arrival.connection);
    }
}
