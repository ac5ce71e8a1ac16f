//! A call to be made on every rank: its shape, its input, and its `Op`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use nexar::blocks::Blocks;
use nexar::buffer::Buffers;
use nexar::dtype::DataType;
use nexar::op::{Call, Counts, Fold, Op, RedOp, Reducer};
use nexar::rank::Rank;

/// The forms of calls: those of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    AllGatherV,
    ReduceScatter,
    ReduceScatterV,
    AllToAll,
    AllToAllV,
    Gather,
    GatherV,
    Scatter,
    ScatterV,
    Scan,
    ExScan,
    AllReduceBucketed,
    Barrier,
}

impl Protocol {
    pub const ALL: [Self; 17] = [
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::AllGather,
        Self::AllGatherV,
        Self::ReduceScatter,
        Self::ReduceScatterV,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Gather,
        Self::GatherV,
        Self::Scatter,
        Self::ScatterV,
        Self::Scan,
        Self::ExScan,
        Self::AllReduceBucketed,
        Self::Barrier,
    ];

    /// The name of its algorithms' folder.
    pub fn collective(self) -> &'static str {
        match self {
            Self::AllReduce | Self::AllReduceBucketed => "allreduce",
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
            Self::AllGather | Self::AllGatherV => "allgather",
            Self::ReduceScatter | Self::ReduceScatterV => "reduce_scatter",
            Self::AllToAll | Self::AllToAllV => "alltoall",
            Self::Gather | Self::GatherV => "gather",
            Self::Scatter | Self::ScatterV => "scatter",
            Self::Scan | Self::ExScan => "scan",
            Self::Barrier => "barrier",
        }
    }

    pub fn has_root(self) -> bool {
        use Protocol::*;
        matches!(self, Reduce | Broadcast | Gather | GatherV | Scatter | ScatterV)
    }

    pub fn folds(self) -> bool {
        use Protocol::*;
        let scans = matches!(self, Scan | ExScan);
        scans
            || matches!(self, AllReduce | Reduce | ReduceScatter | ReduceScatterV)
            || self == AllReduceBucketed
    }
}

#[derive(Clone)]
pub struct Case {
    pub protocol: Protocol,
    pub count: usize,
    /// Also says the type of calls that do not fold.
    pub reducer: Reducer,
    pub root: usize,
    pub size: usize,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, count, reducer, root, size } = self;
        write!(f, "{protocol:?}({count} x {}, root {root}) of {size}", reducer.reduction())
    }
}

pub fn known(dtype: DataType, redop: RedOp) -> Option<Reducer> {
    Fold::new(dtype, redop).ok().map(Reducer::Known)
}

pub fn sum() -> Reducer {
    known(DataType::Float32, RedOp::Sum).unwrap()
}

/// Each element is a map x -> a x + b of 32-bit numbers; the fold is one map after the other. It is
/// associative to the bit and does not commute.
pub fn maps() -> Reducer {
    let one_after_the_other = |left: &[u8], right: &mut [u8]| {
        let aligned = |bytes: &[u8]| bytes.as_ptr().addr().is_multiple_of(8);
        assert!(aligned(left) && aligned(right));
        for (left, right) in left.chunks_exact(8).zip(right.chunks_exact_mut(8)) {
            let [(a, b), (c, d)] = [left, &*right].map(|map| {
                let half = |at: usize| u32::from_ne_bytes(map[at..at + 4].try_into().unwrap());
                (half(0), half(4))
            });
            right[..4].copy_from_slice(&a.wrapping_mul(c).to_ne_bytes());
            right[4..].copy_from_slice(&b.wrapping_mul(c).wrapping_add(d).to_ne_bytes());
        }
    };
    let function = Arc::new(one_after_the_other);
    Reducer::User { dtype: DataType::Uint64, commutative: false, function }
}

