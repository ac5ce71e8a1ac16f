//! A rank's share of a call in shared memory: writing, preparing and cutting it into columns.
//!
//! Leaves to the algorithms which rank publishes what, and to `epochs` when.

use std::ops::Range;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::dtype::ElementType;
use crate::op::Reducer;
use crate::rank::{Rank, RankOf};
use crate::reduce::{Stores, copy};
use crate::transport::SLOT;

/// Bytes prepared at once: they stay in the first-level cache. The size of every built-in type
/// divides it; other elements need no preparation.
const AT_ONCE: usize = 4096;

/// Writes a rank's share, prepared for a reduction of `size` ranks.
pub fn load(reducer: &Reducer, share: &[u8], size: usize, into: &mut [u8], stores: Stores) {
    if !reducer.prepares(size) {
        return copy(into, share, stores);
    }
    let pieces = into.chunks_mut(AT_ONCE).zip(share.chunks(AT_ONCE));
    if stores == Stores::Cached {
        return pieces.for_each(|(into, share)| {
            into.copy_from_slice(share);
            reducer.prepare(into, size);
        });
    }
    let mut ready = [0_u64; AT_ONCE / 8];
    let ready = bytemuck::bytes_of_mut(&mut ready);
    for (into, share) in pieces {
        let ready = &mut ready[..share.len()];
        ready.copy_from_slice(share);
        reducer.prepare(ready, size);
        copy(into, ready, stores);
    }
}

/// Bytes that are still in the first-level cache when they are read again.
const AGAIN: usize = 8 << 10;

/// As `load`, to two destinations. Each: the memory, the number of ranks, and how it is stored.
pub fn load_twice(
    reducer: &Reducer,
    share: &[u8],
    one: (&mut [u8], usize, Stores),
    other: (&mut [u8], usize, Stores),
) {
    let destinations = one.0.chunks_mut(AGAIN).zip(other.0.chunks_mut(AGAIN));
    for (share, (first, second)) in share.chunks(AGAIN).zip(destinations) {
        load(reducer, share, one.1, first, one.2);
        load(reducer, share, other.1, second, other.2);
    }
}

/// A part of this rank's own share, prepared, and the memory of the result. The share is a copy in
/// `scratch` if it must be prepared or will be overwritten.
pub fn own_and_output<'a>(
    reducer: &Reducer,
    buffers: &'a mut Buffers<'_>,
    part: Range<usize>,
    size: usize,
    scratch: &'a mut Vec<u8>,
) -> (&'a [u8], &'a mut [u8]) {
    let (share, into): (&[u8], _) = match buffers {
        Buffers::Apart { input, output } => (&input[part.clone()], &mut output[part]),
        Buffers::Shared { both } => {
            scratch.resize(part.len(), 0);
            load(reducer, &both[part.clone()], size, scratch, Stores::Cached);
            return (scratch, &mut both[part]);
        }
    };
    (ready(reducer, share, size, scratch), into)
}

/// As `own_and_output`, for an output that is only this rank's block.
pub fn own_and_block<'a>(
    reducer: &Reducer,
    buffers: &'a mut Buffers<'_>,
    blocks: &Blocks,
    part: Range<usize>,
    me: RankOf,
    scratch: &'a mut Vec<u8>,
) -> (&'a [u8], &'a mut [u8]) {
    let Buffers::Apart { input, output } = buffers else {
        return own_and_output(reducer, buffers, part, me.size, scratch);
    };
    let start = blocks.get(me.rank.0).start;
    let into = &mut output[part.start - start..part.end - start];
    (ready(reducer, &input[part], me.size, scratch), into)
}

/// A share, or a copy in `scratch` if it must be prepared.
fn ready<'a>(
    reducer: &Reducer,
    share: &'a [u8],
    size: usize,
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    if !reducer.prepares(size) {
        return share;
    }
    scratch.resize(share.len(), 0);
    load(reducer, share, size, scratch, Stores::Cached);
    scratch
}

/// A slot with a column for each rank but its publisher.
#[derive(Clone, Copy)]
pub struct Columns {
    size: usize,
    pub width: usize,
}

impl Columns {
    /// The longest column, a multiple of 8: so elements of built-in types are aligned.
    #[inline]
    pub fn most(size: usize) -> usize {
        (SLOT / (size - 1).max(1)) & !7
    }

    /// `longest`: the bytes of the longest block.
    #[inline]
    pub fn new(size: usize, longest: usize) -> Self {
        Self { size, width: longest.clamp(1, Self::most(size)) }
    }

    /// As `new`, with columns of whole elements, of which one fits a column.
    #[inline]
    pub fn of_elements(size: usize, dtype: ElementType, longest: usize) -> Self {
        Self { size, width: longest.clamp(1, dtype.whole(Self::most(size))) }
    }

    /// The first `bytes` of the column of rank `of` in the slot of rank `by`.
    pub fn column(&self, by: Rank, of: Rank, bytes: usize) -> Range<usize> {
        let index = if of < by { of.0 } else { of.0 - 1 };
        index * self.width..index * self.width + bytes
    }

    /// The bytes that rank `by` uses of its slot, if its column for a rank has `bytes(rank)`.
    pub fn used(&self, by: Rank, bytes: impl Fn(Rank) -> usize) -> usize {
        let others = (0..self.size).map(Rank).filter(|of| *of != by);
        others.map(|of| (self.column(by, of, bytes(of)), bytes(of))).fold(
            0,
            |most, (column, bytes)| {
                if bytes == 0 { most } else { most.max(column.end) }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::ElementSize;

    #[test]
    fn columns_of_a_slot_are_apart_and_fit_it() {
        for size in 2..70 {
            let columns = Columns::new(size, usize::MAX / 2);
            for by in (0..size).map(Rank) {
                let mut end = 0;
                for of in (0..size).map(Rank).filter(|of| *of != by) {
                    let column = columns.column(by, of, columns.width);
                    assert_eq!(column.start, end);
                    end = column.end;
                }
                assert!(end <= SLOT && end == columns.used(by, |_| columns.width));
            }
            let opaque = ElementType::Opaque(ElementSize::new(12).unwrap());
            let columns = Columns::of_elements(size, opaque, 12 << 20);
            assert!(columns.width.is_multiple_of(12) && columns.width * (size - 1) <= SLOT);
        }
    }
}
