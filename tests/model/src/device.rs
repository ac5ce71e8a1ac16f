//! Replaces `src/device`, as far as the device poller needs it: the word that a device writes.

pub mod pinned {
    use std::panic::resume_unwind;
    use std::sync::atomic::AtomicBool;

    use loom::sync::atomic::{AtomicU32, Ordering};

    use crate::runtime::{Ended, is_started_thread};

    /// The word, with loom's atomic. Its memory is leaked, so that a read after `free` is found.
    #[derive(Clone, Copy)]
    pub struct TimelineSemaphore(&'static Word);

    struct Word {
        value: AtomicU32,
        is_freed: AtomicBool,
        ends_poller: bool,
    }

    impl TimelineSemaphore {
        /// A word that a device writes.
        pub fn at_zero() -> Self {
            Self::with(false)
        }

        /// A word that ends the poller's thread when it reads it: a model must end all its threads.
        pub fn that_ends_poller() -> Self {
            Self::with(true)
        }

        fn with(ends_poller: bool) -> Self {
            let (value, is_freed) = (AtomicU32::new(0), AtomicBool::new(false));
            Self(Box::leak(Box::new(Word { value, is_freed, ends_poller })))
        }

        pub fn has_reached(&self, value: u32) -> bool {
            if self.0.ends_poller && is_started_thread() {
                resume_unwind(Box::new(Ended));
            }
            assert!(!self.0.is_freed.load(Ordering::Relaxed), "a freed word was read");
            self.0.value.load(Ordering::Acquire) >= value
        }

        /// Writes the word as a device does.
        pub fn advance(&self, value: u32) {
            self.0.value.store(value, Ordering::Release);
        }

        pub fn free(&self) {
            self.0.is_freed.store(true, Ordering::Relaxed);
        }
    }
}
