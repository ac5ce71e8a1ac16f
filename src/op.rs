//! What a caller asked for: reduction operators, the call that all ranks must agree on, and an
//! operation, which is a call with this rank's buffers.
//!
//! Nothing here moves or folds data. Invariant: every value is valid by construction; `capi`
//! has refused the rest.

use std::fmt;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::rank::Rank;

/// Reduction operator. Values up to 4 are NCCL's; nexar's own begin at 32 and take integers only.
/// Integers wrap. Floats of 8 and 16 bits are computed in float32 and rounded to nearest even at every
/// fold. A NaN operand gives the canonical NaN; -0 < +0. The floating-point environment of a thread
/// (rounding, flushed subnormals, traps) changes no result; a reduction may raise exception flags.
/// cbindgen:rename-all=prefix:nexar
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedOp {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
    /// Floats are multiplied by 1/n first, then summed; integers are summed, then divided by n,
    /// towards zero.
    Avg = 4,
    BitAnd = 32,
    BitOr = 33,
    BitXor = 34,
    /// 1 if all elements are non-zero, else 0.
    LogicalAnd = 35,
    /// 1 if any element is non-zero, else 0.
    LogicalOr = 36,
    /// 1 if an odd number of elements is non-zero, else 0.
    LogicalXor = 37,
    /// Not an operator: makes room for operators created at run time, from 0x10000, in C++.
    MaxRedOp = 0x7fffffff,
}

impl RedOp {
    /// cbindgen:ignore
    pub const ALL: [Self; 11] = [
        Self::Sum,
        Self::Prod,
        Self::Max,
        Self::Min,
        Self::Avg,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
    ];

    /// The operator a C caller means, if there is one.
    #[inline(always)]
    pub fn from_code(code: i32) -> Option<Self> {
        let is_meant = |redop: &Self| *redop as i32 == code;
        // Most stand where their number says.
        let there = Self::ALL.get(code as usize).copied().filter(is_meant);
        there.or_else(|| Self::ALL.into_iter().find(is_meant))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
            Self::BitAnd => "bitand",
            Self::BitOr => "bitor",
            Self::BitXor => "bitxor",
            Self::LogicalAnd => "logicaland",
            Self::LogicalOr => "logicalor",
            Self::LogicalXor => "logicalxor",
            Self::MaxRedOp => "none",
        }
    }
}

/// An operator on a type it is defined for. `reduce` knows how to apply every value of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    dtype: DataType,
    redop: RedOp,
}

impl Fold {
    #[inline(always)]
    pub fn new(dtype: DataType, redop: RedOp) -> Result<Self> {
        let refused = |why| Error::Argument(format!("{} on {dtype}: {why}", redop.name()));
        match redop {
            RedOp::Sum | RedOp::Prod | RedOp::Max | RedOp::Min | RedOp::Avg => {}
            RedOp::BitAnd | RedOp::BitOr | RedOp::BitXor => {}
            RedOp::LogicalAnd | RedOp::LogicalOr | RedOp::LogicalXor => {}
            RedOp::MaxRedOp => return Err(refused("not an operator")),
        }
        if redop as i32 >= RedOp::BitAnd as i32 && !dtype.is_integer() {
            return Err(refused("bitwise and logical operators take integers only"));
        }
        Ok(Self { dtype, redop })
    }

    pub fn dtype(self) -> DataType {
        self.dtype
    }

    /// Of elements that are prepared already and will be finished later.
    pub fn after_prepare(self) -> Self {
        match self.redop {
            RedOp::Avg => Self { redop: RedOp::Sum, ..self },
            _ => self,
        }
    }

    pub fn redop(self) -> RedOp {
        self.redop
    }
}

/// What the ranks of a call that folds must agree on. How this rank does it is a `Reducer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    pub dtype: DataType,
    pub operator: Operator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Known(RedOp),
    /// A sum of what each rank has multiplied by a scalar of its own.
    PreMulSum,
    /// A function of the program.
    User {
        commutative: bool,
    },
}

impl Reduction {
    /// Whether operands may change places.
    pub fn is_commutative(&self) -> bool {
        self.operator != Operator::User { commutative: false }
    }
}

/// How this rank does its part of a reduction. `reduce` knows how to apply every value.
#[derive(Clone)]
pub enum Reducer {
    Known(Fold),
    PreMulSum { sum: Fold, scalar: Scalar },
    User { dtype: DataType, commutative: bool, function: Arc<UserFunction> },
}

