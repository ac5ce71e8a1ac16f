//! Files of nexar in which threads wait for each other or read what another writes, built with
//! loom's atomics, locks and threads in place of the system's and run in every interleaving that
//! the memory model allows.
//!
//! A library, so that the unit tests inside those files, which know nothing of loom, are left out.
//! `build.rs` also makes broken copies of `doorbell`, `recent_calls` and `device_poller`, which
//! must be found: a model that cannot fail proves nothing.

pub mod device;
pub mod device_poller;
pub mod doorbell;
#[path = "../../../src/comm/run/lane.rs"]
pub mod lane;
pub mod op;
#[path = "../../../src/parker.rs"]
pub mod parker;
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

/// One thread waits for a word; another gives it and wakes. In loom a sleep has no end: a lost wake
/// is found as a deadlock.
pub fn a_wake_is_never_lost() {
    in_every_order(|| {
        let word = Arc::new(AtomicUsize::new(0));
        let parker = parker::Parker::new(1);
        let mut giver = None;
        let future = poll_fn(|context| {
            if word.load(Ordering::Acquire) == 7 {
                return Poll::Ready(());
            }
            giver.get_or_insert_with(|| {
                let (word, waker) = (Arc::clone(&word), context.waker().clone());
                thread::spawn(move || {
                    word.store(7, Ordering::Release);
                    waker.wake();
                })
            });
            Poll::Pending
        });
        assert_eq!(parker.block_on(future, in_an_hour()), Some(()));
        giver.expect("the first poll was pending").join().unwrap();
    });
}

/// A wake that was meant for the wait before costs a poll, and hides no later one.
pub fn an_old_wake_hides_no_new_one() {
    in_every_order(|| {
        let steps = Arc::new(AtomicUsize::new(0));
        let parker = parker::Parker::new(0);
        let mut givers = Vec::new();
        for wanted in 1..=2 {
            let future = poll_fn(|context| {
                if steps.load(Ordering::Acquire) >= wanted {
                    return Poll::Ready(());
                }
                if givers.len() < wanted {
                    let (steps, waker) = (Arc::clone(&steps), context.waker().clone());
                    givers.push(thread::spawn(move || {
                        steps.fetch_add(1, Ordering::AcqRel);
                        waker.wake();
                    }));
                }
                Poll::Pending
            });
            assert_eq!(parker.block_on(future, in_an_hour()), Some(()));
        }
        givers.into_iter().for_each(|giver| giver.join().unwrap());
    });
}

/// Operations of one lane, each on its own thread: they run one by one, in their order, and each
/// gets its turn.
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

/// Two operations get their numbers under a lock; one of them is made while it is held, if its turn
/// has come.
pub fn who_ends_while_nobody_can_ask_leaves_the_turn_to_the_next() {
    in_every_order(|| {
        let lanes = Arc::new(lane::LaneQueues::<1>::default());
        let next = Arc::new(Mutex::new(0));
        let ran = Arc::new(AtomicUsize::new(0));
        let operation = |brief: bool| {
            let (lanes, next, ran) = (Arc::clone(&lanes), Arc::clone(&next), Arc::clone(&ran));
            move || {
                let mut next = next.lock().unwrap();
                let number = *next;
                *next += 1;
                if brief && lanes.has_come(number) {
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

/// Runs a body of threads in every interleaving.
fn in_every_order(body: impl Fn() + Sync + Send + 'static) {
    loom::model(body);
}

/// Where the interleavings are too many: all in which threads that could go on are preempted at
/// most so often.
fn in_orders_with(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(preemptions);
    orders.check(body);
}

/// One that is given up before its turn lets those behind it in.
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

/// A copy of a file with one error.
pub struct Broken {
    pub name: &'static str,
    /// The scenarios of the file, which run the copy.
    pub scenarios: fn(),
    /// Part of the text with which the model reports the error.
    pub reported_as: &'static str,
}

/// Panics unless the model reports the error in each of the copies.
pub fn assert_found(copies: &[Broken]) {
    let wrong: Vec<_> = copies.iter().filter_map(Broken::report_otherwise).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Broken {
    /// What the model says instead of reporting the error.
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
