//! Memory that a process hands out to its program, and that others of its host can read where it
//! lies.
//!
//! Each process has one arena: a file without a name, as long as the host's memory, of which only
//! what is handed out is mapped, and only what is used takes any. Leaves to others how a process
//! says where its bytes lie. Invariant: a peer's word for a place is taken only if the place lies
//! inside its arena, whose length never changes.
#![expect(unsafe_code, reason = "a part of a peer's arena is seen as bytes")]

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
    /// How many blocks there are: most programs have none, and are not to wait for the lock.
    count: AtomicUsize,
}

/// What is handed out.
#[derive(Default)]
struct ArenaBlocks {
    /// By where they begin in the arena, with their addresses.
    by_offset: BTreeMap<usize, usize>,
    /// By address, with where they begin in the arena.
    by_address: BTreeMap<usize, (SharedMapping, usize)>,
}

/// The arena of this process, which is made when it is first needed.
pub fn own() -> Result<&'static Arena> {
    static OWN: Kept<Arena> = Kept::unmade();
    OWN.get_or_try(Arena::new)
}

impl Arena {
    fn new() -> Result<Self> {
        let host = rustix::system::sysinfo();
        let bytes = (host.totalram as usize).saturating_mul(host.mem_unit as usize);
        let whole = bytes.next_multiple_of(PAGE);
        let bytes = whole.min(SharedMapping::most_bytes() / PAGE * PAGE);
        if bytes == 0 {
            return Err(Errno::FBIG);
        }
        if bytes < whole {
            warn!(
                "the limit on the size of files (ulimit -f) is below this host's memory: \
                 nexarMemAlloc shares {bytes} bytes at most with other ranks"
            );
        }
        let descriptor = SharedMapping::unmapped("nexar-arena", bytes)?;
        Ok(Self { descriptor, bytes, blocks: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// What peers read it by.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Zeroed memory that begins at a page. `None` if there is no room.
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

    /// Takes memory back that begins here. False if none does.
    pub fn free(&self, address: usize) -> bool {
        let mut blocks = self.blocks();
        let Some((memory, start)) = blocks.by_address.remove(&address) else { return false };
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = memory.extent() as u64;
        let freed = rustix::fs::fallocate(&self.descriptor, hole, start as u64, bytes);
        // What keeps its pages would not be zero for the next: it stays taken.
        if freed.is_ok() {
            blocks.by_offset.remove(&start);
        } else {
            blocks.by_address.insert(address, (memory, start));
        }
        self.count.store(blocks.by_offset.len(), Ordering::Release);
        true
    }

    /// Where these bytes lie, if it is in the arena.
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

/// The arena of another process, which is mapped when first looked into.
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

    /// Bytes that its owner says lie there. `None` if they do not lie in the arena, or it cannot be
    /// read.
    pub fn bytes(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let memory = self.memory.get_or_init(|| {
            let length = SharedMapping::length(self.descriptor.as_fd()).ok()?;
            SharedMapping::of_peer(self.descriptor.as_fd(), length, Writers::Maker).ok()
        });
        seen(memory.as_ref()?, offset, bytes)
    }
}

fn seen(memory: &SharedMapping, offset: u64, bytes: usize) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(bytes).filter(|end| *end <= memory.extent())?;
    // SAFETY: who shows bytes of his arena leaves them alone until all have passed the round.
    Some(unsafe { memory.bytes(start..end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_is_zeroed_apart_and_seen_by_who_has_the_descriptor() {
        let arena = Arena::new().unwrap();
        let peer = PeerArena::new(arena.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let first = arena.allocate(10_000).unwrap();
        let second = arena.allocate(1).unwrap();
        assert_ne!(second, first);
        // SAFETY: just handed out, as long, and used by nobody else.
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
        assert!(bytes.iter().all(|byte| *byte == 0), "what was freed comes back empty");
    }

    #[test]
    fn what_lies_outside_is_not_shown_and_not_looked_at() {
        let arena = Arena::new().unwrap();
        assert_eq!(arena.offset_of(&[1, 2, 3]), None);
        assert!(arena.allocate(usize::MAX).is_none() && arena.allocate(arena.bytes + 1).is_none());
        let peer = PeerArena::new(arena.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let end = arena.bytes as u64;
        assert!(peer.bytes(end - 4, 4).is_some() && peer.bytes(end - 4, 5).is_none());
        assert!(peer.bytes(u64::MAX, 1).is_none() && peer.bytes(0, usize::MAX).is_none());
    }
}
