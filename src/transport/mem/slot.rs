//! One place on a rank's shelf: bytes that were copied there, or bytes of its rank's caller that are looked at
//! where they are.
//!
//! Leaves to `Shelves` who waits for what. Invariants, on which the only `unsafe` rests: bytes that were shown
//! are in the slot only while their `Shown` is there, which keeps them borrowed; they are seen through a `Sight`
//! alone, which holds the slot's lock; and the end of a `Shown`, in whatever way its call ends, takes them out
//! under the same lock. So it waits for those that look, and nobody looks at them afterwards. A `Shown` must
//! not be leaked.
//!
//! That wait is short, and ends on a single thread too, because nobody awaits anything while he has a sight.
#![expect(unsafe_code, reason = "bytes are looked at by threads that their borrow does not know")]

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::op::Call;
use crate::transport::{Header, Past};

#[derive(Default)]
pub(super) struct Slot {
    /// The round after which it was laid out; 0 if there is nothing. Written under the lock.
    stamp: AtomicU64,
    contents: RwLock<Contents>,
}

struct Contents {
    header: Header,
    bytes: Vec<u8>,
    /// What is there in place of `bytes`. Its lifetime is a lie: that of the `Shown` is meant.
    shown: Option<&'static [u8]>,
    /// How often others look in vain: a delay without a clock.
    delay: AtomicU32,
}

impl Default for Contents {
    fn default() -> Self {
        let header =
            Header { seq: 0, call: Call::barrier(), past: Past::default(), step: 0, bytes: 0 };
        Self { header, bytes: Vec::new(), shown: None, delay: AtomicU32::new(0) }
    }
}

/// A slot while it is looked at. Not to be held while something is awaited: who has shown the bytes may wait
/// for its end, on the same thread.
pub struct Sight<'a>(RwLockReadGuard<'a, Contents>);

impl Sight<'_> {
    pub(super) fn header(&self) -> Header {
        self.0.header
    }
}

impl Deref for Sight<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.shown.unwrap_or(&self.0.bytes)
    }
}

/// What a slot has for somebody who looks.
pub(super) enum Found<'a> {
    There(Sight<'a>),
    /// There, but held back: look again.
    Later,
    Nothing,
}

/// Bytes that others may look at where they are, until this is dropped.
#[must_use]
pub struct Shown<'a> {
    slot: &'a Slot,
    stamp: u64,
    /// Borrowed for as long.
    _bytes: &'a [u8],
}

impl Slot {
    pub fn lay(&self, stamp: u64, header: &Header, delay: u32, fill: impl FnOnce(&mut [u8])) {
        let mut contents = self.write();
        contents.shown = None;
        contents.bytes.clear();
        contents.bytes.resize(header.bytes, 0);
        fill(&mut contents.bytes);
        self.publish(contents, stamp, header, delay);
    }

