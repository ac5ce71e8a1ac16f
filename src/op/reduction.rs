//! Reduction operators: what the ranks of a call agree on, and how this rank applies it.
//!
//! Leaves the arithmetic to `reduce`. Invariant: the operator of a `Fold` is defined for its type.

use std::fmt;
use std::sync::Arc;

use crate::dtype::{DataType, ElementType};
use crate::error::{Error, Result};

/// Reduction operator. Values up to 4 are NCCL's; nexar's own start at 32 and are for integers.
/// Integers wrap. Each step on floats of 8 and 16 bits computes in float32 and rounds to nearest
/// even. A NaN operand gives the canonical NaN; -0 < +0. The floating-point environment of a thread
/// (rounding mode, flushed subnormals, traps) changes no result; a reduction may raise exception
/// flags.
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
    /// Not an operator. It gives the enum the range of operators created at run time (from
    /// 0x10000), which C++ needs.
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

    /// The operator with this number in C. `None` if no operator has it.
    #[inline(always)]
    pub fn from_code(code: i32) -> Option<Self> {
        let is_meant = |redop: &Self| *redop as i32 == code;
        // The number of the first operators is their index.
        let at_index = Self::ALL.get(code as usize).copied().filter(is_meant);
        at_index.or_else(|| Self::ALL.into_iter().find(is_meant))
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

/// A built-in operator on an element type for which it is defined. `reduce` can apply every value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    dtype: DataType,
    redop: RedOp,
}

impl Fold {
    /// Fails if the operator is not defined for the type.
    #[inline(always)]
    pub fn new(dtype: DataType, redop: RedOp) -> Result<Self> {
        let refused = |why| Error::Argument(format!("{} on {dtype}: {why}", redop.name()));
        match redop {
            RedOp::Sum | RedOp::Prod | RedOp::Max | RedOp::Min | RedOp::Avg => {}
            RedOp::BitAnd | RedOp::BitOr | RedOp::BitXor => {}
            RedOp::LogicalAnd | RedOp::LogicalOr | RedOp::LogicalXor => {}
            RedOp::MaxRedOp => return Err(refused("not an operator")),
        }
        if dtype == DataType::MaxDataType {
            return Err(refused("not a type"));
        }
        if redop as i32 >= RedOp::BitAnd as i32 && !dtype.is_integer() {
            return Err(refused("bitwise and logical operators take integers only"));
        }
        Ok(Self { dtype, redop })
    }

    pub fn dtype(self) -> DataType {
        self.dtype
    }

    /// The operator between `prepare` and `finish`: a sum for an average, else the same.
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

/// The type and operator on which the ranks of a call must agree. A `Reducer` says how this rank
/// applies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    pub dtype: ElementType,
    pub operator: Operator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Known(RedOp),
    /// Each rank multiplies its elements by a scalar of its own; the products are summed.
    PreMulSum,
    /// A function of the program.
    User {
        commutative: bool,
    },
}

impl Reduction {
    /// Whether operands may be exchanged.
    pub fn is_commutative(&self) -> bool {
        self.operator != Operator::User { commutative: false }
    }
}

/// How this rank executes its part of a reduction. `reduce` can apply every value.
#[derive(Clone)]
pub enum Reducer {
    Known(Fold),
    PreMulSum { sum: Fold, scalar: Scalar },
    User { dtype: ElementType, commutative: bool, function: Arc<UserFunction> },
}

/// The factor of this rank's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// The value: the first bytes are one element.
    Here([u8; 8]),
    /// An address of device memory. The value is copied before the operation begins.
    OnDevice(u64),
    /// An address of pinned host memory. With a stream, the value is copied in stream order;
    /// without one it is `now`, which was read during the call.
    Pinned { address: u64, now: [u8; 8] },
}

/// A function of the program: reduces its first argument, the left operands, into the second.
pub type UserFunction = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

impl Reducer {
    pub fn dtype(&self) -> ElementType {
        self.reduction().dtype
    }

    #[inline(always)]
    pub fn reduction(&self) -> Reduction {
        match *self {
            Self::Known(fold) => fold.into(),
            Self::PreMulSum { sum, .. } => {
                Reduction { dtype: sum.dtype.into(), operator: Operator::PreMulSum }
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
        Self { dtype: fold.dtype.into(), operator: Operator::Known(fold.redop) }
    }
}