/// What a rank multiplies its elements by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// The first bytes are one element.
    Here([u8; 8]),
    /// It lies at this address of a device, from which it is fetched before the operation.
    OnDevice(u64),
    /// It lies at this address, which a device reaches too: fetched in the order of a stream; without one it is
    /// what was there when the call was made.
    Pinned { address: u64, now: [u8; 8] },
}

/// A function of the program: folds the left operands, which come first, into the right ones.
pub type UserFunction = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

impl Reducer {
    pub fn dtype(&self) -> DataType {
        self.reduction().dtype
    }

    pub fn reduction(&self) -> Reduction {
        match *self {
            Self::Known(fold) => fold.into(),
            Self::PreMulSum { sum, .. } => {
                Reduction { dtype: sum.dtype, operator: Operator::PreMulSum }
            }
            Self::User { dtype, commutative, .. } => {
                Reduction { dtype, operator: Operator::User { commutative } }
            }
        }
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            Operator::Known(redop) => redop.name(),
            Operator::PreMulSum => "premulsum",
            Operator::User { commutative: true } => "user",
            Operator::User { commutative: false } => "user in rank order",
        };
        write!(f, "{}, {operator}", self.dtype)
    }
}

impl From<Fold> for Reduction {
    fn from(fold: Fold) -> Self {
        Self { dtype: fold.dtype, operator: Operator::Known(fold.redop) }
    }
}

/// How many elements a call moves, as far as all ranks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// As many in every block.
    Each(usize),
    /// A list that every rank passes alike, by its sum and its digest: the list itself does not travel.
    Listed { total: usize, digest: u32 },
    /// Each pair of ranks has its own.
    Pairwise,
}

impl Counts {
    pub fn listed(counts: &[usize]) -> Self {
        let bytes: Vec<_> = counts.iter().flat_map(|count| (*count as u64).to_le_bytes()).collect();
        Self::Listed { total: counts.iter().sum(), digest: crc32c::crc32c(&bytes) }
    }
}

/// What every rank of a communicator must say alike when it makes its call number `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    AllReduce {
        count: usize,
        reduction: Reduction,
    },
    Reduce {
        count: usize,
        reduction: Reduction,
        root: Rank,
    },
    Broadcast {
        count: usize,
        dtype: DataType,
        root: Rank,
    },
    AllGather {
        counts: Counts,
        dtype: DataType,
    },
    ReduceScatter {
        counts: Counts,
        reduction: Reduction,
    },
    AllToAll {
        counts: Counts,
        dtype: DataType,
    },
    Gather {
        counts: Counts,
        dtype: DataType,
        root: Rank,
    },
    Scatter {
        counts: Counts,
        dtype: DataType,
        root: Rank,
    },
    Scan {
        count: usize,
        reduction: Reduction,
    },
    ExScan {
        count: usize,
        reduction: Reduction,
    },
    AllReduceBucketed {
        counts: Counts,
        reduction: Reduction,
    },
    Barrier,
    /// Every rank tells where it wants to belong, which the others need not agree with.
    Split,
}