    pub fn show<'a>(
        &'a self,
        stamp: u64,
        header: &Header,
        delay: u32,
        bytes: &'a [u8],
    ) -> Shown<'a> {
        let mut contents = self.write();
        // SAFETY: it is a slice already. That its lifetime is longer here is seen by nobody: `Sight` alone
        // gives it out, for no longer than it holds the lock, and `Shown`, for whose life the bytes are
        // borrowed, takes it out under the lock when it ends.
        let unbound = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        contents.shown = Some(unbound);
        self.publish(contents, stamp, header, delay);
        Shown { slot: self, stamp, _bytes: bytes }
    }

    /// What was laid out or shown with this stamp.
    pub fn look(&self, stamp: u64) -> Found<'_> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        if self.stamp.load(Ordering::Relaxed) != stamp {
            return Found::Nothing;
        }
        if contents.delay.load(Ordering::Relaxed) > 0 {
            contents.delay.fetch_sub(1, Ordering::Relaxed);
            return Found::Later;
        }
        Found::There(Sight(contents))
    }

    fn publish(
        &self,
        mut contents: RwLockWriteGuard<'_, Contents>,
        stamp: u64,
        header: &Header,
        delay: u32,
    ) {
        contents.header = *header;
        contents.delay = AtomicU32::new(delay);
        self.stamp.store(stamp, Ordering::Release);
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        // Something else may be there, for which these bytes were taken out under the lock. Then this need not
        // wait for those that look at it.
        if self.slot.stamp.load(Ordering::Acquire) == self.stamp {
            let mut contents = self.slot.write();
            contents.shown = None;
            self.slot.stamp.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Barrier;
    use std::task::{Context, Poll, Waker};

    use super::super::{MemMesh, MemWorld, Trouble};
    use super::*;
    use crate::dtype::DataType;
    use crate::error::{Error, Result};
    use crate::op::{Operator, Reduction};
    use crate::rank::Rank;
    use crate::transport::{Label, Lane, Mesh};

    const BYTES: usize = 64 << 10;

    fn label(call: Call, bytes: usize) -> Label {
        Label::new(Header { seq: 0, call, past: Past::default(), step: 0, bytes })
    }

    fn polled<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn show<'a>(mesh: &'a MemMesh, call: Call, bytes: &'a [u8]) -> Option<Shown<'a>> {
        match polled(mesh.show(Lane(0), 0, &label(call, bytes.len()), bytes)) {
            Poll::Ready(Ok(shown)) => shown,
            _ => panic!("there is room in the first round"),
        }
    }

    fn look(mesh: &MemMesh, bytes: usize) -> Poll<Result<Sight<'_>>> {
        polled(mesh.look(Lane(0), 0, Rank(0), &label(Call::barrier(), bytes)))
    }

    #[test]
    fn what_is_shown_is_seen_where_it_is_until_its_call_ends() {
        for fails in [false, true] {
            let world = MemWorld::new(2, Trouble::default()).unwrap();
            let (meshes, bytes) = (world.meshes(), vec![7; BYTES]);
            let shown = show(&meshes[0], Call::barrier(), &bytes).expect("it is long enough");
            match look(&meshes[1], BYTES) {
                Poll::Ready(Ok(sight)) => assert_eq!(sight.as_ptr_range(), bytes.as_ptr_range()),
                _ => panic!("it is there"),
            }
            assert!(polled(meshes[0].passed(Lane(0), 0)).is_pending());
            if fails {
                drop(shown);
                assert!(look(&meshes[1], BYTES).is_pending(), "the fault is still to come");
                meshes[0].fail(Error::Usage("given up".to_owned()));
                assert!(matches!(look(&meshes[1], BYTES), Poll::Ready(Err(Error::Usage(_)))));
                assert!(matches!(polled(meshes[0].passed(Lane(0), 0)), Poll::Ready(Err(_))));
            } else {
                meshes[1].pass(Lane(0), 0);
                assert!(matches!(polled(meshes[0].passed(Lane(0), 0)), Poll::Ready(Ok(()))));
                drop(shown);
                assert!(look(&meshes[1], BYTES).is_pending());
            }
        }
    }

    #[test]
    fn few_bytes_and_those_that_a_function_of_the_program_folds_are_copied() {
        let world = MemWorld::new(2, Trouble::default()).unwrap();
        let (meshes, bytes) = (world.meshes(), vec![7; BYTES]);
        assert!(show(&meshes[0], Call::barrier(), &bytes[..8]).is_none());
        let operator = Operator::User { commutative: true };
        let reduction = Reduction { dtype: DataType::Int32, operator };
        let call = Call::all_reduce(BYTES / 4, reduction);
        assert!(show(&meshes[0], call, &bytes).is_none());
    }

    #[test]
    fn bytes_laid_out_later_outlive_the_end_of_those_shown_before() {
        let (slot, bytes) = (Slot::default(), [7; 8]);
        let header = label(Call::barrier(), 8).header();
        let shown = slot.show(1, &header, 0, &bytes);
        slot.lay(13, &header, 0, |slot| slot.fill(9));
        let Found::There(sight) = slot.look(13) else { panic!("it was laid out") };
        // It would wait for ever if it wanted the lock.
        drop(shown);
        assert_eq!(*sight, [9; 8]);
    }

    #[test]
    fn whoever_ends_its_call_waits_for_those_that_look() {
        let (slot, header) = (Slot::default(), label(Call::barrier(), BYTES).header());
        let beginning = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = vec![0; BYTES];
                for stamp in 1..=2000_u64 {
                    bytes.fill(stamp as u8);
                    let shown = slot.show(stamp, &header, 0, &bytes);
                    beginning.wait();
                    drop(shown);
                    bytes.fill(!(stamp as u8));
                }
            });
            for stamp in 1..=2000_u64 {
                beginning.wait();
                if let Found::There(sight) = slot.look(stamp) {
                    assert!(sight.iter().all(|byte| *byte == stamp as u8), "written meanwhile");
                }
            }
        });
    }
}
