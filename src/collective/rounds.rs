//! Rounds on one host, in parts that fit a slot: in which order, and how what the ranks lay out is folded.
//!
//! Leaves to the algorithms who lays out what.

use std::ops::Range;

use smallvec::SmallVec;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::{Place, Rank};
use crate::reduce::{Side, Stores, copy};
use crate::transport::{Attempt, SLOT, View, slots};

use super::exchange::Rounds;

/// How many parts a rank has laid out beyond the one that it looks at: so long it does not wait for others. Fewer
/// than there are slots: else all would wait for each other to pass a round.
pub fn ahead(ranks: usize) -> usize {
    slots(ranks) / 2
}

/// From here on what is written does not fit a cache, from which it would push what is read next.
const STREAMED: usize = 8 << 20;

/// What a rank does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Lay(usize),
    Look(usize),
}

/// Lays out each part, and `ahead` more if there are, before it is looked at.
pub fn turns(count: usize, ahead: usize) -> impl Iterator<Item = Turn> {
    let (mut laid, mut seen) = (0, 0);
    std::iter::from_fn(move || {
        if laid < count && laid <= seen + ahead {
            laid += 1;
            return Some(Turn::Lay(laid - 1));
        }
        seen += 1;
        (seen <= count).then_some(Turn::Look(seen - 1))
    })
}

/// How many parts of at most `width` bytes there are.
pub fn count(bytes: usize, width: usize) -> usize {
    bytes.div_ceil(width)
}

/// A part of a range; those behind its end are empty.
pub fn part(of: &Range<usize>, width: usize, number: usize) -> Range<usize> {
    let start = of.end.min(of.start + number * width);
    start..of.end.min(start + width)
}

/// How a buffer of so many bytes is written.
pub fn stores(bytes: usize) -> Stores {
    if bytes < STREAMED { Stores::Cached } else { Stores::Streamed }
}

/// Writes a rank's share, ready to be folded.
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

/// Bytes that the fastest cache has still when they are read again.
const AGAIN: usize = 8 << 10;

/// As `load`, to two places: where, ready for how many ranks, and how it is stored.
pub fn load_twice(
    reducer: &Reducer,
    share: &[u8],
    one: (&mut [u8], usize, Stores),
    other: (&mut [u8], usize, Stores),
) {
    let places = one.0.chunks_mut(AGAIN).zip(other.0.chunks_mut(AGAIN));
    for (share, (first, second)) in share.chunks(AGAIN).zip(places) {
        load(reducer, share, one.1, first, one.2);
        load(reducer, share, other.1, second, other.2);
    }
}

/// A part of a rank's own share, ready to be folded, and where the result goes: the share where it lies, or
/// a copy in `scratch` if it must be prepared or will be written over.
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

/// As `own_and_output`, where the output is this rank's block alone.
pub fn own_and_block<'a>(
    reducer: &Reducer,
    buffers: &'a mut Buffers<'_>,
    blocks: &Blocks,
    part: Range<usize>,
    place: Place,
    scratch: &'a mut Vec<u8>,
) -> (&'a [u8], &'a mut [u8]) {
    let Buffers::Apart { input, output } = buffers else {
        return own_and_output(reducer, buffers, part, place.size, scratch);
    };
    let start = blocks.get(place.rank.0).start;
    let into = &mut output[part.start - start..part.end - start];
    (ready(reducer, &input[part], place.size, scratch), into)
}

/// A share where it lies, or a copy in `scratch` if it must be prepared.
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

/// Bytes folded at once: they stay in the fastest cache from one operand to the next. Every element's size
/// divides it.
const AT_ONCE: usize = 4096;

