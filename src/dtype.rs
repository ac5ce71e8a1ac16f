//! Element types of the buffers: those of the header, and opaque elements of any size.
//!
//! `DataType` is also `nexarDataType_t` of the header. Leaves to `capi` the numbers of the types
//! that a program creates. Invariant: two element types are equal exactly if they are the same
//! built-in type, or opaque elements of the same size.

use std::fmt;

/// Type of the elements of a buffer. Values up to 11 are NCCL's; nexar's own start at 32. Those of
/// nexarDataTypeCreate start at 0x10000.
/// cbindgen:rename-all=prefix:nexar
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    /// IEEE 754 binary16.
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    /// The upper half of a float32.
    Bfloat16 = 9,
    /// OCP E4M3: 4 exponent bits, largest number 448, no infinity. Each reduction step computes in
    /// float32 and rounds to nearest even; larger results become 448, as in NCCL. The canonical NaN
    /// is 0x7f.
    Float8e4m3 = 10,
    /// OCP E5M2: 5 exponent bits, largest number 57344. Each reduction step computes in float32 and
    /// rounds to nearest even; larger results become infinity. The canonical NaN is 0x7e.
    Float8e5m2 = 11,
    Int16 = 32,
    Uint16 = 33,
    /// Not a type. It gives the enum the range of types created at run time (from 0x10000), which
    /// C++ needs.
    MaxDataType = 0x7fffffff,
}

impl DataType {
    /// cbindgen:ignore
    pub const ALL: [Self; 14] = [
        Self::Int8,
        Self::Uint8,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::Float16,
        Self::Float32,
        Self::Float64,
        Self::Bfloat16,
        Self::Float8e4m3,
        Self::Float8e5m2,
        Self::Int16,
        Self::Uint16,
    ];

    /// The type with this number in C. `None` if no type has it.
    #[inline(always)]
    pub fn from_code(code: i32) -> Option<Self> {
        let is_meant = |dtype: &Self| *dtype as i32 == code;
        // The number of most types is their index.
        let at_index = Self::ALL.get(code as usize).copied().filter(is_meant);
        at_index.or_else(|| Self::ALL.into_iter().find(is_meant))
    }

    /// The size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Float8e4m3 | Self::Float8e5m2 => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
            Self::MaxDataType => 0,
        }
    }

    pub fn is_integer(self) -> bool {
        match self {
            Self::Int8 | Self::Uint8 | Self::Int16 | Self::Uint16 => true,
            Self::Int32 | Self::Uint32 | Self::Int64 | Self::Uint64 => true,
            Self::Float16 | Self::Bfloat16 | Self::Float32 | Self::Float64 => false,
            Self::Float8e4m3 | Self::Float8e5m2 | Self::MaxDataType => false,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Bfloat16 => "bfloat16",
            Self::Float8e4m3 => "float8e4m3",
            Self::Float8e5m2 => "float8e5m2",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::MaxDataType => "none",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of the elements of a call or a message, on which its ranks must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// A type of the header.
    Known(DataType),
    /// Elements of which only the size is known. Only functions of the program reduce them.
    Opaque(ElementSize),
}

/// The size of an opaque element in bytes: 1 to `MOST`.
/// cbindgen:ignore
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementSize(u32);

impl ElementSize {
    /// The size is sent in `BITS` bits, less one.
    /// cbindgen:ignore
    pub const BITS: u32 = 22;
    /// cbindgen:ignore
    pub const MOST: usize = 1 << Self::BITS;

    /// `None` if no element has this size.
    pub const fn new(bytes: usize) -> Option<Self> {
        if 1 <= bytes && bytes <= Self::MOST { Some(Self(bytes as u32)) } else { None }
    }

    #[inline(always)]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl ElementType {
    /// The size of an element in bytes.
    #[inline(always)]
    pub fn size(self) -> usize {
        match self {
            Self::Known(dtype) => dtype.size(),
            Self::Opaque(size) => size.get(),
        }
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::Known(dtype) if dtype.is_integer())
    }

    /// The length of as many whole elements as `most` bytes hold, but of one at least. `most` is a
    /// multiple of the size of every built-in type.
    #[inline(always)]
    pub fn whole(self, most: usize) -> usize {
        match self {
            Self::Known(_) => most,
            Self::Opaque(size) => (most / size.get()).max(1) * size.get(),
        }
    }
}

impl From<DataType> for ElementType {
    #[inline(always)]
    fn from(dtype: DataType) -> Self {
        Self::Known(dtype)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(dtype) => dtype.fmt(f),
            Self::Opaque(size) => write!(f, "{}-byte elements", size.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_code_and_no_other_code_is_a_type() {
        for code in -1000..1000 {
            match DataType::from_code(code) {
                Some(dtype) => assert_eq!(dtype as i32, code),
                None => assert!(DataType::ALL.iter().all(|dtype| *dtype as i32 != code)),
            }
        }
        assert_eq!(DataType::from_code(i32::MIN), None);
        assert_eq!(DataType::from_code(i32::MAX), None);
    }

    #[test]
    fn an_opaque_element_has_a_size_from_one_byte_to_the_limit() {
        let opaque = |bytes| ElementSize::new(bytes).map(ElementType::Opaque);
        assert_eq!((opaque(0), opaque(ElementSize::MOST + 1)), (None, None));
        for bytes in [1, 12, ElementSize::MOST] {
            assert_eq!(opaque(bytes).unwrap().size(), bytes);
            assert_eq!(opaque(bytes).unwrap().to_string(), format!("{bytes}-byte elements"));
        }
        assert_ne!(opaque(4).unwrap(), DataType::Float32.into(), "agreement is on the type");
    }

    #[test]
    fn a_limit_is_rounded_down_to_whole_elements_but_never_to_none() {
        let whole = |bytes, most| ElementType::Opaque(ElementSize::new(bytes).unwrap()).whole(most);
        assert_eq!([whole(12, 4096), whole(12, 12), whole(12, 8)], [4092, 12, 12]);
        assert_eq!(whole(100_000, 65_536), 100_000);
        assert_eq!(ElementType::from(DataType::Float64).whole(4096), 4096);
    }
}
