//! Every failure is an error with its cause, on every rank that it affects, in bounded time.
#![expect(unsafe_code, reason = "buffers of the API are addresses")]

mod ranks;

use std::sync::Arc;
use std::sync::mpsc::channel;

use nexar::{CpuAdapter, DataType, NexarError, ReduceOp, SyncClient};

use ranks::{address_mut, run, within_limit};

#[track_caller]
fn has(error: &NexarError, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} lacks one of {words:?}");
}

#[test]
fn a_world_of_no_ranks_or_too_many_is_refused() {
    for size in [0, 257, u32::MAX] {
        let refused = SyncClient::bootstrap_local(size, Arc::new(CpuAdapter::new()));
        let error = refused.err().expect("it was created");
        assert!(matches!(error, NexarError::Transport { .. }), "{error:?}");
        has(&error, &["from 1 to 256"]);
    }
}

#[test]
fn ranks_that_do_not_exist_are_named() {
    run(2, |client| {
        let mut data = [0f32; 4];
        let ptr = address_mut(&mut data);
        // SAFETY: there are 4 elements, here and below.
        let calls = unsafe {
            [
                client.broadcast(ptr, 4, DataType::F32, 2),
                client.reduce(ptr, 4, DataType::F32, ReduceOp::Sum, 2),
                client.gather(ptr, ptr, 1, DataType::F32, 2),
                client.scatter(ptr, ptr, 1, DataType::F32, 2),
                client.send(ptr, 16, 2, 0),
                client.recv(ptr, 16, 2, 0),
            ]
        };
        for call in calls {
            let error = call.unwrap_err();
            let expected = matches!(error, NexarError::InvalidRank { rank: 2, world_size: 2 });
            assert!(expected, "{error:?}");
        }
        let own = client.rank();
        // SAFETY: as above.
        let calls = unsafe { [client.send(ptr, 16, own, 0), client.recv(ptr, 16, own, 0)] };
        for call in calls {
            let error = call.unwrap_err();
            assert!(matches!(error, NexarError::UnknownPeer { rank } if rank == own), "{error:?}");
        }
        // The communicator still works.
        client.barrier().unwrap();
    });
}

#[test]
fn wrong_arguments_are_refused_and_the_communicator_still_works() {
    run(2, |client| {
        let mut data = [1f64; 2];
        let ptr = address_mut(&mut data);
        let (sum, peer) = (ReduceOp::Sum, 1 - client.rank());
        for (call, word) in [
            // SAFETY: NULL is refused, here and below.
            (unsafe { client.all_reduce(0, 2, DataType::F64, sum) }, "NULL"),
            // SAFETY: as above.
            (unsafe { client.send(0, 2, peer, 0) }, "NULL"),
            // SAFETY: as above.
            (unsafe { client.recv(0, 2, peer, 0) }, "NULL"),
            // SAFETY: the tag is refused, here and below.
            (unsafe { client.send(ptr, 2, peer, 1 << 31) }, "tag 2147483648"),
            // SAFETY: as above.
            (unsafe { client.recv(ptr, 2, peer, u32::MAX) }, "tag 4294967295"),
            // SAFETY: a length beyond the address space is refused, here and below.
            (unsafe { client.all_reduce(ptr, usize::MAX / 8 + 1, DataType::F64, sum) }, "memory"),
            // SAFETY: as above.
            (unsafe { client.all_gather(ptr, ptr, usize::MAX / 16, DataType::F64) }, "memory"),
        ] {
            let error = call.unwrap_err();
            let rank = client.rank();
            let is_own =
                matches!(error, NexarError::CollectiveFailed { rank: of, .. } if of == rank);
            assert!(is_own, "{error:?}");
            has(&error, &[word]);
        }
        // SAFETY: there are 2 elements.
        unsafe { client.all_reduce(ptr, 2, DataType::F64, sum) }.unwrap();
        assert_eq!(data, [2.0; 2]);
    });
}

#[test]
fn calls_that_disagree_are_named_on_every_rank() {
    run(3, |client| {
        let mut data = [0f32; 8];
        let count = if client.rank() == 2 { 8 } else { 4 };
        let ptr = address_mut(&mut data);
        // SAFETY: there are 8 elements.
        let called = unsafe { client.all_reduce(ptr, count, DataType::F32, ReduceOp::Sum) };
        let error = called.unwrap_err();
        has(&error, &["all_reduce failed on rank", "ranks disagree", "rank 2", "4 x", "8 x"]);
        // From now on every call returns the same error.
        has(&client.barrier().unwrap_err(), &["ranks disagree"]);
    });
}

#[test]
fn a_message_of_another_size_than_its_receive_is_named() {
    run(2, |client| {
        let mut data = [0u8; 20];
        let ptr = address_mut(&mut data);
        if client.rank() == 0 {
            // SAFETY: there are 20 bytes.
            unsafe { client.send(ptr, 10, 1, 4) }.unwrap();
        } else {
            // SAFETY: as above.
            let error = unsafe { client.recv(ptr, 20, 0, 4) }.unwrap_err();
            has(&error, &["recv failed on rank 1", "10 x", "20 x", "tag 4"]);
        }
    });
}

#[test]
fn a_rank_that_is_dropped_ends_the_calls_of_the_others() {
    run(3, |client| {
        if client.rank() == 1 {
            return;
        }
        has(&client.barrier().unwrap_err(), &["rank 1"]);
    });
}

#[test]
fn a_rank_that_only_sends_gets_an_error_when_its_receiver_is_dropped() {
    run(2, |client| {
        if client.rank() == 1 {
            return;
        }
        let mut data = vec![0u8; 100_000];
        let ptr = address_mut(&mut data);
        let error = loop {
            // SAFETY: `data` has that many bytes.
            if let Err(error) = unsafe { client.send(ptr, 100_000, 1, 0) } {
                break error;
            }
        };
        has(&error, &["send failed on rank 0", "rank 1"]);
    });
}

#[test]
fn a_receive_ends_when_its_sender_is_dropped() {
    within_limit(|| {
        let adapter = Arc::new(CpuAdapter::new());
        let [zero, one] = <[_; 2]>::try_from(SyncClient::bootstrap_local(2, adapter).unwrap())
            .unwrap_or_else(|_| panic!("there are two ranks"));
        let (begins, begun) = channel();
        let waiting = std::thread::spawn(move || {
            let mut data = [0u8; 4];
            begins.send(()).unwrap();
            // SAFETY: there are 4 bytes.
            unsafe { zero.recv(address_mut(&mut data), 4, 1, 0) }.unwrap_err()
        });
        begun.recv().unwrap();
        drop(one);
        has(&waiting.join().unwrap(), &["recv failed on rank 0", "rank 1"]);
    });
}
