//! The caller's CUDA memory and streams: the kind of memory at an address, and copies, writes and
//! waits in stream order.
//!
//! The driver is loaded at its first use. Without a driver all memory is plain, and every other
//! request is refused. Leaves to others which bytes are copied when, and what follows from a
//! failure. Invariants: the driver is called only by threads of the program and by the thread that
//! creates communicators in the background; each pushes the device's context and pops it again.
//! The library's own threads exchange values with the device through timeline semaphores in pinned
//! memory.
//!
//! ```text
//!     driver   loads libcuda                   calls    one method for each function of libcuda
//!     kind     kind of memory at an address    context  a device; makes its context current
//!     stream   enqueues work on a stream       memops   whether streams write and await values
//!     pinned   memory of host and device       poller   threads wait for timeline semaphores
//!     staging  staging buffers and timelines of a communicator
//! ```

pub mod calls;
pub mod context;
pub mod driver;
pub mod kind;
mod memops;
pub mod pinned;
pub mod poller;
pub mod staging;
mod stream;

use std::sync::OnceLock;

use tracing::info;

pub use calls::{CudaStream, Event};
pub use context::{Device, EnteredContext};
pub use driver::Driver;
pub use kind::{MemoryKind, kind_of};
pub use pinned::{Pinned, TimelineSemaphore};
pub use poller::reach;

static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();

/// The driver of this process. The first call loads it. `None`: see `unavailable_reason`.
pub fn driver() -> Option<&'static Driver> {
    loaded().as_ref().ok()
}

/// Why this process has no driver, as a sentence.
pub fn unavailable_reason() -> &'static str {
    match loaded() {
        Ok(_) => "CUDA is available",
        Err(why) => why,
    }
}

fn loaded() -> &'static Result<Driver, String> {
    DRIVER.get_or_init(|| {
        let loaded = Driver::load().map_err(|why| format!("CUDA is not available: {why}"));
        match &loaded {
            Ok(driver) => info!("{driver}"),
            Err(why) => info!("{why}"),
        }
        loaded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C tests cover hosts with a driver.
    #[test]
    fn without_a_driver_all_memory_is_plain_and_the_reason_is_a_sentence() {
        if driver().is_some() {
            return;
        }
        assert!(
            unavailable_reason().starts_with("CUDA is not available: "),
            "{}",
            unavailable_reason()
        );
        let bytes = [0_u8; 8];
        let start = bytes.as_ptr().addr();
        assert_eq!(kind_of("sendbuff", &(start..start + 8), None).unwrap(), MemoryKind::Plain);
        assert!(Device::current().unwrap().is_none());
        let refused = Device::primary(0).err().expect("there is no device");
        assert_eq!(refused.to_string(), unavailable_reason());
        assert_eq!(refused.code(), crate::error::Code::UnhandledCudaError);
    }
}