impl Call {
    pub fn name(&self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "AllReduce",
            Self::Reduce { .. } => "Reduce",
            Self::Broadcast { .. } => "Broadcast",
            Self::AllGather { counts: Counts::Each(_), .. } => "AllGather",
            Self::AllGather { .. } => "AllGatherV",
            Self::ReduceScatter { counts: Counts::Each(_), .. } => "ReduceScatter",
            Self::ReduceScatter { .. } => "ReduceScatterV",
            Self::AllToAll { counts: Counts::Each(_), .. } => "AllToAll",
            Self::AllToAll { .. } => "AllToAllV",
            Self::Gather { counts: Counts::Each(_), .. } => "Gather",
            Self::Gather { .. } => "GatherV",
            Self::Scatter { counts: Counts::Each(_), .. } => "Scatter",
            Self::Scatter { .. } => "ScatterV",
            Self::Scan { .. } => "Scan",
            Self::ExScan { .. } => "ExScan",
            Self::AllReduceBucketed { .. } => "AllReduceBucketed",
            Self::Barrier => "Barrier",
            Self::Split => "Split",
        }
    }

    /// How the operands are folded, if they are.
    pub fn reduction(&self) -> Option<&Reduction> {
        match self {
            Self::AllReduce { reduction, .. } | Self::Reduce { reduction, .. } => Some(reduction),
            Self::ReduceScatter { reduction, .. } => Some(reduction),
            Self::Scan { reduction, .. } | Self::ExScan { reduction, .. } => Some(reduction),
            Self::AllReduceBucketed { reduction, .. } => Some(reduction),
            Self::Broadcast { .. } | Self::AllGather { .. } | Self::AllToAll { .. } => None,
            Self::Gather { .. } | Self::Scatter { .. } => None,
            Self::Barrier | Self::Split => None,
        }
    }

    /// Whether a function of the program folds them: nobody knows how long it takes.
    pub fn calls_program(&self) -> bool {
        let operator = self.reduction().map(|reduction| reduction.operator);
        matches!(operator, Some(Operator::User { .. }))
    }

    pub fn dtype(&self) -> Option<DataType> {
        match self {
            Self::Broadcast { dtype, .. } | Self::AllGather { dtype, .. } => Some(*dtype),
            Self::AllToAll { dtype, .. } => Some(*dtype),
            Self::Gather { dtype, .. } | Self::Scatter { dtype, .. } => Some(*dtype),
            other => other.reduction().map(|reduction| reduction.dtype),
        }
    }

    pub fn counts(&self) -> Counts {
        match *self {
            Self::AllReduce { count, .. } | Self::Reduce { count, .. } => Counts::Each(count),
            Self::Broadcast { count, .. } => Counts::Each(count),
            Self::Scan { count, .. } | Self::ExScan { count, .. } => Counts::Each(count),
            Self::AllGather { counts, .. } | Self::ReduceScatter { counts, .. } => counts,
            Self::AllToAll { counts, .. } | Self::AllReduceBucketed { counts, .. } => counts,
            Self::Gather { counts, .. } | Self::Scatter { counts, .. } => counts,
            Self::Barrier | Self::Split => Counts::Each(0),
        }
    }

    pub fn root(&self) -> Option<Rank> {
        match *self {
            Self::Reduce { root, .. } | Self::Broadcast { root, .. } => Some(root),
            Self::Gather { root, .. } | Self::Scatter { root, .. } => Some(root),
            _ => None,
        }
    }

    /// Bytes of the count that the caller names: of one block, or of all together where a list
    /// names them. Zero where each rank knows but its own.
    pub fn bytes(&self) -> usize {
        let count = match self.counts() {
            Counts::Each(count) | Counts::Listed { total: count, .. } => count,
            Counts::Pairwise => 0,
        };
        self.dtype().map_or(0, |dtype| count * dtype.size())
    }

    /// Whether all ranks know that there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.counts() == Counts::Each(0) && !self.is_without_data()
    }

    /// Whether the caller passes no elements at all.
    fn is_without_data(&self) -> bool {
        matches!(self, Self::Barrier | Self::Split)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name())?;
        match self.counts() {
            _ if self.is_without_data() => {}
            Counts::Each(count) => write!(f, "{count} x ")?,
            Counts::Listed { total, digest } => write!(f, "{total} by list {digest:08x} x ")?,
            Counts::Pairwise => {}
        }
        match (self.reduction(), self.dtype()) {
            (Some(reduction), _) => write!(f, "{reduction}")?,
            (None, Some(dtype)) => write!(f, "{dtype}")?,
            (None, None) => {}
        }
        match self.root() {
            Some(root) => write!(f, ", root {})", root.0),
            None => write!(f, ")"),
        }
    }
}

/// A call with this rank's buffers: all that is needed to perform it.
pub enum Op<'a> {
    AllReduce {
        count: usize,
        reducer: Reducer,
        buffers: Buffers<'a>,
    },
    Reduce {
        count: usize,
        reducer: Reducer,
        root: Rank,
        buffers: Buffers<'a>,
    },
    Broadcast {
        count: usize,
        dtype: DataType,
        root: Rank,
        buffers: Buffers<'a>,
    },
    /// `blocks` of the output, one from each rank.
    AllGather {
        counts: Counts,
        dtype: DataType,
        blocks: Blocks,
        buffers: Buffers<'a>,
    },
    /// `blocks` of the input, one for each rank.
    ReduceScatter {
        counts: Counts,
        reducer: Reducer,
        blocks: Blocks,
        buffers: Buffers<'a>,
    },
    /// `sent` blocks of the input, `received` of the output: the same if in place.
    AllToAll {
        counts: Counts,
        dtype: DataType,
        sent: Blocks,
        received: Blocks,
        buffers: Buffers<'a>,
    },
    /// `blocks` of the root's output.
    Gather {
        counts: Counts,
        dtype: DataType,
        root: Rank,
        blocks: Blocks,
        buffers: Buffers<'a>,
    },
    /// `blocks` of the root's input.
    Scatter {
        counts: Counts,
        dtype: DataType,
        root: Rank,
        blocks: Blocks,
        buffers: Buffers<'a>,
    },
    Scan {
        count: usize,
        reducer: Reducer,
        buffers: Buffers<'a>,
    },
    ExScan {
        count: usize,
        reducer: Reducer,
        buffers: Buffers<'a>,
    },
    AllReduceBucketed {
        counts: Counts,
        reducer: Reducer,
        buckets: Vec<&'a mut [u8]>,
    },
    Barrier,
    /// `wishes` has an entry of each rank; this rank's own is in its place.
    Split {
        wishes: &'a mut [u8],
    },
}

