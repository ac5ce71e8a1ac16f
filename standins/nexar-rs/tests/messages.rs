//! Messages between threads: a send of any size returns before its receive.
#![expect(unsafe_code, reason = "buffers of the API are addresses")]

mod ranks;

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use ranks::{address, address_mut, run};

/// Much longer than the longest message that libnexar sends before its receive is posted.
const LARGE: usize = 4 << 20;

#[test]
fn both_ranks_may_send_large_messages_before_either_receives() {
    run(2, |client| {
        let (rank, peer) = (client.rank(), 1 - client.rank());
        let sent = vec![rank as u8 + 1; LARGE];
        // SAFETY: there are LARGE bytes.
        unsafe { client.send(address(&sent), LARGE, peer, 0) }.unwrap();
        // The bytes were copied.
        drop(sent);
        let mut received = vec![0u8; LARGE];
        // SAFETY: as above.
        unsafe { client.recv(address_mut(&mut received), LARGE, peer, 0) }.unwrap();
        assert_eq!(received, vec![peer as u8 + 1; LARGE]);
    });
}

#[test]
fn a_receive_takes_the_message_with_its_tag_whatever_was_sent_before() {
    run(2, |client| {
        let tags = [5, 0, i32::MAX as u32, 1 << 30, 6];
        for size in [0, 1, 100_000, LARGE] {
            if client.rank() == 0 {
                for tag in tags {
                    let sent = vec![tag as u8; size];
                    // SAFETY: there are `size` bytes.
                    unsafe { client.send(address(&sent), size, 1, tag) }.unwrap();
                }
            } else {
                for tag in tags.into_iter().rev() {
                    let mut received = vec![99u8; size];
                    // SAFETY: as above.
                    unsafe { client.recv(address_mut(&mut received), size, 0, tag) }.unwrap();
                    assert_eq!(received, vec![tag as u8; size], "tag {tag}");
                }
            }
        }
    });
}

#[test]
fn messages_of_one_tag_arrive_in_order_and_do_not_block_collectives() {
    const COUNT: u64 = 50;
    run(3, |client| {
        let (rank, size) = (client.rank(), client.world_size());
        let lengths = |number: u64| if number.is_multiple_of(3) { 20_000 } else { 1 };
        for number in 0..COUNT {
            for peer in (0..size).filter(|peer| *peer != rank) {
                let sent = vec![number; lengths(number)];
                // SAFETY: `sent` has that many bytes.
                unsafe { client.send(address(&sent), sent.len() * 8, peer, 9) }.unwrap();
            }
        }
        client.barrier().unwrap();
        for number in 0..COUNT {
            for peer in (0..size).filter(|peer| *peer != rank) {
                let mut received = vec![u64::MAX; lengths(number)];
                let bytes = received.len() * 8;
                // SAFETY: as above.
                unsafe { client.recv(address_mut(&mut received), bytes, peer, 9) }.unwrap();
                assert_eq!(received, vec![number; lengths(number)], "from {peer}");
            }
        }
    });
}

/// Messages that are too long to be sent before their receives.
#[test]
fn no_more_than_256_messages_wait_for_their_receives() {
    const COUNT: usize = 600;
    const BYTES: usize = 80_000;
    static ACCEPTED: AtomicUsize = AtomicUsize::new(0);
    run(2, |client| {
        for number in 0..COUNT {
            let mut data = vec![number as u8; BYTES];
            if client.rank() == 0 {
                // SAFETY: `data` has that many bytes.
                unsafe { client.send(address(&data), BYTES, 1, 3) }.unwrap();
                ACCEPTED.fetch_add(1, SeqCst);
                continue;
            }
            while ACCEPTED.load(SeqCst) < (number + 256).min(COUNT) {
                thread::yield_now();
            }
            // Gives a sender that does not wait time to exceed the limit. Only at some messages,
            // because a yield takes long on a busy machine.
            let yields = if number.is_multiple_of(50) { 100 } else { 0 };
            (0..yields).for_each(|_| thread::yield_now());
            assert!(ACCEPTED.load(SeqCst) <= number + 256);
            // SAFETY: as above.
            unsafe { client.recv(address_mut(&mut data), BYTES, 0, 3) }.unwrap();
            assert_eq!(data, vec![number as u8; BYTES]);
        }
    });
}

#[test]
fn a_message_arrives_although_its_sender_is_dropped_immediately() {
    for size in [8, LARGE] {
        run(2, move |client| {
            let mut data = vec![client.rank() as u8; size];
            match client.rank() {
                // SAFETY: there are `size` bytes.
                0 => unsafe { client.send(address(&data), size, 1, 0) }.unwrap(),
                // SAFETY: as above.
                _ => unsafe { client.recv(address_mut(&mut data), size, 0, 0) }.unwrap(),
            }
            drop(client);
            assert_eq!(data, vec![0; size]);
        });
    }
}
