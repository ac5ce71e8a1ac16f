//! Element types, operators and ranks of the API, and their numbers in libnexar.

use std::ffi::c_int;
use std::fmt;

use nexar_capi::dtype;
use nexar_capi::op::RedOp;

/// Number of a rank in its communicator, from 0.
pub type Rank = u32;

/// Type of the elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataType {
    F32 = 0,
    F64 = 1,
    F16 = 2,
    BF16 = 3,
    I8 = 4,
    I32 = 5,
    I64 = 6,
    U8 = 7,
    U32 = 8,
    U64 = 9,
}

impl DataType {
    /// The size of an element in bytes.
    pub const fn size_in_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The name of the type in Rust.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I8 => "i8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// The same type in libnexar.
    pub(crate) fn native(self) -> dtype::DataType {
        match self {
            Self::F32 => dtype::DataType::Float32,
            Self::F64 => dtype::DataType::Float64,
            Self::F16 => dtype::DataType::Float16,
            Self::BF16 => dtype::DataType::Bfloat16,
            Self::I8 => dtype::DataType::Int8,
            Self::I32 => dtype::DataType::Int32,
            Self::I64 => dtype::DataType::Int64,
            Self::U8 => dtype::DataType::Uint8,
            Self::U32 => dtype::DataType::Uint32,
            Self::U64 => dtype::DataType::Uint64,
        }
    }

    pub(crate) fn code(self) -> c_int {
        self.native() as c_int
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Operator of a reduction, applied element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    Sum,
    Prod,
    Min,
    Max,
}

impl ReduceOp {
    /// The same operator in libnexar.
    pub(crate) fn native(self) -> RedOp {
        match self {
            Self::Sum => RedOp::Sum,
            Self::Prod => RedOp::Prod,
            Self::Min => RedOp::Min,
            Self::Max => RedOp::Max,
        }
    }

    pub(crate) fn code(self) -> c_int {
        self.native() as c_int
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.native().name())
    }
}

/// One region of a list that is sent or received as one message.
#[derive(Clone, Debug)]
pub struct IoVec {
    /// Address of the first byte.
    pub ptr: u64,
    /// Length in bytes.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DataType; 10] = [
        DataType::F32,
        DataType::F64,
        DataType::F16,
        DataType::BF16,
        DataType::I8,
        DataType::I32,
        DataType::I64,
        DataType::U8,
        DataType::U32,
        DataType::U64,
    ];

    #[test]
    fn every_type_has_the_size_and_kind_of_its_counterpart() {
        for dtype in TYPES {
            assert_eq!(dtype.size_in_bytes(), dtype.native().size(), "{dtype}");
            let is_integer = dtype.name().starts_with(['i', 'u']);
            assert_eq!(is_integer, dtype.native().is_integer(), "{dtype}");
        }
    }

    #[test]
    fn no_two_types_share_a_counterpart() {
        let mut codes = TYPES.map(DataType::code);
        codes.sort_unstable();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn operators_have_the_names_of_their_counterparts() {
        let ops = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];
        assert_eq!(ops.map(|op| op.to_string()), ["sum", "prod", "min", "max"]);
    }
}
