//! The kind of memory at an address, as the driver reports it.
//!
//! Leaves to others what follows from it. Invariant: memory counts as plain only if the driver does
//! not know it or cannot be queried. Nothing is cached: the program may reuse an address for memory
//! of another kind.

use std::ops::Range;

use cudarc::driver::sys::{CUmemorytype, CUresult};

use crate::device::calls::{Attributes, OrCudaError};
use crate::device::context::Device;
use crate::device::driver;
use crate::device::driver::{Driver, DriverError};
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryKind {
    /// Memory of the program that CUDA does not know.
    Plain,
    /// Memory of the program that devices reach.
    Pinned,
    Device {
        ordinal: i32,
    },
    /// Memory that migrates between the host and devices. The library copies it through the driver
    /// only: on some hosts a processor cannot access it while a device works.
    Managed {
        ordinal: i32,
    },
}

/// Queries the driver for both ends of a range. `name`: the argument's name, for error texts. An
/// empty range is plain. If no context is current in this thread, the query uses the context of
/// `device` or, without one, any active primary context. Fails if the two ends differ.
pub fn kind_of(name: &str, range: &Range<usize>, device: Option<&Device>) -> Result<MemoryKind> {
    let Some(driver) = driver() else { return Ok(MemoryKind::Plain) };
    if range.is_empty() {
        return Ok(MemoryKind::Plain);
    }
    let first = at(driver, name, range.start, device)?;
    let last = match range.len() {
        1 => first,
        _ => at(driver, name, range.end - 1, device)?,
    };
    if first == last {
        return Ok(first);
    }
    Err(Error::Argument(format!(
        "{name} begins in {first} and ends, {} bytes further, in {last}",
        range.len()
    )))
}

fn at(
    driver: &'static Driver,
    name: &str,
    address: usize,
    device: Option<&Device>,
) -> Result<MemoryKind> {
    const DEINITIALIZED: u32 = CUresult::CUDA_ERROR_DEINITIALIZED as u32;
    const INVALID_CONTEXT: u32 = CUresult::CUDA_ERROR_INVALID_CONTEXT as u32;
    const CONTEXT_IS_DESTROYED: u32 = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED as u32;
    match driver.attributes(address as u64) {
        // The process is ending: the driver has shut down, but the program's own memory still
        // exists.
        Err(DriverError { code: DEINITIALIZED, .. }) => Ok(MemoryKind::Plain),
        Err(DriverError { code: INVALID_CONTEXT | CONTEXT_IS_DESTROYED, .. }) => {
            in_active_context(driver, name, address, device)
        }
        answer => parse(&answer.or_cuda_error()?, name, address),
    }
}

/// Repeats the query, for a thread without a context, in any active context: addresses are the same
/// in all of them. If no context is active, the memory counts as plain.
fn in_active_context(
    driver: &'static Driver,
    name: &str,
    address: usize,
    device: Option<&Device>,
) -> Result<MemoryKind> {
    let query = |device: &Device| {
        let _entered = device.enter()?;
        parse(&driver.attributes(address as u64).or_cuda_error()?, name, address)
    };
    if let Some(device) = device {
        return query(device);
    }
    for ordinal in 0..driver.device_count() as i32 {
        let device = driver.device(ordinal).or_cuda_error()?;
        if driver.primary_is_active(device).or_cuda_error()? {
            return query(&Device::primary(ordinal)?);
        }
    }
    Ok(MemoryKind::Plain)
}

fn parse(attributes: &Attributes, name: &str, address: usize) -> Result<MemoryKind> {
    const HOST: u64 = CUmemorytype::CU_MEMORYTYPE_HOST as u64;
    const DEVICE: u64 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u64;
    let ordinal = attributes.ordinal;
    match attributes.memory_type {
        0 => Ok(MemoryKind::Plain),
        _ if attributes.is_managed => Ok(MemoryKind::Managed { ordinal }),
        // Registered memory may have a second address, which only devices can access.
        HOST if attributes.host != address as u64 => Ok(MemoryKind::Device { ordinal }),
        HOST => Ok(MemoryKind::Pinned),
        DEVICE => Ok(MemoryKind::Device { ordinal }),
        other => Err(Error::Argument(format!("{name} is memory of CUDA's unknown type {other}"))),
    }
}

impl std::fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain => f.write_str("memory that CUDA does not know"),
            Self::Pinned => f.write_str("pinned memory"),
            Self::Device { ordinal } => write!(f, "memory of device {ordinal}"),
            Self::Managed { ordinal } => write!(f, "managed memory of device {ordinal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(memory_type: u64, is_managed: bool, ordinal: i32) -> Result<MemoryKind> {
        parse(&Attributes { memory_type, is_managed, ordinal, host: 64 }, "sendbuff", 64)
    }

    #[test]
    fn the_driver_decides_the_kind_and_managed_precedes_the_type() {
        assert_eq!(parsed(0, false, 7).unwrap(), MemoryKind::Plain);
        assert_eq!(parsed(1, false, 0).unwrap(), MemoryKind::Pinned);
        assert_eq!(parsed(2, false, 3).unwrap(), MemoryKind::Device { ordinal: 3 });
        assert_eq!(parsed(1, true, 1).unwrap(), MemoryKind::Managed { ordinal: 1 });
        assert_eq!(parsed(2, true, 1).unwrap(), MemoryKind::Managed { ordinal: 1 });
        let alias = Attributes { memory_type: 1, is_managed: false, ordinal: 2, host: 64 };
        assert_eq!(parse(&alias, "sendbuff", 128).unwrap(), MemoryKind::Device { ordinal: 2 });
        let text = parsed(3, false, 0).err().unwrap().to_string();
        assert_eq!(text, "sendbuff is memory of CUDA's unknown type 3");
    }
}
