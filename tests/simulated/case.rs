//! A collective call of a test: its parameters, its input and its `Op` on every rank.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use nexar::blocks::Blocks;
use nexar::buffer::Buffers;
use nexar::dtype::{DataType, ElementSize, ElementType};
use nexar::op::{Call, Counts, Fold, Op, RedOp, Reducer};
use nexar::rank::Rank;

/// The collectives of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
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

impl Collective {
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

    /// The folder of its algorithms in `src/collective`.
    pub fn folder(self) -> &'static str {
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
        use Collective::*;
        matches!(self, Reduce | Broadcast | Gather | GatherV | Scatter | ScatterV)
    }

    pub fn folds(self) -> bool {
        use Collective::*;
        let scans = matches!(self, Scan | ExScan);
        scans
            || matches!(self, AllReduce | Reduce | ReduceScatter | ReduceScatterV)
            || self == AllReduceBucketed
    }
}

#[derive(Clone)]
pub struct Case {
    pub collective: Collective,
    pub count: usize,
    /// For a call that does not reduce, only its data type is used.
    pub reducer: Reducer,
    pub root: usize,
    pub size: usize,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, count, reducer, root, size } = self;
        write!(f, "{collective:?}({count} x {}, root {root}) of {size}", reducer.reduction())
    }
}

pub fn known(dtype: DataType, redop: RedOp) -> Option<Reducer> {
    Fold::new(dtype, redop).ok().map(Reducer::Known)
}

pub fn sum() -> Reducer {
    known(DataType::Float32, RedOp::Sum).unwrap()
}

