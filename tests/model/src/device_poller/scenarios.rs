//! Threads wait for words that a device writes. The device is a thread here.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::{Context, Waker};

use loom::future::block_on;
use loom::sync::Mutex;
use loom::thread;

use super::file::reach;
use crate::device::pinned::TimelineSemaphore;
use crate::in_orders_with;
use crate::runtime::join_started;
use crate::sync::let_time_pass;

fn is_over() -> bool {
    false
}

/// Registers a last wait, which ends the poller. So each scenario also shows that a sleeping poller
/// is woken once more.
fn end() {
    let last = Box::pin(reach(TimelineSemaphore::that_ends_poller(), 1, is_over));
    // The poller has poisoned its lock, which the drop of the wait would take.
    let mut last = ManuallyDrop::new(last);
    assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    join_started();
}

fn device(semaphores: &[TimelineSemaphore]) -> thread::JoinHandle<()> {
    let semaphores = semaphores.to_vec();
    thread::spawn(move || semaphores.iter().for_each(|semaphore| semaphore.advance(1)))
}

/// Waits for a word and then frees its memory.
fn wait(semaphore: TimelineSemaphore) {
    assert!(block_on(reach(semaphore, 1, is_over)));
    semaphore.free();
}

pub fn a_thread_that_waits_is_woken() {
    in_orders_with(3, || {
        let semaphore = TimelineSemaphore::at_zero();
        let device = device(&[semaphore]);
        wait(semaphore);
        device.join().unwrap();
        end();
    });
}

/// Between the two waits the poller may fall asleep.
pub fn a_second_wait_is_woken_too() {
    in_orders_with(2, || {
        let semaphores = [TimelineSemaphore::at_zero(), TimelineSemaphore::at_zero()];
        let device = device(&semaphores);
        semaphores.into_iter().for_each(wait);
        device.join().unwrap();
        end();
    });
}

/// Each of two threads writes the word that the other waits for, one of them after its own wait.
pub fn threads_that_wait_at_once_are_all_woken() {
    in_orders_with(2, || {
        let [first, second] = [TimelineSemaphore::at_zero(), TimelineSemaphore::at_zero()];
        let other = thread::spawn(move || {
            wait(first);
            second.advance(1);
        });
        first.advance(1);
        wait(second);
        other.join().unwrap();
        end();
    });
}

/// A wait that moves to another task is woken there.
pub fn the_waker_of_the_last_poll_is_woken() {
    in_orders_with(2, || {
        let semaphore = TimelineSemaphore::at_zero();
        let mut wait = Box::pin(reach(semaphore, 1, is_over));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let device = device(&[semaphore]);
        assert!(block_on(wait));
        semaphore.free();
        device.join().unwrap();
        end();
    });
}

pub fn a_wait_that_is_given_up_leaves_its_word_alone() {
    in_orders_with(4, || {
        let semaphore = TimelineSemaphore::at_zero();
        let device = device(&[semaphore]);
        let mut wait = Box::pin(reach(semaphore, 1, is_over));
        let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(wait);
        semaphore.free();
        device.join().unwrap();
        end();
    });
}

/// The device never writes. Only the poller wakes the waiting thread, every millisecond.
pub fn a_wait_that_is_over_ends() {
    in_orders_with(3, || {
        let semaphore = TimelineSemaphore::at_zero();
        // A lock, because loads of loom's atomics may return a stale value for ever.
        let is_over = Arc::new(Mutex::new(false));
        let over = Arc::clone(&is_over);
        let other = thread::spawn(move || {
            *over.lock().unwrap() = true;
            let_time_pass();
        });
        assert!(!block_on(reach(semaphore, 1, move || *is_over.lock().unwrap())));
        semaphore.free();
        other.join().unwrap();
        end();
    });
}

pub fn all() {
    a_thread_that_waits_is_woken();
    a_second_wait_is_woken_too();
    threads_that_wait_at_once_are_all_woken();
    the_waker_of_the_last_poll_is_woken();
    a_wait_that_is_given_up_leaves_its_word_alone();
    a_wait_that_is_over_ends();
}