/// `into` becomes the fold of all shares in their order.
pub fn fold_all(reducer: &Reducer, shares: &[&[u8]], into: &mut [u8], stores: Stores) {
    match shares {
        [] => {}
        [only] => copy(into, only, stores),
        [left, right] => reducer.fold_into(into, left, right, stores),
        [left, right, middle @ .., last] => {
            let mut folded = [0_u64; AT_ONCE / 8];
            let folded = bytemuck::bytes_of_mut(&mut folded);
            for (number, into) in into.chunks_mut(AT_ONCE).enumerate() {
                let part = number * AT_ONCE..number * AT_ONCE + into.len();
                let folded = &mut folded[..into.len()];
                reducer.fold_into(
                    folded,
                    &left[part.clone()],
                    &right[part.clone()],
                    Stores::Cached,
                );
                for share in middle {
                    reducer.fold(folded, &share[part.clone()], Side::Right);
                }
                reducer.fold_into(into, folded, &last[part], stores);
            }
        }
    }
}

/// What some ranks have laid out, in lists that most calls keep on the stack.
pub type Sights<'a> = SmallVec<[View<'a>; 4]>;
pub type Shares<'a> = SmallVec<[&'a [u8]; 4]>;

/// What these ranks have laid out in a round, each as many bytes.
pub async fn look_at<'a>(
    rounds: &'a Rounds<'_>,
    round: usize,
    ranks: impl Iterator<Item = Rank> + Clone,
    bytes: usize,
) -> Result<Sights<'a>> {
    look_at_each(rounds, round, ranks.map(|rank| (rank, bytes))).await
}

/// What these ranks have laid out in a round, each so many bytes. As long as one of them has not come, nothing
/// is held: who has shown something could not take it back.
pub async fn look_at_each<'a>(
    rounds: &'a Rounds<'_>,
    round: usize,
    wanted: impl Iterator<Item = (Rank, usize)> + Clone,
) -> Result<Sights<'a>> {
    let mut sights = Sights::new();
    loop {
        let mut waited = false;
        for (rank, bytes) in wanted.clone() {
            let view = loop {
                match rounds.try_look(round, rank, bytes)? {
                    Attempt::Done(view) => break view,
                    Attempt::Wait(published) => {
                        waited = true;
                        sights.clear();
                        published.await?;
                    }
                }
            };
            if !waited {
                sights.push(view);
            }
        }
        if !waited {
            return Ok(sights);
        }
    }
}

/// All ranks but this one, in order.
#[inline]
pub fn others(place: Place) -> impl Iterator<Item = Rank> + Clone {
    (0..place.size).map(Rank).filter(move |rank| *rank != place.rank)
}

/// A slot with a column for each rank but the one that lays it out.
#[derive(Clone, Copy)]
pub struct Columns {
    size: usize,
    pub width: usize,
}

impl Columns {
    /// For blocks of which the longest has so many bytes.
    #[inline]
    pub fn new(size: usize, longest: usize) -> Self {
        // Blocks are of whole elements, which so begin where they may.
        let most = (SLOT / (size - 1).max(1)) & !7;
        Self { size, width: longest.clamp(1, most) }
    }

    /// The column of rank `of` in the slot of rank `by`, as far as it is used by so many bytes.
    pub fn column(&self, by: Rank, of: Rank, bytes: usize) -> Range<usize> {
        let index = if of < by { of.0 } else { of.0 - 1 };
        index * self.width..index * self.width + bytes
    }

    /// How many bytes of its slot rank `by` uses, if its column for a rank has `bytes(rank)`.
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

    #[test]
    fn every_part_is_laid_out_before_it_is_looked_at_and_all_are() {
        for (count, ahead) in (0..10)
            .flat_map(|count| [1, ahead(3) / 2, ahead(3), ahead(2)].map(|ahead| (count, ahead)))
        {
            let turns: Vec<_> = turns(count, ahead).collect();
            for part in 0..count {
                let at = |turn| turns.iter().position(|one| *one == turn).unwrap();
                assert!(at(Turn::Lay(part)) < at(Turn::Look(part)), "{count}: {turns:?}");
            }
            assert_eq!(turns.len(), 2 * count, "{turns:?}");
        }
    }

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
        }
    }
}
