//! One slot of a thread's published memory: bytes that were copied there, or bytes of the rank's
//! caller that are viewed where they are.
//!
//! Leaves to the users of the slot who waits for what. Invariants, on which the only `unsafe`
//! rests: bytes published in place are in the slot only while their `InPlace` is there, which keeps
//! them borrowed; they are viewed through a `Locked` alone, which holds the slot's lock; and the
//! end of an `InPlace`, in whatever way its call ends, takes them out under the same lock. So it
//! waits for the views, and there are none afterwards. An `InPlace` must not be leaked.
//!
//! That wait is short, and ends on a single thread too, because nothing is awaited while a view is
//! held.
#![expect(unsafe_code, reason = "bytes are viewed by threads that their borrow does not know")]

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::op::Call;

use super::{CallHistory, Header};

#[derive(Default)]
pub struct Slot {
    /// One more than the epoch of what is there; 0 if there is nothing. Written under the lock.
    stamp: AtomicU64,
    contents: RwLock<Contents>,
}

struct Contents {
    header: Header,
    bytes: Vec<u8>,
    /// What is there in place of `bytes`. Its lifetime is a lie: that of the `InPlace` is meant.
    in_place: Option<&'static [u8]>,
}

impl Default for Contents {
    fn default() -> Self {
        let header = Header {
            seq: 0,
            call: Call::barrier(),
            history: CallHistory::default(),
            step: 0,
            bytes: 0,
        };
        Self { header, bytes: Vec::new(), in_place: None }
    }
}

/// A slot while it is viewed. Not to be held while something is awaited: the rank that has
/// published the bytes may wait for its end, on the same thread.
pub struct Locked<'a>(RwLockReadGuard<'a, Contents>);

impl Locked<'_> {
    pub fn header(&self) -> Header {
        self.0.header
    }
}

impl Deref for Locked<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.in_place.unwrap_or(&self.0.bytes)
    }
}

/// Bytes that others may view where they are, until this is dropped.
#[must_use]
pub struct InPlace<'a> {
    slot: &'a Slot,
    stamp: u64,
    /// Borrowed for as long.
    _bytes: &'a [u8],
}

impl Slot {
    pub fn publish(&self, stamp: u64, header: &Header, fill: impl FnOnce(&mut [u8])) {
        let mut contents = self.write();
        contents.in_place = None;
        contents.bytes.clear();
        contents.bytes.resize(header.bytes, 0);
        fill(&mut contents.bytes);
        contents.header = *header;
        self.stamp.store(stamp, Ordering::Release);
    }

    pub fn publish_in_place<'a>(
        &'a self,
        stamp: u64,
        header: &Header,
        bytes: &'a [u8],
    ) -> InPlace<'a> {
        let mut contents = self.write();
        // SAFETY: it is a slice already. Nothing sees that its lifetime is longer here: `Locked`
        // alone gives it out, for no longer than it holds the lock, and `InPlace`, for whose life
        // the bytes are borrowed, takes it out under the lock when it ends.
        let unbound = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        contents.in_place = Some(unbound);
        contents.header = *header;
        self.stamp.store(stamp, Ordering::Release);
        InPlace { slot: self, stamp, _bytes: bytes }
    }

    /// What was published with this stamp, if it is there.
    pub fn view(&self, stamp: u64) -> Option<Locked<'_>> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        (self.stamp.load(Ordering::Relaxed) == stamp).then_some(Locked(contents))
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        // Something else may be there, for which these bytes were taken out under the lock. Then
        // this need not wait for the views of it.
        if self.slot.stamp.load(Ordering::Acquire) == self.stamp {
            let mut contents = self.slot.write();
            contents.in_place = None;
            self.slot.stamp.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const BYTES: usize = 64 << 10;

    fn header(bytes: usize) -> Header {
        Header { seq: 0, call: Call::barrier(), history: CallHistory::default(), step: 0, bytes }
    }

    #[test]
    fn bytes_published_later_outlive_the_end_of_those_before() {
        let (slot, bytes) = (Slot::default(), [7; 8]);
        let in_place = slot.publish_in_place(1, &header(8), &bytes);
        slot.publish(13, &header(8), |slot| slot.fill(9));
        let view = slot.view(13).expect("it was published");
        // It would wait for ever if it wanted the lock.
        drop(in_place);
        assert_eq!(*view, [9; 8]);
    }

    #[test]
    fn the_end_of_a_call_waits_for_the_views_of_its_memory() {
        let (slot, header) = (Slot::default(), header(BYTES));
        let beginning = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = vec![0; BYTES];
                for stamp in 1..=2000_u64 {
                    bytes.fill(stamp as u8);
                    let in_place = slot.publish_in_place(stamp, &header, &bytes);
                    beginning.wait();
                    drop(in_place);
                    bytes.fill(!(stamp as u8));
                }
            });
            for stamp in 1..=2000_u64 {
                beginning.wait();
                if let Some(view) = slot.view(stamp) {
                    assert!(view.iter().all(|byte| *byte == stamp as u8), "written meanwhile");
                }
            }
        });
    }
}
