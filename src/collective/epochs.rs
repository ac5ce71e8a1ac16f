//! Epochs of one host: the flat algorithm of all collectives, and its schedule.
//!
//! In the flat algorithm each rank publishes its part of a call once, and views the parts of the
//! others: one epoch for each part that fits a slot. A collective says what it publishes and what
//! it does with what it views (`Flat`). Leaves to `fast_path` a call of one epoch that need not
//! wait; it uses the same `Flat`, except for inline bytes, which stay in registers. Invariant: no
//! view is held while this rank waits for another.

use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Result;
use crate::rank::{Rank, RankOf};
use crate::reduce::Stores;
use crate::transport::{Attempt, SLOT, View, slots};

use super::exchange::{Epochs, Exchange};

/// What a collective does in the flat algorithm, with buffers that live for `'a`.
pub trait Flat<'a> {
    /// How many epochs the call takes.
    fn parts(&self) -> usize;

    /// How many of them this rank needs. It releases the others at once.
    fn own_parts(&self) -> usize {
        self.parts()
    }

    /// Whether a rank publishes anything.
    fn publishes(&self, rank: Rank) -> bool;

    /// Whether a part of what a rank publishes is for this rank; if it is this rank, for any other.
    fn moves(&self, _from: Rank, _part: usize) -> bool {
        true
    }

    /// How many bytes a rank that publishes does publish in a part.
    fn bytes(&self, rank: Rank, part: usize) -> usize;

    /// The length of each part but the last, if `in_place` has bytes.
    fn width(&self) -> usize {
        SLOT
    }

    /// The bytes that this rank publishes, all parts one behind the other, if they need no
    /// preparation: then others may view them in the program's buffer.
    fn in_place(&self) -> Option<&'a [u8]> {
        None
    }

    /// Writes what this rank publishes in a part.
    fn fill(&self, part: usize, slot: &mut [u8], stores: Stores);

    /// Copies this rank's own data to its output, after `fill`, where the collective needs that.
    fn keep_own(&mut self, _part: usize) {}

    /// The ranks whose bytes this rank views, by index. `None`: there are no more.
    fn source(&self, index: usize) -> Option<Rank>;
}

/// A collective that copies what it views, from one rank after another.
pub trait FlatCopy<'a>: Flat<'a> {
    fn copy(&mut self, part: usize, from: Rank, bytes: &[u8]);
}

/// A collective that reduces what it views, of all sources together.
pub trait FlatReduction<'a>: Flat<'a> {
    /// `shares`: those of the sources, in their order. `own`: what this rank has published in this
    /// part, if the caller has a view of it.
    fn reduce(&mut self, part: usize, shares: &[&[u8]], own: Option<&[u8]>);
}

/// Executes a collective that copies.
pub async fn copy_flat<'a>(exchange: &Exchange<'_>, flat: impl FlatCopy<'a>) -> Result<()> {
    copy_flat_in_step(exchange, 0, flat).await
}

/// As `copy_flat`, where step 0 of the call is another one.
pub async fn copy_flat_in_step<'a>(
    exchange: &Exchange<'_>,
    number: usize,
    mut flat: impl FlatCopy<'a>,
) -> Result<()> {
    let (parts, own_parts) = (flat.parts(), flat.own_parts());
    let mut epochs = exchange.epochs(number, parts);
    for step in schedule(own_parts, lead(&flat, exchange.me())) {
        match step {
            EpochStep::Publish(part) => publish(&mut epochs, &mut flat, part).await?,
            EpochStep::View(part) => {
                for index in 0.. {
                    let Some(from) = flat.source(index) else { break };
                    if flat.moves(from, part) {
                        let view = epochs.view(part, from, flat.bytes(from, part)).await?;
                        flat.copy(part, from, &view);
                    }
                }
                epochs.release(part);
            }
        }
    }
    if own_parts < parts {
        epochs.release(parts - 1);
    }
    epochs.wait_released().await
}

/// Executes a collective that reduces.
pub async fn reduce_flat<'a>(
    exchange: &Exchange<'_>,
    mut flat: impl FlatReduction<'a>,
) -> Result<()> {
    let mut epochs = exchange.epochs(0, flat.parts());
    for step in schedule(flat.parts(), lead(&flat, exchange.me())) {
        match step {
            EpochStep::Publish(part) => publish(&mut epochs, &mut flat, part).await?,
            EpochStep::View(part) => {
                let wanted = sources(&flat).map(|from| (from, flat.bytes(from, part)));
                let views = view_each(&epochs, part, wanted).await?;
                if !views.is_empty() {
                    let shares: Shares<'_> = views.iter().map(|view| &**view).collect();
                    flat.reduce(part, &shares, None);
                }
                drop(views);
                epochs.release(part);
            }
        }
    }
    epochs.wait_released().await
}

async fn publish<'e, 'a: 'e>(
    epochs: &mut Epochs<'e>,
    flat: &mut impl Flat<'a>,
    number: usize,
) -> Result<()> {
    let me = epochs.me();
    if flat.publishes(me.rank) && flat.moves(me.rank, number) {
        let bytes = flat.bytes(me.rank, number);
        match flat.in_place() {
            Some(all) => {
                let start = all.len().min(number * flat.width());
                epochs.publish_in_place(number, &all[start..start + bytes]).await?;
            }
            None => {
                epochs
                    .publish(number, bytes, |slot, stores| flat.fill(number, slot, stores))
                    .await?;
            }
        }
    }
    flat.keep_own(number);
    Ok(())
}

