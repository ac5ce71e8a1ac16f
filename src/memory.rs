//! Memory shared by processes of one host: one of them creates it, the others map it.
//!
//! Leaves the layout to others. Invariants: its length never changes, so no access faults; a forked
//! child does not inherit the mapping; it has no name, so a process can map it only with a
//! descriptor that it was given; bytes that a peer wrote are never trusted.
#![expect(unsafe_code, reason = "memory is mapped here, and viewed as atomics and bytes")]

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Which processes may write shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Only the process that created it.
    Owner,
    All,
}

/// The seals without which the length could change while processes use the memory.
const FIXED_LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

pub struct SharedMapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the value owns the mapping. It is accessed through atomics, or through slices from unsafe
// functions, whose callers ensure that no access races.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Creates and maps zeroed memory. Returns it with the descriptor with which others map it.
    pub fn create(name: &str, bytes: usize, writers: Writers) -> Result<(Self, OwnedFd)> {
        let descriptor = Self::unmapped(name, bytes)?;
        let memory = Self::part(descriptor.as_fd(), 0, bytes)?;
        if writers == Writers::Owner {
            rustix::fs::fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE)?;
        }
        Ok((memory, descriptor))
    }

    /// Creates memory that this process maps later, part by part.
    pub fn unmapped(name: &str, bytes: usize) -> Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // A file beyond the limit does not just fail: the signal SIGXFSZ ends the process.
        if bytes > Self::max_bytes() {
            return Err(Errno::FBIG);
        }
        let descriptor = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&descriptor, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&descriptor, FIXED_LENGTH)?;
        Ok(descriptor)
    }

    /// The file size limit (`ulimit -f`), which also applies to shared memory.
    pub fn max_bytes() -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
    }

    /// Maps a part of memory that this process has created. `offset` is a multiple of the page
    /// size.
    pub fn part(descriptor: BorrowedFd<'_>, offset: usize, bytes: usize) -> Result<Self> {
        Self::mapped(descriptor, offset, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps memory that a peer has created. Fails if its length is not `bytes`, or if the length
    /// could change.
    pub fn of_peer(descriptor: BorrowedFd<'_>, bytes: usize, writers: Writers) -> Result<Self> {
        let is_fixed = rustix::fs::fcntl_get_seals(descriptor)?.contains(FIXED_LENGTH);
        if Self::length(descriptor)? != bytes || !is_fixed {
            return Err(Errno::INVAL);
        }
        let protection = match writers {
            Writers::Owner => ProtFlags::READ,
            Writers::All => ProtFlags::READ | ProtFlags::WRITE,
        };
        Self::mapped(descriptor, 0, bytes, protection)
    }

    fn mapped(
        descriptor: BorrowedFd<'_>,
        offset: usize,
        bytes: usize,
        protection: ProtFlags,
    ) -> Result<Self> {
        // SAFETY: the kernel chooses unused addresses, so no existing mapping is replaced.
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
        // SAFETY: exactly this range was just mapped. A forked child must not get the mapping: it
        // would write into the memory of its parent.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(memory)
    }

    /// The length of the memory behind a descriptor.
    pub fn length(descriptor: BorrowedFd<'_>) -> Result<usize> {
        usize::try_from(rustix::fs::fstat(descriptor)?.st_size).map_err(|_| Errno::INVAL)
    }

    /// The length of the mapping in bytes.
    pub fn extent(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `offset`.
    #[inline(always)]
    pub fn start(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes);
        // SAFETY: inside the mapping or at its end, as just checked.
        unsafe { self.start.add(offset) }
    }

    /// The 64-bit atomic at `offset`, which is a multiple of 8.
    #[inline(always)]
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        let address = self.at::<AtomicU64>(offset);
        // SAFETY: inside the mapping, aligned, and all processes access it only as an atomic.
        unsafe { &*address }
    }

    /// The 32-bit atomic at `offset`, which is a multiple of 4: the size of a futex.
    #[inline(always)]
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        let address = self.at::<AtomicU32>(offset);
        // SAFETY: as above.
        unsafe { &*address }
    }

    /// Prefetches the cache line at `offset` in exclusive state: this process will write it soon.
    #[inline]
    pub fn prefetch_for_write(&self, offset: usize) {
        let address = self.start(offset).as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which is valid for every address.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
        }
        let _ = address;
    }

    /// Prefetches the cache line at `offset`, which this process will read soon.
    #[inline]
    pub fn prefetch_for_read(&self, offset: usize) {
        let address = self.start(offset).as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which is valid for every address.
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
    /// No process that keeps the protocol writes the range meanwhile. One that breaks the protocol
    /// changes the bytes that are read, as it could by sending other bytes; no code relies on
    /// reading the same value twice.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: inside the mapping, as just checked; the caller ensures that no process writes
        // it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// # Safety
    /// The memory was mapped for writing, and no process that keeps the protocol accesses the range
    /// meanwhile.
    #[expect(clippy::mut_from_ref, reason = "each part of shared memory has its own owner")]
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        let start = self.start.as_ptr();
        // SAFETY: inside the mapping, as just checked; the caller ensures exclusive access.
        unsafe { std::slice::from_raw_parts_mut(start.add(range.start), range.len()) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly this range was mapped, and no borrow of it is left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
