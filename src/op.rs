//! What a caller asked for: reduction operators, the call that all ranks must agree on, and an
//! operation, which is a call with this rank's buffers.
//!
//! Nothing here moves or folds data. Invariant: every value is valid by construction; `capi`
//! has refused the rest.

use std::fmt;

use crate::buffer::Buffers;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::rank::Rank;

/// Reduction operator. Values up to 4 are NCCL's; nexar's own begin at 32 and take integers only.
/// Integers wrap. float16 and bfloat16 are computed in float32 and rounded to nearest even at every
/// fold. A NaN operand gives the canonical NaN; -0 < +0.
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
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|redop| *redop as i32 == code)
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

    pub fn redop(self) -> RedOp {
        self.redop
    }
}

/// What every rank of a communicator must say alike when it makes its call number `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    AllReduce { count: usize, fold: Fold },
    Reduce { count: usize, fold: Fold, root: Rank },
    Broadcast { count: usize, dtype: DataType, root: Rank },
    AllGather { count: usize, dtype: DataType },
    ReduceScatter { count: usize, fold: Fold },
    Barrier,
}

impl Call {
    pub fn name(&self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "AllReduce",
            Self::Reduce { .. } => "Reduce",
            Self::Broadcast { .. } => "Broadcast",
            Self::AllGather { .. } => "AllGather",
            Self::ReduceScatter { .. } => "ReduceScatter",
            Self::Barrier => "Barrier",
        }
    }

    /// Bytes of the count that the caller names.
    pub fn bytes(&self) -> usize {
        match *self {
            Self::AllReduce { count, fold } | Self::Reduce { count, fold, .. } => {
                count * fold.dtype().size()
            }
            Self::ReduceScatter { count, fold } => count * fold.dtype().size(),
            Self::Broadcast { count, dtype, .. } | Self::AllGather { count, dtype } => {
                count * dtype.size()
            }
            Self::Barrier => 0,
        }
    }

    /// Elements named by the caller; a call of zero elements needs no communication.
    pub fn is_empty(&self) -> bool {
        match *self {
            Self::AllReduce { count, .. } | Self::Reduce { count, .. } => count == 0,
            Self::Broadcast { count, .. } | Self::AllGather { count, .. } => count == 0,
            Self::ReduceScatter { count, .. } => count == 0,
            Self::Barrier => false,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::AllReduce { count, fold } | Self::ReduceScatter { count, fold } => {
                write!(f, "{name}({count} x {}, {})", fold.dtype, fold.redop.name())
            }
            Self::Reduce { count, fold, root } => {
                let redop = fold.redop.name();
                write!(f, "{name}({count} x {}, {redop}, root {})", fold.dtype, root.0)
            }
            Self::Broadcast { count, dtype, root } => {
                write!(f, "{name}({count} x {dtype}, root {})", root.0)
            }
            Self::AllGather { count, dtype } => write!(f, "{name}({count} x {dtype})"),
            Self::Barrier => write!(f, "{name}()"),
        }
    }
}

/// A call with this rank's buffers: all that is needed to perform it.
pub struct Op<'a> {
    pub call: Call,
    pub buffers: Buffers<'a>,
}
