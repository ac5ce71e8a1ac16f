//! What memory is at an address, as the driver says.
//!
//! Leaves to others what follows from it. Invariant: memory is called plain only if the driver does
//! not know it, or nobody can ask. Nothing is remembered: addresses are used again, for memory of
//! another kind.

use std::ops::Range;

use cudarc::driver::sys::{CUmemorytype, CUresult};

use crate::device::calls::{Attributes, Told};
use crate::device::context::Device;
use crate::device::driver;
use crate::device::driver::{Driver, Failed};
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
    /// It moves between the program and devices. Nobody but the driver may touch it here: on some
    /// hosts a processor cannot while a device works.
    Managed {
        ordinal: i32,
    },
}

/// Asks the driver about both ends of a range. `name` is the caller's word for it, for the text of
/// an error. Empty ranges are plain. A thread in which no context is current asks in that of
/// `device`, if it has one, or in the primary one of any.
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
        // The process is ending: what the driver knew is gone, the program's own memory is not.
        Err(Failed { code: DEINITIALIZED, .. }) => Ok(MemoryKind::Plain),
        Err(Failed { code: INVALID_CONTEXT | CONTEXT_IS_DESTROYED, .. }) => {
            in_active_context(driver, name, address, device)
        }
        answer => parse(&answer.told()?, name, address),
    }
}

/// Asks again for a thread without a context, in any that is there: all know the same addresses. If
/// there is none that can be found, memory is taken for the program's.
fn in_active_context(
    driver: &'static Driver,
    name: &str,
    address: usize,
    device: Option<&Device>,
) -> Result<MemoryKind> {
    let ask = |device: &Device| {
        let _entered = device.enter()?;
        parse(&driver.attributes(address as u64).told()?, name, address)
    };
    if let Some(device) = device {
        return ask(device);
    }
    for ordinal in 0..driver.device_count() as i32 {
        let device = driver.device(ordinal).told()?;
        if driver.primary_is_active(device).told()? {
            return ask(&Device::primary(ordinal)?);
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
        // Registered memory may have a second address, which only devices can follow.
        HOST if attributes.host != address as u64 => Ok(MemoryKind::Device { ordinal }),
        HOST => Ok(MemoryKind::Pinned),
        DEVICE => Ok(MemoryKind::Device { ordinal }),
        other => Err(Error::Argument(format!("{name} is memory of CUDA's type {other}"))),
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
    fn memory_is_what_the_driver_says_and_managed_whatever_its_type() {
        assert_eq!(parsed(0, false, 7).unwrap(), MemoryKind::Plain);
        assert_eq!(parsed(1, false, 0).unwrap(), MemoryKind::Pinned);
        assert_eq!(parsed(2, false, 3).unwrap(), MemoryKind::Device { ordinal: 3 });
        assert_eq!(parsed(1, true, 1).unwrap(), MemoryKind::Managed { ordinal: 1 });
        assert_eq!(parsed(2, true, 1).unwrap(), MemoryKind::Managed { ordinal: 1 });
        let alias = Attributes { memory_type: 1, is_managed: false, ordinal: 2, host: 64 };
        assert_eq!(parse(&alias, "sendbuff", 128).unwrap(), MemoryKind::Device { ordinal: 2 });
        let text = parsed(3, false, 0).err().unwrap().to_string();
        assert_eq!(text, "sendbuff is memory of CUDA's type 3");
    }
}
