//! Whether the ranks of a host outnumber the processors that they may use together.
//!
//! Each rank publishes its own processors in its segment, and the union of all counts: each of
//! several ranks may be bound to a processor of its own. Leaves to `doorbell` and `fast_path` how a
//! rank waits then. Invariant: a rank that publishes wrong ones changes how long others spin, and
//! nothing else.

use rustix::thread::{CpuSet, sched_getaffinity};

use super::segment::{Processors, SharedSegment};
use crate::sync::cores;

/// The processors that this process may use: as many of its affinity mask as its CPU quota allows.
pub fn own() -> Processors {
    let mut own = Processors::default();
    if let Ok(bound) = sched_getaffinity(None) {
        let usable = (0..CpuSet::MAX_CPU).filter(|processor| bound.is_set(*processor));
        usable.take(cores()).for_each(|processor| own[processor / 64] |= 1 << (processor % 64));
    }
    own
}

/// Whether there are fewer processors than ranks.
pub fn are_fewer_than(ranks: &[SharedSegment]) -> bool {
    number(ranks.iter().map(SharedSegment::processors)) < ranks.len()
}

/// How many processors the ranks may use together.
fn number(of_ranks: impl Iterator<Item = Processors>) -> usize {
    let union = of_ranks.fold(Processors::default(), |union, own| {
        std::array::from_fn(|index| union[index] | own[index])
    });
    match union.iter().map(|word| word.count_ones() as usize).sum() {
        0 => cores(),
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_of_all_ranks_count_each_once() {
        let bound = |word: usize, bits| -> Processors {
            std::array::from_fn(|index| if index == word { bits } else { 0 })
        };
        assert_eq!(number([bound(0, 1), bound(0, 4), bound(15, 1)].into_iter()), 3);
        assert_eq!(number([bound(0, 3), bound(0, 3), bound(0, 3)].into_iter()), 2);
        assert_eq!(number([bound(0, 0); 2].into_iter()), cores());
        assert_eq!(number([own()].into_iter()), cores());
    }
}
