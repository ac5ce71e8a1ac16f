//! Which ranks of a communicator share memory. All ranks know the same.

use crate::rank::Rank;

/// The ranks of each host. Invariant: every rank is in one group; groups are in the order of their
/// first ranks, and the ranks of a group in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    groups: Vec<Vec<Rank>>,
    /// The group of this rank.
    mine: usize,
    is_open: bool,
}

impl Hosts {
    /// `names`: of the host of each rank. Ranks with the same name share memory; ranks without one
    /// share none.
    pub fn new<T: PartialEq>(names: &[Option<T>], me: Rank) -> Self {
        let mut groups: Vec<Vec<Rank>> = Vec::new();
        for (rank, name) in names.iter().enumerate() {
            let same = |group: &&mut Vec<Rank>| name.is_some() && names[group[0].0] == *name;
            match groups.iter_mut().find(same) {
                Some(group) => group.push(Rank(rank)),
                None => groups.push(vec![Rank(rank)]),
            }
        }
        let mine = groups.iter().position(|group| group.contains(&me));
        Self { groups, mine: mine.expect("this rank is one of them"), is_open: false }
    }

    /// With the fact, known to all ranks, whether the ranks of each host can read all of each
    /// other's memory.
    pub fn opened(self, is_open: bool) -> Self {
        Self { is_open, ..self }
    }

    pub fn are_open(&self) -> bool {
        self.is_open
    }

    /// No two ranks share memory.
    pub fn apart(size: usize, me: Rank) -> Self {
        Self::new(&vec![None::<()>; size], me)
    }

    /// The ranks that share memory with this one, and this one, in rank order.
    pub fn mine(&self) -> &[Rank] {
        &self.groups[self.mine]
    }

    pub fn groups(&self) -> &[Vec<Rank>] {
        &self.groups
    }

    pub fn are_one(&self) -> bool {
        self.groups.len() == 1
    }

    /// Whether any two ranks share memory.
    pub fn share(&self) -> bool {
        self.groups.iter().any(|group| group.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_name_are_one_group_and_those_without_are_alone() {
        let names = [Some("a"), None, Some("b"), Some("a"), None];
        let hosts = Hosts::new(&names, Rank(3));
        let groups: [&[usize]; 4] = [&[0, 3], &[1], &[2], &[4]];
        let groups = groups.map(|group| group.iter().copied().map(Rank).collect::<Vec<_>>());
        assert_eq!(hosts.groups(), groups);
        assert_eq!(hosts.mine(), [Rank(0), Rank(3)]);
        assert!(hosts.share() && !hosts.are_one());
        assert!(Hosts::new(&[Some(1); 3], Rank(2)).are_one() && !Hosts::apart(3, Rank(2)).share());
    }
}
