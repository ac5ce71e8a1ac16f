//! The ranks that exchange data between hosts on behalf of their hosts.

use crate::rank::Rank;
use crate::transport::Hosts;

/// One rank of each host: the first one, except on the host of `root`, where it is `root`.
pub fn leaders(hosts: &Hosts, root: Option<Rank>) -> Vec<Rank> {
    let leader = |group: &Vec<Rank>| root.filter(|root| group.contains(root)).unwrap_or(group[0]);
    hosts.groups().iter().map(leader).collect()
}
