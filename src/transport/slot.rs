//! One slot of a thread's published memory: a copy, or bytes that other threads view in the
//! caller's buffer.
//!
//! A caller's buffer may be read only while its owner is inside the call, and a call may also end
//! by its deadline or a fault while others read. Leaves the waits between ranks to the users of
//! the slot. Invariants, on which the only `unsafe` rests:
//! - bytes published in place are in the slot only while their `InPlace` exists, which keeps them
//!   borrowed; an `InPlace` must not be leaked;
//! - they are viewed only through a `Locked`, which holds the slot's lock;
//! - dropping an `InPlace`, in whatever way its call ends, withdraws them under the same lock. It
//!   waits for the views, and there are none afterwards.
//!
//! That wait is short, and ends on a single thread too, because no view is held across an `await`.
#![expect(unsafe_code, reason = "bytes are viewed by threads that their borrow does not know")]

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::op::Call;

use super::{CallHistory, EncodedHeader, Header};

#[derive(Default)]
pub struct Slot {
    /// One more than the epoch of the contents; 0 if the slot is empty. Written under the lock.
    stamp: AtomicU64,
    contents: RwLock<Contents>,
}

struct Contents {
    header: Header,
    bytes: Vec<u8>,
    /// Published instead of `bytes`. The true lifetime is that of the `InPlace`.
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

/// A slot while it is viewed. Must not be held across an `await`: the publisher may be polled on
/// the same thread and wait until the view is dropped.
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

/// Bytes that others may view in place until this is dropped.
#[must_use]
pub struct InPlace<'a> {
    slot: &'a Slot,
    stamp: u64,
    /// Keeps the bytes borrowed.
    _bytes: &'a [u8],
}

impl Slot {
    /// The stamp of the contents; 0 if there are none.
    pub fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    pub fn publish(&self, stamp: u64, encoded: &EncodedHeader, fill: impl FnOnce(&mut [u8])) {
        let mut contents = self.write();
        contents.in_place = None;
        contents.bytes.clear();
        contents.bytes.resize(encoded.bytes(), 0);
        fill(&mut contents.bytes);
        contents.header = encoded.header();
        self.stamp.store(stamp, Ordering::Release);
    }

    pub fn publish_in_place<'a>(
        &'a self,
        stamp: u64,
        header: &Header,
        bytes: &'a [u8],
    ) -> InPlace<'a> {
        let mut contents = self.write();
        // SAFETY: `bytes` is a valid slice; only its lifetime is extended. `Locked` alone hands it
        // out, for no longer than it holds the lock. `InPlace`, which borrows the bytes, removes it
        // under the lock when it is dropped.
        let unbound = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        contents.in_place = Some(unbound);
        contents.header = *header;
        self.stamp.store(stamp, Ordering::Release);
        InPlace { slot: self, stamp, _bytes: bytes }
    }

    /// The contents, if they were published with this stamp.
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
        // A later publish may have replaced these bytes, under the lock. Then this need not wait
        // for the views of its contents.
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
        slot.publish(13, &EncodedHeader::new(header(8)), |slot| slot.fill(9));
        let view = slot.view(13).expect("it was published");
        // It would deadlock if it took the lock.
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
