//! Two files of nexar in which threads wait for each other, built with loom's locks and threads for the system's.
//!
//! A library, so that the unit tests inside those files, which know nothing of loom, are left out.

#[path = "../../../src/comm/run/lane.rs"]
pub mod lane;
#[path = "../../../src/parker.rs"]
pub mod parker;
pub mod sync;
pub mod transport;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// One thread waits for a word; another gives it and wakes. In loom a sleep has no end: a lost wake is
/// found as a deadlock.
pub fn a_wake_is_never_lost() {
    loom::model(|| {
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
    loom::model(|| {
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

/// Operations of one lane, each on its own thread: they run one by one, in their order, and each gets its
/// turn.
fn turns_come_one_by_one(operations: u64) {
    let lanes = Arc::new(lane::Lanes::<1>::default());
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
    loom::model(|| turns_come_one_by_one(2));
}

pub fn turns_come_one_by_one_to_three() {
    interrupted_often(|| turns_come_one_by_one(3));
}

/// Two operations get their numbers under a lock; one of them is made while it is held, if its turn has come.
pub fn who_ends_while_nobody_can_ask_leaves_the_turn_to_the_next() {
    loom::model(|| {
        let lanes = Arc::new(lane::Lanes::<1>::default());
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

/// For three threads, of which there are too many orders: all in which threads that could go on are
/// interrupted at most three times.
fn interrupted_often(body: impl Fn() + Sync + Send + 'static) {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(3);
    orders.check(body);
}

/// One that is given up before its turn lets those behind it in.
pub fn an_operation_given_up_blocks_nobody() {
    interrupted_often(|| {
        let lanes = Arc::new(lane::Lanes::<1>::default());
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
