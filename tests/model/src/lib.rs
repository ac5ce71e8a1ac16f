//! The source files of nexar that synchronise threads, built with loom's atomics, locks and threads
//! in place of std's and run in every interleaving that the memory model allows.
//!
//! This is a library because the unit tests inside those files do not run under loom and must be
//! left out. `build.rs` also writes broken copies of `doorbell`, `recent_calls`, `device_poller`,
//! `message_ring` and `payload_slots`, and the models must report the error in each: a model that
//! cannot fail proves nothing.

pub mod device;
pub mod device_poller;
pub mod doorbell;
#[path = "../../../src/comm/run/lane.rs"]
pub mod lane;
pub mod memory;
pub mod message_ring;
pub mod op;
#[path = "../../../src/parker.rs"]
pub mod parker;
pub mod payload_slots;
pub mod recent_calls;
pub mod runtime;
pub mod sync;
pub mod transport;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// One thread waits for a word, another writes it and wakes the waiter. Under loom a park has no
/// timeout, so loom reports a lost wake-up as a deadlock.
pub fn a_wake_is_never_lost() {
    in_every_order(|| {
        let word = Arc::new(AtomicUsize::new(0));
        let parker = parker::Parker::new(1);
        let mut writer = None;
        let future = poll_fn(|context| {
            if word.load(Ordering::Acquire) == 7 {
                return Poll::Ready(());
            }
            writer.get_or_insert_with(|| {
                let (word, waker) = (Arc::clone(&word), context.waker().clone());
                thread::spawn(move || {
                    word.store(7, Ordering::Release);
                    waker.wake();
                })
            });
            Poll::Pending
        });
        assert_eq!(parker.block_on(future, in_an_hour()), Some(()));
        writer.expect("the first poll was pending").join().unwrap();
    });
}

/// A stale wake-up of the previous wait costs one poll and does not swallow the next wake-up.
pub fn an_old_wake_hides_no_new_one() {
    in_every_order(|| {
        let steps = Arc::new(AtomicUsize::new(0));
        let parker = parker::Parker::new(0);
        let mut writers = Vec::new();
        for wanted in 1..=2 {
            let future = poll_fn(|context| {
                if steps.load(Ordering::Acquire) >= wanted {
                    return Poll::Ready(());
                }
                if writers.len() < wanted {
                    let (steps, waker) = (Arc::clone(&steps), context.waker().clone());
                    writers.push(thread::spawn(move || {
                        steps.fetch_add(1, Ordering::AcqRel);
                        waker.wake();
                    }));
                }
                Poll::Pending
            });
            assert_eq!(parker.block_on(future, in_an_hour()), Some(()));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

/// The operations of one lane, each on its own thread, execute one at a time in sequence order, and
/// each gets its turn.
fn turns_come_one_by_one(operations: u64) {
    let lanes = Arc::new(lane::LaneQueues::<1>::default());
    let ran = Arc::new(AtomicUsize::new(0));
    let operation = |number: u64| {
        let (lanes, ran) = (Arc::clone(&lanes), Arc::clone(&ran));
        move || {
            loom::future::block_on(lanes.turn(number));
            assert_eq!(ran.fetch_add(1, Ordering::Relaxed) as u64, number);
            lanes.end(number);
        }
    };
    let others: Vec<_> =
        (1..operations).rev().map(|number| thread::spawn(operation(number))).collect();
    operation(0)();
    others.into_iter().for_each(|other| other.join().unwrap());
}

pub fn turns_come_one_by_one_to_both() {
    in_every_order(|| turns_come_one_by_one(2));
}

pub fn turns_come_one_by_one_to_three() {
    in_orders_with(3, || turns_come_one_by_one(3));
}

/// Two operations take their sequence numbers under a lock. One of them executes while it holds the
/// lock, as the fast path does, if its turn has come.
pub fn an_operation_completed_under_the_lock_passes_the_turn_on() {
    in_every_order(|| {
        let lanes = Arc::new(lane::LaneQueues::<1>::default());
        let next = Arc::new(Mutex::new(0));
        let ran = Arc::new(AtomicUsize::new(0));
        let operation = |is_fast: bool| {
            let (lanes, next, ran) = (Arc::clone(&lanes), Arc::clone(&next), Arc::clone(&ran));
            move || {
                let mut next = next.lock().unwrap();
                let number = *next;
                *next += 1;
                if is_fast && lanes.is_turn(number) {
                    assert_eq!(ran.fetch_add(1, Ordering::Relaxed) as u64, number);
                    return lanes.end_alone(number);
                }
                drop(next);
                loom::future::block_on(lanes.turn(number));
                assert_eq!(ran.fetch_add(1, Ordering::Relaxed) as u64, number);
                lanes.end(number);
            }
        };
        let other = thread::spawn(operation(false));
        operation(true)();
        other.join().unwrap();
    });
}

/// Runs `body` and the threads that it starts in every interleaving.
fn in_every_order(body: impl Fn() + Sync + Send + 'static) {
    loom::model(body);
}

/// Runs `body` in every interleaving with at most `preemptions` preemptions. For bodies that have
/// too many interleavings in all.
fn in_orders_with(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(preemptions);
    orders.check(body);
}

/// An operation that is cancelled before its turn lets the later ones proceed.
pub fn an_operation_given_up_blocks_nobody() {
    in_orders_with(3, || {
        let lanes = Arc::new(lane::LaneQueues::<1>::default());
        let gives_up = Arc::clone(&lanes);
        let last = Arc::clone(&lanes);
        let threads = [
            thread::spawn(move || gives_up.end(1)),
            thread::spawn(move || loom::future::block_on(last.turn(2))),
        ];
        lanes.end(0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

fn in_an_hour() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// A copy of a source file with one error.
pub struct Broken {
    pub name: &'static str,
    /// Runs the scenarios of the file on the copy.
    pub scenarios: fn(),
    /// Part of the panic message with which the model reports the error.
    pub reported_as: &'static str,
}

/// Panics unless the model reports the error in each copy.
pub fn assert_found(copies: &[Broken]) {
    let wrong: Vec<_> = copies.iter().filter_map(Broken::report_otherwise).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Broken {
    /// `None` if the model reports the error as expected, else a message that says what it did.
    fn report_otherwise(&self) -> Option<String> {
        let Err(report) = std::thread::spawn(self.scenarios).join() else {
            return Some(format!("the error of {} is not found", self.name));
        };
        let text = report.downcast_ref::<String>().map(String::as_str);
        let text = text.or(report.downcast_ref::<&str>().copied()).unwrap_or_default();
        let is_found = text.contains(self.reported_as);
        (!is_found).then(|| format!("{} is reported as: {text}", self.name))
    }
}
