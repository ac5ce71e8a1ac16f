//! Threads that wait for words that a device, which is a thread here, writes.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::{Context, Waker};

use loom::future::block_on;
use loom::sync::Mutex;
use loom::thread;

use super::file::come_to;
use crate::device::pinned::Cell;
use crate::in_orders_with;
use crate::runtime::join_started;
use crate::sync::let_time_pass;

fn is_over() -> bool {
    false
}

/// Registers a last wait, on which the poller ends. So the scenario also shows that a poller that
/// has gone to sleep is woken once more.
fn end() {
    let last = Box::pin(come_to(Cell::that_ends_poller(), 1, is_over));
    // The poller ends with its lock poisoned, which the drop would take.
    let mut last = ManuallyDrop::new(last);
    assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    join_started();
}

fn device(cells: &[Cell]) -> thread::JoinHandle<()> {
    let cells = cells.to_vec();
    thread::spawn(move || cells.iter().for_each(|cell| cell.advance(1)))
}

/// Waits for a word, whose memory is then freed.
fn wait(cell: Cell) {
    assert!(block_on(come_to(cell, 1, is_over)));
    cell.free();
}

pub fn a_thread_that_waits_is_woken() {
    in_orders_with(3, || {
        let cell = Cell::at_zero();
        let device = device(&[cell]);
        wait(cell);
        device.join().unwrap();
        end();
    });
}

/// The poller may have gone to sleep between the two.
pub fn a_second_wait_is_woken_too() {
    in_orders_with(2, || {
        let cells = [Cell::at_zero(), Cell::at_zero()];
        let device = device(&cells);
        cells.into_iter().for_each(wait);
        device.join().unwrap();
        end();
    });
}

/// Each of two threads writes the word of the other, one of them after its own wait.
pub fn threads_that_wait_at_once_are_all_woken() {
    in_orders_with(2, || {
        let [first, second] = [Cell::at_zero(), Cell::at_zero()];
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
        let cell = Cell::at_zero();
        let mut coming = Box::pin(come_to(cell, 1, is_over));
        let mut nobody = Context::from_waker(Waker::noop());
        let polled = coming.as_mut().poll(&mut nobody);
        assert!(polled.is_pending());
        let device = device(&[cell]);
        assert!(block_on(coming));
        cell.free();
        device.join().unwrap();
        end();
    });
}

pub fn a_wait_that_is_given_up_leaves_its_word_alone() {
    in_orders_with(4, || {
        let cell = Cell::at_zero();
        let device = device(&[cell]);
        let mut coming = Box::pin(come_to(cell, 1, is_over));
        let _ = coming.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(coming);
        cell.free();
        device.join().unwrap();
        end();
    });
}

/// The word never comes. Nobody wakes the waiting thread but the poller, each millisecond.
pub fn a_wait_that_is_over_ends() {
    in_orders_with(3, || {
        let cell = Cell::at_zero();
        // A lock, as loom's atomics may return an old value for ever.
        let is_over = Arc::new(Mutex::new(false));
        let over = Arc::clone(&is_over);
        let other = thread::spawn(move || {
            *over.lock().unwrap() = true;
            let_time_pass();
        });
        assert!(!block_on(come_to(cell, 1, move || *is_over.lock().unwrap())));
        cell.free();
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