impl Op<'_> {
    /// How much this rank reads.
    pub fn input_bytes(&self) -> usize {
        match self {
            Self::AllReduce { buffers, .. }
            | Self::Reduce { buffers, .. }
            | Self::Broadcast { buffers, .. }
            | Self::AllGather { buffers, .. }
            | Self::ReduceScatter { buffers, .. }
            | Self::AllToAll { buffers, .. }
            | Self::Gather { buffers, .. }
            | Self::Scatter { buffers, .. }
            | Self::Scan { buffers, .. }
            | Self::ExScan { buffers, .. } => buffers.input().len(),
            Self::AllReduceBucketed { buckets, .. } => buckets.iter().map(|b| b.len()).sum(),
            Self::Split { wishes } => wishes.len(),
            Self::Barrier => 0,
        }
    }

    /// Where a stream is to fetch this rank's scalar, and how many bytes it has.
    pub fn scalar_of_stream(&self) -> Option<(u64, usize)> {
        match self {
            Self::AllReduce { reducer, .. }
            | Self::Reduce { reducer, .. }
            | Self::ReduceScatter { reducer, .. }
            | Self::Scan { reducer, .. }
            | Self::ExScan { reducer, .. }
            | Self::AllReduceBucketed { reducer, .. } => match reducer {
                Reducer::PreMulSum {
                    sum,
                    scalar: Scalar::OnDevice(address) | Scalar::Pinned { address, .. },
                } => Some((*address, sum.dtype().size())),
                _ => None,
            },
            Self::Broadcast { .. } | Self::AllGather { .. } | Self::AllToAll { .. } => None,
            Self::Gather { .. } | Self::Scatter { .. } => None,
            Self::Barrier | Self::Split { .. } => None,
        }
    }

    /// The buffers that the caller named, as it named them.
    pub fn memory(&self) -> Vec<(&'static str, &[u8])> {
        match self {
            Self::AllReduce { buffers, .. }
            | Self::Reduce { buffers, .. }
            | Self::Broadcast { buffers, .. }
            | Self::AllGather { buffers, .. }
            | Self::ReduceScatter { buffers, .. }
            | Self::AllToAll { buffers, .. }
            | Self::Gather { buffers, .. }
            | Self::Scatter { buffers, .. }
            | Self::Scan { buffers, .. }
            | Self::ExScan { buffers, .. } => match buffers {
                Buffers::Apart { input, output } => vec![("sendbuff", input), ("recvbuff", output)],
                Buffers::Shared { both } => vec![("recvbuff", both)],
            },
            Self::AllReduceBucketed { buckets, .. } => {
                buckets.iter().map(|bucket| ("a buffer of buffs", &**bucket)).collect()
            }
            Self::Barrier | Self::Split { .. } => Vec::new(),
        }
    }

    #[inline(always)]
    pub fn call(&self) -> Call {
        match *self {
            Self::AllReduce { count, ref reducer, .. } => {
                Call::AllReduce { count, reduction: reducer.reduction() }
            }
            Self::Reduce { count, ref reducer, root, .. } => {
                Call::Reduce { count, reduction: reducer.reduction(), root }
            }
            Self::Broadcast { count, dtype, root, .. } => Call::Broadcast { count, dtype, root },
            Self::AllGather { counts, dtype, .. } => Call::AllGather { counts, dtype },
            Self::ReduceScatter { counts, ref reducer, .. } => {
                Call::ReduceScatter { counts, reduction: reducer.reduction() }
            }
            Self::AllToAll { counts, dtype, .. } => Call::AllToAll { counts, dtype },
            Self::Gather { counts, dtype, root, .. } => Call::Gather { counts, dtype, root },
            Self::Scatter { counts, dtype, root, .. } => Call::Scatter { counts, dtype, root },
            Self::Scan { count, ref reducer, .. } => {
                Call::Scan { count, reduction: reducer.reduction() }
            }
            Self::ExScan { count, ref reducer, .. } => {
                Call::ExScan { count, reduction: reducer.reduction() }
            }
            Self::AllReduceBucketed { counts, ref reducer, .. } => {
                Call::AllReduceBucketed { counts, reduction: reducer.reduction() }
            }
            Self::Barrier => Call::Barrier,
            Self::Split { .. } => Call::Split,
        }
    }
}
