//! Ranks publish epochs to each other and sleep until they arrive.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::file::{Doorbell, look_and_sleep, ring};
use crate::sync::{AtomicU32, Ordering, reached_by_membarrier};
use crate::{in_every_order, in_orders_with};

/// Where the handshake has its full barriers.
#[derive(Clone, Copy, PartialEq)]
enum Barrier {
    /// Each side has a full fence.
    Both,
    /// The sleeper calls membarrier(2), which reaches the writer; the writer has none.
    Sleeper,
    /// The sleeper calls membarrier(2), which does not reach the writer; the writer has a full
    /// fence.
    Unreached,
}

/// A rank: the epoch that it has published, and the doorbell of its process.
struct Rank {
    published: AtomicU32,
    rung: AtomicU32,
    sleepers: AtomicU32,
    barrier: Barrier,
}

impl Doorbell for Rank {
    fn rung(&self) -> &AtomicU32 {
        &self.rung
    }

    fn sleepers(&self) -> &AtomicU32 {
        &self.sleepers
    }

    fn needs_fence(&self) -> bool {
        self.barrier == Barrier::Both
    }
}

impl Rank {
    fn new(barrier: Barrier) -> Arc<Self> {
        let [published, rung, sleepers] = [0; 3].map(AtomicU32::new);
        Arc::new(Self { published, rung, sleepers, barrier })
    }

    fn publish(&self, epoch: u32, reader: &Self) {
        self.published.store(epoch, Ordering::Release);
        ring(std::iter::once(reader), self.barrier != Barrier::Sleeper);
    }

    fn wait_for(&self, epoch: u32, writer: &Self) {
        let mut is_published = false;
        while !is_published {
            look_and_sleep(self, || {
                is_published = writer.published.load(Ordering::Acquire) >= epoch;
                (!is_published).then_some(Duration::MAX)
            });
        }
    }

    /// Starts a thread of this rank.
    fn start(self: &Arc<Self>, body: impl FnOnce(&Self) + 'static) -> thread::JoinHandle<()> {
        let me = Arc::clone(self);
        let body = move || body(&me);
        if self.barrier == Barrier::Sleeper {
            thread::spawn(reached_by_membarrier(body))
        } else {
            thread::spawn(body)
        }
    }
}

fn an_epoch_wakes_its_sleeper(barrier: Barrier, epochs: u32) {
    let [writer, sleeper] = [0; 2].map(|_| Rank::new(barrier));
    let reader = Arc::clone(&sleeper);
    let thread = writer.start(move |writer| {
        (1..=epochs).for_each(|epoch| writer.publish(epoch, &reader));
    });
    (1..=epochs).for_each(|epoch| sleeper.wait_for(epoch, &writer));
    thread.join().unwrap();
}

pub fn with_a_fence_on_both_sides_an_epoch_wakes_its_sleeper() {
    in_every_order(|| an_epoch_wakes_its_sleeper(Barrier::Both, 1));
    in_orders_with(4, || an_epoch_wakes_its_sleeper(Barrier::Both, 2));
}

pub fn with_membarrier_an_epoch_wakes_its_sleeper() {
    in_every_order(|| an_epoch_wakes_its_sleeper(Barrier::Sleeper, 1));
    in_orders_with(3, || an_epoch_wakes_its_sleeper(Barrier::Sleeper, 2));
}

pub fn a_writer_out_of_reach_of_membarrier_wakes_with_its_own_fence() {
    in_every_order(|| an_epoch_wakes_its_sleeper(Barrier::Unreached, 1));
}

/// Two threads of one process sleep on the same doorbell.
pub fn an_epoch_wakes_every_sleeper_of_a_process() {
    for barrier in [Barrier::Both, Barrier::Sleeper] {
        in_orders_with(2, move || {
            let [writer, process] = [0; 2].map(|_| Rank::new(barrier));
            let reader = Arc::clone(&process);
            let writes = writer.start(move |writer| writer.publish(1, &reader));
            let (process_2, writer_2) = (Arc::clone(&process), Arc::clone(&writer));
            let other = thread::spawn(move || process_2.wait_for(1, &writer_2));
            process.wait_for(1, &writer);
            other.join().unwrap();
            writes.join().unwrap();
        });
    }
}

/// Each of two ranks publishes an epoch and sleeps until the other's arrives.
pub fn ranks_that_wait_for_each_other_both_wake() {
    for barrier in [Barrier::Both, Barrier::Sleeper] {
        in_orders_with(3, move || {
            let ranks = [0; 2].map(|_| Rank::new(barrier));
            let threads = [(0, 1), (1, 0)].map(|(me, other): (usize, usize)| {
                let other = Arc::clone(&ranks[other]);
                ranks[me].start(move |me| {
                    me.publish(1, &other);
                    me.wait_for(1, &other);
                })
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

pub fn all() {
    with_a_fence_on_both_sides_an_epoch_wakes_its_sleeper();
    with_membarrier_an_epoch_wakes_its_sleeper();
    a_writer_out_of_reach_of_membarrier_wakes_with_its_own_fence();
    an_epoch_wakes_every_sleeper_of_a_process();
    ranks_that_wait_for_each_other_both_wake();
}