/// A function of a program that commutes.
pub fn xor() -> Reducer {
    let function = |left: &[u8], right: &mut [u8]| {
        left.iter().zip(right).for_each(|(left, right)| *right ^= left);
    };
    Reducer::User { dtype: DataType::Int16, commutative: true, function: Arc::new(function) }
}

/// Bytes that differ by rank and position, the same in every run.
fn noise(rank: usize, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(rank as u64 + 1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

impl Case {
    pub fn input(&self, rank: usize) -> Vec<u8> {
        noise(rank, self.input_bytes(rank))
    }

    fn element(&self) -> usize {
        self.reducer.dtype().size()
    }

    /// Different for each rank, some of them zero.
    fn varying(&self) -> Vec<usize> {
        let count = |rank| if rank % 3 == 1 { 0 } else { self.count + rank };
        (0..self.size).map(count).collect()
    }

    /// What two ranks exchange; the same both ways, so that it can be done in place.
    fn pairwise(&self, one: usize, other: usize) -> usize {
        let (low, high) = (one.min(other), one.max(other));
        if (low + 2 * high) % 5 == 4 { 0 } else { self.count + 3 * low + high }
    }

    /// Blocks from the last rank's to the first's, an element apart.
    fn scattered(&self, counts: &[usize]) -> Blocks {
        let mut end = 0;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for count in counts.iter().rev() {
            let start = end + 1;
            end = start + count;
            ranges.push(start * self.element()..end * self.element());
        }
        ranges.reverse();
        Blocks::at(ranges)
    }

    /// The blocks of the longer of a rank's buffers; in an all-to-all, of both.
    pub fn blocks(&self, rank: usize) -> Blocks {
        match self.protocol {
            Protocol::AllGatherV | Protocol::GatherV | Protocol::ScatterV => {
                self.scattered(&self.varying())
            }
            Protocol::AllToAllV => {
                let counts: Vec<_> = (0..self.size).map(|peer| self.pairwise(rank, peer)).collect();
                self.scattered(&counts)
            }
            Protocol::ReduceScatterV => {
                let mut end = 0;
                let follow = |count: usize| {
                    end += count * self.element();
                    end - count * self.element()..end
                };
                Blocks::at(self.varying().into_iter().map(follow).collect())
            }
            _ => Blocks::equal(self.count * self.element(), self.size),
        }
    }

    fn input_bytes(&self, rank: usize) -> usize {
        let blocks = self.blocks(rank);
        match self.protocol {
            Protocol::Barrier => 0,
            Protocol::AllGather | Protocol::AllGatherV | Protocol::Gather | Protocol::GatherV => {
                blocks.get(rank).len()
            }
            Protocol::Broadcast if rank != self.root => 0,
            Protocol::Scatter | Protocol::ScatterV if rank != self.root => 0,
            Protocol::ReduceScatter
            | Protocol::ReduceScatterV
            | Protocol::Scatter
            | Protocol::ScatterV => blocks.extent(),
            Protocol::AllToAll | Protocol::AllToAllV => blocks.extent(),
            _ => self.count * self.element(),
        }
    }

    pub fn output_bytes(&self, rank: usize) -> usize {
        let blocks = self.blocks(rank);
        match self.protocol {
            Protocol::Barrier => 0,
            Protocol::Reduce | Protocol::Gather | Protocol::GatherV if rank != self.root => 0,
            Protocol::ReduceScatter
            | Protocol::ReduceScatterV
            | Protocol::Scatter
            | Protocol::ScatterV => blocks.get(rank).len(),
            Protocol::AllGather | Protocol::AllGatherV | Protocol::Gather | Protocol::GatherV => {
                blocks.extent()
            }
            Protocol::AllToAll | Protocol::AllToAllV => blocks.extent(),
            _ => self.count * self.element(),
        }
    }

    /// Where input and output begin in one buffer for both, if this rank can have one.
    pub fn in_place(&self, rank: usize) -> Option<(usize, usize)> {
        let own = self.blocks(rank).get(rank);
        match self.protocol {
            Protocol::Barrier | Protocol::AllReduceBucketed => None,
            Protocol::Reduce | Protocol::Gather | Protocol::GatherV if rank != self.root => None,
            Protocol::Scatter | Protocol::ScatterV if rank != self.root => None,
            // An empty block lies nowhere: such a call is not in place.
            Protocol::AllGatherV
            | Protocol::GatherV
            | Protocol::ReduceScatterV
            | Protocol::ScatterV
                if own.is_empty() =>
            {
                None
            }
            Protocol::AllGather | Protocol::AllGatherV | Protocol::Gather | Protocol::GatherV => {
                Some((own.start, 0))
            }
            Protocol::ReduceScatter
            | Protocol::ReduceScatterV
            | Protocol::Scatter
            | Protocol::ScatterV => Some((0, own.start)),
            _ => Some((0, 0)),
        }
    }

    /// Bytes of the output of an all-to-all that belong to no block.
    pub fn gaps(&self, rank: usize) -> Vec<usize> {
        if self.protocol != Protocol::AllToAllV {
            return Vec::new();
        }
        let blocks = self.blocks(rank);
        let mut gaps = vec![true; blocks.extent()];
        blocks.iter().for_each(|block| gaps[block].fill(false));
        (0..gaps.len()).filter(|index| gaps[*index]).collect()
    }

    pub fn bucket_counts(&self) -> Vec<usize> {
        let (mut left, mut counts) = (self.count, Vec::new());
        for length in [0, 1, 7, 100, 3, 2500, 0, 40].into_iter().cycle().take(60) {
            counts.push(left.min(length));
            left -= left.min(length);
        }
        counts.push(left);
        counts
    }

    pub fn counts(&self) -> Counts {
        match self.protocol {
            Protocol::AllGatherV | Protocol::ReduceScatterV => Counts::listed(&self.varying()),
            Protocol::AllToAllV | Protocol::GatherV | Protocol::ScatterV => Counts::Pairwise,
            Protocol::AllReduceBucketed => Counts::listed(&self.bucket_counts()),
            _ => Counts::Each(self.count),
        }
    }

    pub fn call(&self) -> Call {
        match self.protocol {
            Protocol::AllReduceBucketed => {
                Call::all_reduce_bucketed(self.counts(), self.reducer.reduction())
            }
            _ => self.op(0, Buffers::Shared { both: &mut [] }).call(),
        }
    }

    pub fn op<'a>(&self, rank: usize, buffers: Buffers<'a>) -> Op<'a> {
        let (count, counts, root) = (self.count, self.counts(), Rank(self.root));
        let (reducer, dtype) = (self.reducer.clone(), self.reducer.dtype());
        let blocks = self.blocks(rank);
        match self.protocol {
            Protocol::AllReduce => Op::all_reduce(count, reducer, buffers),
            Protocol::Reduce => Op::reduce(count, reducer, root, buffers),
            Protocol::Broadcast => Op::broadcast(count, dtype, root, buffers),
            Protocol::AllGather | Protocol::AllGatherV => {
                Op::all_gather(counts, dtype, blocks, buffers)
            }
            Protocol::ReduceScatter | Protocol::ReduceScatterV => {
                Op::reduce_scatter(counts, reducer, blocks, buffers)
            }
            Protocol::AllToAll | Protocol::AllToAllV => {
                let (sent, received) = (blocks.clone(), blocks);
                Op::all_to_all(counts, dtype, sent, received, buffers)
            }
            Protocol::Gather | Protocol::GatherV => {
                Op::gather(counts, dtype, root, blocks, buffers)
            }
            Protocol::Scatter | Protocol::ScatterV => {
                Op::scatter(counts, dtype, root, blocks, buffers)
            }
            Protocol::Scan => Op::scan(count, reducer, buffers),
            Protocol::ExScan => Op::ex_scan(count, reducer, buffers),
            Protocol::AllReduceBucketed => unreachable!("it has no two buffers"),
            Protocol::Barrier => Op::barrier(),
        }
    }
}
