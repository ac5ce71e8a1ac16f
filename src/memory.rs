//! Memory that processes of one host share: made by one of them, mapped by the others.
//!
//! Leaves to others what lies where in it. Invariants: its length never changes, so no access to it
//! can fault; a forked child does not inherit it; it has no name, and a process has a descriptor
//! only if it was handed one; what a peer wrote is never trusted.
#![expect(unsafe_code, reason = "memory is mapped here, and seen as atomics and bytes")]

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Whether those who are given the memory may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Its maker alone.
    Maker,
    Everybody,
}

/// Without these its length could change under those who use it.
const FIXED_LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

pub struct SharedMapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value and is reached through atomics, or through slices whose
// users answer for them.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// New memory, zeroed, with the descriptor that others map it by.
    pub fn create(name: &str, bytes: usize, writers: Writers) -> Result<(Self, OwnedFd)> {
        let descriptor = Self::unmapped(name, bytes)?;
        let memory = Self::part(descriptor.as_fd(), 0, bytes)?;
        if writers == Writers::Maker {
            rustix::fs::fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE)?;
        }
        Ok((memory, descriptor))
    }

    /// New memory that its maker maps later, part by part.
    pub fn unmapped(name: &str, bytes: usize) -> Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // A file beyond the limit would not only fail: its signal, SIGXFSZ, ends the process.
        if bytes > Self::most_bytes() {
            return Err(Errno::FBIG);
        }
        let descriptor = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&descriptor, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&descriptor, FIXED_LENGTH)?;
        Ok(descriptor)
    }

    /// The most bytes that the limit on the size of files (`ulimit -f`) allows.
    pub fn most_bytes() -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
    }

    /// A part of memory that this process has made, which begins at a page.
    pub fn part(descriptor: BorrowedFd<'_>, offset: usize, bytes: usize) -> Result<Self> {
        Self::mapped(descriptor, offset, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Memory that a peer has made. Refused if it is not as long as it must be, or could become
    /// shorter.
    pub fn of_peer(descriptor: BorrowedFd<'_>, bytes: usize, writers: Writers) -> Result<Self> {
        let is_fixed = rustix::fs::fcntl_get_seals(descriptor)?.contains(FIXED_LENGTH);
        if Self::length(descriptor)? != bytes || !is_fixed {
            return Err(Errno::INVAL);
        }
        let protection = match writers {
            Writers::Maker => ProtFlags::READ,
            Writers::Everybody => ProtFlags::READ | ProtFlags::WRITE,
        };
        Self::mapped(descriptor, 0, bytes, protection)
    }

    fn mapped(
        descriptor: BorrowedFd<'_>,
        offset: usize,
        bytes: usize,
        protection: ProtFlags,
    ) -> Result<Self> {
        // SAFETY: new addresses, chosen by the system; nothing of ours lies there.
        let start = unsafe {
            rustix::mm::mmap(
                null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                descriptor,
                offset as u64,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let memory = Self { start, bytes };
        // SAFETY: exactly this was just mapped. A forked child gets no mapping: it would write into
        // the memory of its parent.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(memory)
    }

    /// How long the memory behind a descriptor is.
    pub fn length(descriptor: BorrowedFd<'_>) -> Result<usize> {
        usize::try_from(rustix::fs::fstat(descriptor)?.st_size).map_err(|_| Errno::INVAL)
    }

    /// How long it is.
    pub fn extent(&self) -> usize {
        self.bytes
    }

    /// Where the byte at `offset` is in this process.
    #[inline(always)]
    pub fn start(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes);
        // SAFETY: inside the mapping or at its end, as was just seen.
        unsafe { self.start.add(offset) }
    }

    /// A number at `offset`, which is a multiple of its size.
    #[inline(always)]
    pub fn number(&self, offset: usize) -> &AtomicU64 {
        let address = self.at::<AtomicU64>(offset);
        // SAFETY: inside the mapping, aligned, and used by all processes as an atomic alone.
        unsafe { &*address }
    }

    /// As `number`, of half the size, as the system's waits want it.
    #[inline(always)]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        let address = self.at::<AtomicU32>(offset);
        // SAFETY: as above.
        unsafe { &*address }
    }

    /// Asks for the line at `offset`, which this process will write soon, to be its own then.
    #[inline]
    pub fn fetch_to_write(&self, offset: usize) {
        let address = self.start(offset).as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, to which no address is wrong.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
        }
        let _ = address;
    }

    /// Asks for the line at `offset`, which this process will read soon.
    #[inline]
    pub fn fetch_to_read(&self, offset: usize) {
        let address = self.start(offset).as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, to which no address is wrong.
        unsafe {
            std::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags));
        }
        let _ = address;
    }

    #[inline(always)]
    fn at<T>(&self, offset: usize) -> *const T {
        assert!(offset.is_multiple_of(size_of::<T>()) && offset + size_of::<T>() <= self.bytes);
        self.start(offset).as_ptr().cast()
    }

    /// # Safety
    /// Nobody who keeps the protocol writes the range meanwhile. One who breaks it changes what is
    /// read, as he could have by sending it; none of our code relies on reading the same twice.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: inside the mapping, as was just seen; the caller answers for writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// # Safety
    /// The memory was mapped for writing, and nobody who keeps the protocol touches the range
    /// meanwhile.
    #[expect(clippy::mut_from_ref, reason = "each part of shared memory has its own owner")]
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        let start = self.start.as_ptr();
        // SAFETY: inside the mapping, as was just seen; the caller answers for who else uses it.
        unsafe { std::slice::from_raw_parts_mut(start.add(range.start), range.len()) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly this was mapped, and nobody borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