/// Each element is a map x -> a x + b of 32-bit integers, and the fold composes maps. It is exactly
/// associative and does not commute.
pub fn maps() -> Reducer {
    let compose = |left: &[u8], right: &mut [u8]| {
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
    let function = Arc::new(compose);
    Reducer::User { dtype: DataType::Uint64.into(), commutative: false, function }
}

/// A user-defined operator that commutes.
pub fn xor() -> Reducer {
    let function = |left: &[u8], right: &mut [u8]| {
        left.iter().zip(right).for_each(|(left, right)| *right ^= left);
    };
    Reducer::User { dtype: DataType::Int16.into(), commutative: true, function: Arc::new(function) }
}

/// A function on opaque elements of this many bytes, which fails on a part of an element. Each two
/// bytes are a map x -> a x + b of 8-bit integers, mixed with their position in the element, and
/// the fold composes maps; a byte that is left over is added. It is exactly associative; if it
/// commutes, all bytes are added.
pub fn opaque(bytes: usize, commutative: bool) -> Reducer {
    let fold = move |left: &[u8], right: &mut [u8]| {
        assert!(left.len() == right.len() && left.len().is_multiple_of(bytes), "whole elements");
        for (left, right) in left.chunks_exact(bytes).zip(right.chunks_exact_mut(bytes)) {
            let pairs = if commutative { 0 } else { bytes / 2 };
            for pair in 0..pairs {
                let (at, mix) = (2 * pair, pair as u8);
                let [(a, b), (c, d)] =
                    [left, &*right].map(|map| (map[at] ^ mix, map[at + 1] ^ mix));
                right[at] = a.wrapping_mul(c) ^ mix;
                right[at + 1] = b.wrapping_mul(c).wrapping_add(d) ^ mix;
            }
            for at in 2 * pairs..bytes {
                right[at] = right[at].wrapping_add(left[at]).wrapping_add(at as u8);
            }
        }
    };
    let dtype = ElementType::Opaque(ElementSize::new(bytes).unwrap());
    Reducer::User { dtype, commutative, function: Arc::new(fold) }
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

    /// The counts of a V collective: different for each rank, some of them zero.
    fn varying(&self) -> Vec<usize> {
        let count = |rank| if rank % 3 == 1 { 0 } else { self.count + rank };
        (0..self.size).map(count).collect()
    }

    /// The count that two ranks exchange, the same both ways, as in-place calls require.
    fn pairwise(&self, one: usize, other: usize) -> usize {
        let (low, high) = (one.min(other), one.max(other));
        if (low + 2 * high) % 5 == 4 { 0 } else { self.count + 3 * low + high }
    }

    /// Blocks in descending order of ranks, with gaps of one element.
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

    /// The blocks of a rank's longer buffer; in an all-to-all, of both buffers.
    pub fn blocks(&self, rank: usize) -> Blocks {
        match self.collective {
            Collective::AllGatherV | Collective::GatherV | Collective::ScatterV => {
                self.scattered(&self.varying())
            }
            Collective::AllToAllV => {
                let counts: Vec<_> = (0..self.size).map(|peer| self.pairwise(rank, peer)).collect();
                self.scattered(&counts)
            }
            Collective::ReduceScatterV => {
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
        match self.collective {
            Collective::Barrier => 0,
            Collective::AllGather
            | Collective::AllGatherV
            | Collective::Gather
            | Collective::GatherV => blocks.get(rank).len(),
            Collective::Broadcast if rank != self.root => 0,
            Collective::Scatter | Collective::ScatterV if rank != self.root => 0,
            Collective::ReduceScatter
            | Collective::ReduceScatterV
            | Collective::Scatter
            | Collective::ScatterV => blocks.extent(),
            Collective::AllToAll | Collective::AllToAllV => blocks.extent(),
            _ => self.count * self.element(),
        }
    }

    pub fn output_bytes(&self, rank: usize) -> usize {
        let blocks = self.blocks(rank);
        match self.collective {
            Collective::Barrier => 0,
            Collective::Reduce | Collective::Gather | Collective::GatherV if rank != self.root => 0,
            Collective::ReduceScatter
            | Collective::ReduceScatterV
            | Collective::Scatter
            | Collective::ScatterV => blocks.get(rank).len(),
            Collective::AllGather
            | Collective::AllGatherV
            | Collective::Gather
            | Collective::GatherV => blocks.extent(),
            Collective::AllToAll | Collective::AllToAllV => blocks.extent(),
            _ => self.count * self.element(),
        }
    }

    /// The offsets of input and output in a common buffer. `None` if the call cannot be in place.
    pub fn in_place(&self, rank: usize) -> Option<(usize, usize)> {
        let own = self.blocks(rank).get(rank);
        match self.collective {
            Collective::Barrier | Collective::AllReduceBucketed => None,
            Collective::Reduce | Collective::Gather | Collective::GatherV if rank != self.root => {
                None
            }
            Collective::Scatter | Collective::ScatterV if rank != self.root => None,
            // An empty block has no address, so such a call cannot be in place.
            Collective::AllGatherV
            | Collective::GatherV
            | Collective::ReduceScatterV
            | Collective::ScatterV
                if own.is_empty() =>
            {
                None
            }
            Collective::AllGather
            | Collective::AllGatherV
            | Collective::Gather
            | Collective::GatherV => Some((own.start, 0)),
            Collective::ReduceScatter
            | Collective::ReduceScatterV
            | Collective::Scatter
            | Collective::ScatterV => Some((0, own.start)),
            _ => Some((0, 0)),
        }
    }

    /// Indices of the bytes in the output of an all-to-all that belong to no block.
    pub fn gaps(&self, rank: usize) -> Vec<usize> {
        if self.collective != Collective::AllToAllV {
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
        match self.collective {
            Collective::AllGatherV | Collective::ReduceScatterV => Counts::listed(&self.varying()),
            Collective::AllToAllV | Collective::GatherV | Collective::ScatterV => Counts::Pairwise,
            Collective::AllReduceBucketed => Counts::listed(&self.bucket_counts()),
            _ => Counts::Each(self.count),
        }
    }

    pub fn call(&self) -> Call {
        match self.collective {
            Collective::AllReduceBucketed => {
                Call::all_reduce_bucketed(self.counts(), self.reducer.reduction())
            }
            _ => self.op(0, Buffers::Shared { both: &mut [] }).call(),
        }
    }

    pub fn op<'a>(&self, rank: usize, buffers: Buffers<'a>) -> Op<'a> {
        let (count, counts, root) = (self.count, self.counts(), Rank(self.root));
        let (reducer, dtype) = (self.reducer.clone(), self.reducer.dtype());
        let blocks = self.blocks(rank);
        match self.collective {
            Collective::AllReduce => Op::all_reduce(count, reducer, buffers),
            Collective::Reduce => Op::reduce(count, reducer, root, buffers),
            Collective::Broadcast => Op::broadcast(count, dtype, root, buffers),
            Collective::AllGather | Collective::AllGatherV => {
                Op::all_gather(counts, dtype, blocks, buffers)
            }
            Collective::ReduceScatter | Collective::ReduceScatterV => {
                Op::reduce_scatter(counts, reducer, blocks, buffers)
            }
            Collective::AllToAll | Collective::AllToAllV => {
                let (sent, received) = (blocks.clone(), blocks);
                Op::all_to_all(counts, dtype, sent, received, buffers)
            }
            Collective::Gather | Collective::GatherV => {
                Op::gather(counts, dtype, root, blocks, buffers)
            }
            Collective::Scatter | Collective::ScatterV => {
                Op::scatter(counts, dtype, root, blocks, buffers)
            }
            Collective::Scan => Op::scan(count, reducer, buffers),
            Collective::ExScan => Op::ex_scan(count, reducer, buffers),
            Collective::AllReduceBucketed => unreachable!("it has a list of buffers"),
            Collective::Barrier => Op::barrier(),
        }
    }
}