/// The ranks whose bytes this rank views.
pub fn sources<'a>(flat: &impl Flat<'a>) -> impl Iterator<Item = Rank> + Clone {
    (0..).map_while(|index| flat.source(index))
}

/// How many parts a rank publishes ahead of the one that it views: 0 if it does not do both.
fn lead<'a>(flat: &impl Flat<'a>, me: RankOf) -> usize {
    let does_both = flat.publishes(me.rank) && flat.source(0).is_some();
    if does_both { ahead(me.size) } else { 0 }
}

/// How many parts a rank may have published beyond the one that it views. Fewer than there are
/// slots: otherwise all ranks would wait for each other to release an epoch.
pub fn ahead(ranks: usize) -> usize {
    slots(ranks) / 2
}

/// A result of this size and more is streamed: in the cache it would evict what is read next.
const STREAMED: usize = 8 << 20;

/// One step of a rank's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochStep {
    Publish(usize),
    View(usize),
}

/// The schedule of a call of `count` parts: before a part is viewed, it and up to `ahead` more are
/// published.
pub fn schedule(count: usize, ahead: usize) -> impl Iterator<Item = EpochStep> {
    let (mut published, mut viewed) = (0, 0);
    std::iter::from_fn(move || {
        if published < count && published <= viewed + ahead {
            published += 1;
            return Some(EpochStep::Publish(published - 1));
        }
        viewed += 1;
        (viewed <= count).then_some(EpochStep::View(viewed - 1))
    })
}

/// The number of parts of at most `width` bytes.
pub fn count(bytes: usize, width: usize) -> usize {
    bytes.div_ceil(width)
}

/// Part `number` of a range. Parts behind its end are empty.
pub fn part(of: &Range<usize>, width: usize, number: usize) -> Range<usize> {
    let start = of.end.min(of.start + number * width);
    start..of.end.min(start + width)
}

/// How to store a result of this many bytes.
pub fn stores(bytes: usize) -> Stores {
    if bytes < STREAMED { Stores::Cached } else { Stores::Streamed }
}

/// Views of what several ranks have published. Most calls keep these lists on the stack.
pub type Views<'a> = SmallVec<[View<'a>; 4]>;
pub type Shares<'a> = SmallVec<[&'a [u8]; 4]>;

/// The shares of the sources, and this rank's own as number `index` among them.
pub fn with_own<'a>(shares: &[&'a [u8]], index: usize, own: &'a [u8]) -> Shares<'a> {
    let mut all = Shares::from_slice(shares);
    all.insert(index, own);
    all
}

/// Views what each of these ranks has published in an epoch: (rank, bytes). While one of them has
/// not published, no view is held: it would keep a publisher from withdrawing what it has published
/// in place.
pub async fn view_each<'a>(
    epochs: &'a Epochs<'_>,
    index: usize,
    wanted: impl Iterator<Item = (Rank, usize)> + Clone,
) -> Result<Views<'a>> {
    let mut views = Views::new();
    loop {
        let mut waited = false;
        for (rank, bytes) in wanted.clone() {
            let view = loop {
                match epochs.try_view(index, rank, bytes)? {
                    Attempt::Done(view) => break view,
                    Attempt::Wait(published) => {
                        waited = true;
                        views.clear();
                        published.await?;
                    }
                }
            };
            if !waited {
                views.push(view);
            }
        }
        if !waited {
            return Ok(views);
        }
    }
}

/// All ranks but this one, in rank order.
#[inline]
pub fn others(me: RankOf) -> impl Iterator<Item = Rank> + Clone {
    (0..me.size).map(Rank).filter(move |rank| *rank != me.rank)
}

/// All ranks but this one, by index: in rank order.
#[inline]
pub fn other(me: RankOf, index: usize) -> Option<Rank> {
    let rank = if index < me.rank.0 { index } else { index + 1 };
    (rank < me.size).then_some(Rank(rank))
}

/// All ranks but this one, by index: from the next one on, so that not all ranks read the memory of
/// the same rank at the same time.
#[inline]
pub fn next(me: RankOf, index: usize) -> Option<Rank> {
    (index + 1 < me.size).then(|| me.after(index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_published_before_it_is_viewed_and_none_is_omitted() {
        for (count, ahead) in (0..10)
            .flat_map(|count| [0, 1, ahead(3) / 2, ahead(3), ahead(2)].map(|ahead| (count, ahead)))
        {
            let schedule: Vec<_> = schedule(count, ahead).collect();
            for part in 0..count {
                let at = |step| schedule.iter().position(|one| *one == step).unwrap();
                assert!(
                    at(EpochStep::Publish(part)) < at(EpochStep::View(part)),
                    "{count}: {schedule:?}"
                );
            }
            assert_eq!(schedule.len(), 2 * count, "{schedule:?}");
        }
    }

    #[test]
    fn sources_by_index_are_all_ranks_but_this_one() {
        for size in 1..9 {
            for rank in (0..size).map(Rank) {
                let me = RankOf::new(rank, size);
                let in_order: Vec<_> = (0..).map_while(|index| other(me, index)).collect();
                assert_eq!(in_order, others(me).collect::<Vec<_>>());
                let mut around: Vec<_> = (0..).map_while(|index| next(me, index)).collect();
                assert_eq!(around.first(), (size > 1).then(|| me.after(1)).as_ref());
                around.sort();
                assert_eq!(around, in_order);
            }
        }
    }
}
