//! The caller's CUDA memory and streams: what lies at an address, and copies, writes and waits in
//! stream order.
//!
//! The driver is loaded when it is first asked for; without one, all memory is plain and all else
//! refused. Leaves to others which bytes are copied when, and what follows from a failure.
//! Invariants: the driver is called by threads of the program, and by the one that makes
//! communicators in the background, with the device's context current and popped again; a thread of
//! ours learns from the device, and tells it, by numbers in pinned memory.
//!
//! ```text
//!     driver   libcuda, found and begun        calls    each of its functions that is used, once
//!     kind     what memory is at an address    context  a device, its context made current
//!     stream   work put on a stream            memops   whether a stream writes and awaits numbers
//!     pinned   memory that both reach          gate     threads of ours wait for such a number
//!     staging  rooms and numbers of a communicator
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

/// The driver of this process, loaded by the first who asks and kept. `None`: `why_not` says why.
pub fn driver() -> Option<&'static Driver> {
    loaded().as_ref().ok()
}

/// Why there is none, as a sentence.
pub fn why_not() -> &'static str {
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

    /// Hosts with a driver try the rest of this in the C tests.
    #[test]
    fn without_a_driver_all_memory_is_plain_and_the_reason_is_a_sentence() {
        if driver().is_some() {
            return;
        }
        assert!(why_not().starts_with("CUDA is not available: "), "{}", why_not());
        let bytes = [0_u8; 8];
        let start = bytes.as_ptr().addr();
        assert_eq!(kind_of("sendbuff", &(start..start + 8), None).unwrap(), MemoryKind::Plain);
        assert!(Device::current().unwrap().is_none());
        let refused = Device::primary(0).err().expect("there is no device");
        assert_eq!(refused.to_string(), why_not());
        assert_eq!(refused.code(), crate::error::Code::UnhandledCudaError);
    }
}
