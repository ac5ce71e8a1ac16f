//! Element types of the buffers. This enum is also `nexarDataType_t` of the header.

use std::fmt;

/// Type of the elements of a buffer. Values up to 11 are NCCL's; nexar's own start at 32.
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
        }
    }

    pub fn is_integer(self) -> bool {
        match self {
            Self::Int8 | Self::Uint8 | Self::Int16 | Self::Uint16 => true,
            Self::Int32 | Self::Uint32 | Self::Int64 | Self::Uint64 => true,
            Self::Float16 | Self::Bfloat16 | Self::Float32 | Self::Float64 => false,
            Self::Float8e4m3 | Self::Float8e5m2 => false,
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
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
}
