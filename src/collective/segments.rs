//! Pipelining over segments of a buffer: one future receives into a segment while another sends the
//! one before it, so that no step waits for a whole message.
//!
//! One future at a time holds a segment. The holds of one segment are numbered *turns*: turn `t`
//! begins when turn `t - 1` has ended. Leaves the order of turns to the algorithms.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut, Range};
use std::task::{Poll, Waker};

use crate::blocks;

/// Bytes of a segment: enough that a header costs nothing, few enough to stay in a cache. The size
/// of every built-in type divides it. Where elements are reduced, `ElementType::whole` of it.
pub const SEGMENT: usize = 256 << 10;

/// The segments of a part of a buffer, of `width` bytes each. A part without bytes has none.
pub fn segments(part: Range<usize>, width: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let end = part.end;
    part.step_by(width).map(move |start| start..end.min(start + width))
}

pub struct Segments<'a> {
    slots: RefCell<Vec<SegmentSlot<'a>>>,
    /// The segments of each part.
    parts: Vec<Range<usize>>,
}

struct SegmentSlot<'a> {
    /// `None` while it is held.
    memory: Option<&'a mut [u8]>,
    turn: usize,
    /// One suffices: all futures that hold segments belong to one task.
    waiting: Option<Waker>,
}

impl<'a> Segments<'a> {
    /// Cuts parts of a buffer, which do not overlap, into segments of `width` bytes.
    pub fn new(
        buffer: &'a mut [u8],
        parts: impl IntoIterator<Item = Range<usize>>,
        width: usize,
    ) -> Self {
        let mut ranges = Vec::new();
        let number = |part| {
            let first = ranges.len();
            ranges.extend(segments(part, width));
            first..ranges.len()
        };
        let parts = parts.into_iter().map(number).collect();
        let slot = |memory| SegmentSlot { memory: Some(memory), turn: 0, waiting: None };
        let slots = blocks::cut(buffer, &ranges).into_iter().map(slot).collect();
        Self { slots: RefCell::new(slots), parts }
    }

    /// Cuts a whole buffer, which is part 0.
    pub fn whole(buffer: &'a mut [u8], width: usize) -> Self {
        let all = 0..buffer.len();
        Self::new(buffer, std::iter::once(all), width)
    }

    /// The indices of the segments of a part. Parts count modulo their number.
    pub fn of(&self, part: usize) -> Range<usize> {
        self.parts[part % self.parts.len()].clone()
    }

    /// Waits for turn `turn` of a segment, and holds the segment.
    pub async fn hold(&self, segment: usize, turn: usize) -> Held<'_, 'a> {
        let memory = poll_fn(|context| {
            let slot = &mut self.slots.borrow_mut()[segment];
            debug_assert!(slot.turn <= turn, "turn {turn} of segment {segment} is over");
            match slot.memory.take_if(|_| slot.turn == turn) {
                Some(memory) => Poll::Ready(memory),
                None => {
                    // The latest waker: a task may be polled by one thread and then by another.
                    slot.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        Held { segments: self, segment, memory: Some(memory) }
    }
}

/// How many segments a rank keeps that only forwards data.
pub const SLOTS: usize = 4;

/// A few segments that one future fills and another empties, over and over.
pub struct Slots<'a>(Segments<'a>);

impl<'a> Slots<'a> {
    /// `scratch` is as long as the data or `SLOTS` segments of `width` bytes, whichever is less.
    pub fn new(scratch: &'a mut [u8], width: usize) -> Self {
        Self(Segments::whole(scratch, width))
    }

    /// The slot for segment `number` of the data, once its previous segment has been emptied.
    pub async fn fill(&self, number: usize) -> Held<'_, 'a> {
        self.0.hold(number % SLOTS, 2 * (number / SLOTS)).await
    }

    /// The slot with segment `number` of the data, once it has been filled.
    pub async fn empty(&self, number: usize) -> Held<'_, 'a> {
        self.0.hold(number % SLOTS, 2 * (number / SLOTS) + 1).await
    }
}

/// A segment in use. Dropping it ends the turn.
pub struct Held<'s, 'a> {
    segments: &'s Segments<'a>,
    segment: usize,
    /// `None` only while it is dropped.
    memory: Option<&'a mut [u8]>,
}

impl Deref for Held<'_, '_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Held<'_, '_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        let slot = &mut self.segments.slots.borrow_mut()[self.segment];
        slot.memory = self.memory.take();
        slot.turn += 1;
        slot.waiting.take().into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[test]
    fn a_segment_is_held_by_one_at_a_time_in_the_order_of_turns() {
        let mut buffer = vec![0; 2 * SEGMENT + 1];
        let segments = Segments::whole(&mut buffer, SEGMENT);
        assert_eq!(segments.of(0), 0..3);
        let mut context = Context::from_waker(Waker::noop());
        let mut second = pin!(segments.hold(2, 1));
        assert!(second.as_mut().poll(&mut context).is_pending(), "turn 0 has not begun");
        let Poll::Ready(mut first) = pin!(segments.hold(2, 0)).poll(&mut context) else {
            panic!("turn 0 begins at once")
        };
        first.copy_from_slice(&[7]);
        assert!(second.as_mut().poll(&mut context).is_pending(), "turn 0 has not ended");
        drop(first);
        let Poll::Ready(second) = second.as_mut().poll(&mut context) else {
            panic!("turn 1 has begun")
        };
        assert_eq!(*second, [7]);
    }

    #[test]
    fn a_task_that_moves_to_another_waker_is_woken_by_that() {
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let flags = [(); 2].map(|()| Arc::new(Flag(AtomicBool::new(false))));
        let mut buffer = [0; 8];
        let segments = Segments::whole(&mut buffer, SEGMENT);
        let mut second = pin!(segments.hold(0, 1));
        for flag in &flags {
            let waker = Waker::from(Arc::clone(flag));
            assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let first = pin!(segments.hold(0, 0)).poll(&mut Context::from_waker(Waker::noop()));
        drop(first);
        assert!(flags[1].0.load(Ordering::Relaxed), "the latest waker was not woken");
    }

    #[test]
    fn parts_without_bytes_have_no_segments() {
        let mut buffer = vec![0; 10];
        let segments = Segments::new(&mut buffer, [4..8, 0..0, 8..10], SEGMENT);
        assert_eq!((segments.of(0), segments.of(1), segments.of(2)), (0..1, 1..1, 1..2));
        assert_eq!(segments.of(3), segments.of(0));
    }
}
