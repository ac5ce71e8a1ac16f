//! Memory of `nexarMemAlloc`, which the other processes of the host can read in place.
//!
//! Each process has one arena: a memfd as long as the host's memory. Only allocated blocks are
//! mapped, and only pages that are written take memory. Leaves to others how a process publishes
//! the offset of its bytes. Invariant: an offset from a peer is used only if it is inside the
//! peer's arena, whose length never changes.
#![expect(unsafe_code, reason = "a part of a peer's arena is viewed as bytes")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, Result};
use tracing::warn;

use crate::kept::{Kept, Registry};
use crate::memory::{SharedMapping, Writers};

const PAGE: usize = 4096;

/// The arena of this process.
pub struct Arena {
    descriptor: OwnedFd,
    bytes: usize,
    blocks: Mutex<ArenaBlocks>,
    /// The number of blocks. Most programs have none; they must not wait for the lock.
    count: AtomicUsize,
}

/// The allocated blocks.
#[derive(Default)]
struct ArenaBlocks {
    /// Addresses by offset in the arena.
    by_offset: BTreeMap<usize, usize>,
    /// Mappings and offsets in the arena by address.
    by_address: BTreeMap<usize, (SharedMapping, usize)>,
}

/// The arena of this process, created at the first call.
pub fn own() -> Result<&'static Arena> {
    static OWN: Kept<Arena> = Kept::empty();
    OWN.get_or_try(Arena::new)
}

impl Arena {
    fn new() -> Result<Self> {
        let host = rustix::system::sysinfo();
        let bytes = (host.totalram as usize).saturating_mul(host.mem_unit as usize);
        let whole = bytes.next_multiple_of(PAGE);
        let bytes = whole.min(SharedMapping::max_bytes() / PAGE * PAGE);
        if bytes == 0 {
            return Err(Errno::FBIG);
        }
        if bytes < whole {
            warn!(
                "the file size limit (ulimit -f) is below this host's memory: nexarMemAlloc \
                 shares at most {bytes} bytes with other ranks"
            );
        }
        let descriptor = SharedMapping::unmapped("nexar-arena", bytes)?;
        Ok(Self { descriptor, bytes, blocks: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// The descriptor with which peers map the arena.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Allocates zeroed memory, aligned to a page. `None` if no gap is long enough.
    pub fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let mut blocks = self.blocks();
        let mut start = 0;
        for (begin, address) in &blocks.by_offset {
            if begin - start >= bytes {
                break;
            }
            start = begin + blocks.by_address[address].0.extent();
        }
        if self.bytes.checked_sub(start)? < bytes {
            return None;
        }
        let memory = SharedMapping::part(self.descriptor.as_fd(), start, bytes).ok()?;
        let address = memory.start(0);
        blocks.by_offset.insert(start, address.addr().get());
        blocks.by_address.insert(address.addr().get(), (memory, start));
        self.count.store(blocks.by_offset.len(), Ordering::Release);
        Some(address)
    }

    /// Frees the block at `address`. False if no block begins there.
    pub fn free(&self, address: usize) -> bool {
        let mut blocks = self.blocks();
        let Some((memory, start)) = blocks.by_address.remove(&address) else { return false };
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = memory.extent() as u64;
        let freed = rustix::fs::fallocate(&self.descriptor, hole, start as u64, bytes);
        // A block whose pages remain would not be zero for the next user: it stays allocated.
        if freed.is_ok() {
            blocks.by_offset.remove(&start);
        } else {
            blocks.by_address.insert(address, (memory, start));
        }
        self.count.store(blocks.by_offset.len(), Ordering::Release);
        true
    }

    /// The offset of `bytes` in the arena. `None` if they are not in one block of it.
    #[inline]
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let address = bytes.as_ptr().addr();
        let blocks = self.blocks();
        let (begin, (memory, start)) = blocks.by_address.range(..=address).next_back()?;
        let inside = address - begin;
        (inside + bytes.len() <= memory.extent()).then_some((start + inside) as u64)
    }

    fn blocks(&self) -> MutexGuard<'_, ArenaBlocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arena of another process, mapped at the first read.
pub struct PeerArena {
    descriptor: OwnedFd,
    memory: OnceLock<Option<SharedMapping>>,
}

/// Arenas of peers by device and inode: one mapping serves all communicators of this process.
static KNOWN: Registry<(u64, u64), PeerArena> = Registry::empty();

impl PeerArena {
    pub fn new(descriptor: OwnedFd) -> Result<Arc<Self>> {
        let stat = rustix::fs::fstat(&descriptor)?;
        let new = || Ok(Self { descriptor, memory: OnceLock::new() });
        KNOWN.get_or_try((stat.st_dev, stat.st_ino), new)
    }

    /// Whether `bytes` has found that this process cannot map the arena.
    pub fn cannot_be_mapped(&self) -> bool {
        matches!(self.memory.get(), Some(None))
    }

    /// The bytes at an offset that the arena's owner has published. `None` if they are not inside
    /// the arena, or if it cannot be mapped.
    pub fn bytes(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let memory = self.memory.get_or_init(|| {
            let length = SharedMapping::length(self.descriptor.as_fd()).ok()?;
            SharedMapping::of_peer(self.descriptor.as_fd(), length, Writers::Owner).ok()
        });
        bytes_at(memory.as_ref()?, offset, bytes)
    }
}

fn bytes_at(memory: &SharedMapping, offset: u64, bytes: usize) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(bytes).filter(|end| *end <= memory.extent())?;
    // SAFETY: the owner of published bytes does not write them until all ranks have released the
    // epoch.
    Some(unsafe { memory.bytes(start..end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_zeroed_disjoint_and_readable_with_the_descriptor() {
        let arena = Arena::new().unwrap();
        let peer = PeerArena::new(arena.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let first = arena.allocate(10_000).unwrap();
        let second = arena.allocate(1).unwrap();
        assert_ne!(second, first);
        // SAFETY: just allocated with this length, and used by no other code.
        let bytes = unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), 10_000) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        let offset = arena.offset_of(&bytes[5..10]).unwrap();
        assert_eq!(peer.bytes(offset, 5).unwrap(), [7; 5]);
        assert!(arena.free(first.addr().get()) && !arena.free(first.addr().get()));
        assert!(!arena.free(1));
        let again = arena.allocate(10_000).unwrap();
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(again.as_ptr(), 10_000) };
        assert!(bytes.iter().all(|byte| *byte == 0), "a freed block is zero when reused");
    }

    #[test]
    fn bytes_outside_of_an_arena_have_no_offset_and_are_not_read() {
        let arena = Arena::new().unwrap();
        assert_eq!(arena.offset_of(&[1, 2, 3]), None);
        assert!(arena.allocate(usize::MAX).is_none() && arena.allocate(arena.bytes + 1).is_none());
        let peer = PeerArena::new(arena.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let end = arena.bytes as u64;
        assert!(peer.bytes(end - 4, 4).is_some() && peer.bytes(end - 4, 5).is_none());
        assert!(peer.bytes(u64::MAX, 1).is_none() && peer.bytes(0, usize::MAX).is_none());
    }
}
