//! Queues that are full or broken off, and memory that is published in place.

use std::future::Future;
use std::pin::pin;
use std::task::{Poll, Waker};

use super::*;
use crate::dtype::DataType;
use crate::op::{Operator, Reduction};
use crate::transport::CallHistory;
use crate::transport::queue::WINDOW;

/// Sends short messages to a rank that receives none, until a send would wait.
fn fill(mesh: &MemEnd, to: Rank) -> usize {
    let header = Header {
        seq: 0,
        call: Call::barrier(),
        history: CallHistory::default(),
        step: 0,
        bytes: 1,
    };
    let mut context = Context::from_waker(Waker::noop());
    let waits =
        |_: &usize| mesh.send(Lane(0), to, &header, &[7]).as_mut().poll(&mut context).is_pending();
    (0..1_000_000).find(waits).expect("a sender waits in the end")
}

#[test]
fn short_messages_that_no_rank_receives_take_bounded_memory() {
    let world = MemWorld::new(2).unwrap();
    let sent = fill(&world.ends()[0], Rank(1));
    assert!(sent * size_of::<Parcel>() <= WINDOW, "{sent} parcels in flight");
}

#[test]
fn a_sender_that_waits_for_its_receiver_learns_of_a_failure_and_of_a_leave() {
    for how in ["failed", "left"] {
        let world = MemWorld::new(2).unwrap();
        let meshes = world.ends();
        fill(&meshes[0], Rank(1));
        match how {
            "failed" => drop(meshes[1].fail(Error::Usage("wrong".to_owned()))),
            _ => meshes[1].leave(),
        }
        let header = Header {
            seq: 0,
            call: Call::barrier(),
            history: CallHistory::default(),
            step: 0,
            bytes: 1,
        };
        let mut context = Context::from_waker(Waker::noop());
        let polled = meshes[0].send(Lane(0), Rank(1), &header, &[7]).as_mut().poll(&mut context);
        assert!(matches!(polled, Poll::Ready(Err(_))), "{how}: {polled:?}");
    }
}

#[test]
fn a_message_broken_off_is_not_continued_by_the_next() {
    let world = MemWorld::new(2).unwrap();
    let meshes = world.ends();
    let (long, mut context) = (2 * PART, Context::from_waker(Waker::noop()));
    let header = Header {
        seq: 0,
        call: Call::barrier(),
        history: CallHistory::default(),
        step: 0,
        bytes: long,
    };
    let queue = world.queue(Lane(0), Rank(0), Rank(1));
    for _ in 0..2 {
        let first =
            pin!(meshes[0].put(queue, Rank(1), Some(header), &[1; PART])).poll(&mut context);
        assert!(matches!(first, Poll::Ready(Ok(()))));
    }
    let (mut into, mut land) = (vec![0; long], <[u8]>::copy_from_slice);
    let mut received = meshes[1].recv(Lane(0), Rank(0), &header, &mut into, &mut land);
    let Poll::Ready(Err(Error::Protocol { peer: Rank(0), .. })) =
        received.as_mut().poll(&mut context)
    else {
        panic!("the second message was taken for the rest of the first");
    };
}

const BYTES: usize = 64 << 10;

fn encoded(call: Call, bytes: usize) -> EncodedHeader {
    EncodedHeader::new(Header { seq: 0, call, history: CallHistory::default(), step: 0, bytes })
}

fn publish<'a>(end: &'a MemEnd, call: Call, bytes: &'a [u8]) -> Option<Published<'a>> {
    match end.publish_in_place(Lane(0), 0, &encoded(call, bytes.len()), bytes) {
        Ok(Attempt::Done(published)) => published,
        _ => panic!("the first epoch has a free slot"),
    }
}

/// A view of rank 0's memory, or the error of the wait for it.
fn view(end: &MemEnd, bytes: usize) -> Poll<Result<View<'_>>> {
    match end.view(Lane(0), 0, Rank(0), &encoded(Call::barrier(), bytes)) {
        Ok(Attempt::Done(view)) => Poll::Ready(Ok(view)),
        Ok(Attempt::Wait(wait)) => polled(wait).map(|waited| Err(waited.unwrap_err())),
        Err(error) => Poll::Ready(Err(error)),
    }
}

fn released(end: &MemEnd) -> Poll<Result<()>> {
    match end.released(Lane(0), 0) {
        Ok(Attempt::Done(())) => Poll::Ready(Ok(())),
        Ok(Attempt::Wait(wait)) => polled(wait),
        Err(error) => Poll::Ready(Err(error)),
    }
}

fn polled<T>(mut io: Io<'_, T>) -> Poll<T> {
    io.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn memory_published_in_place_is_viewed_there_until_its_call_ends() {
    for fails in [false, true] {
        let world = MemWorld::new(2).unwrap();
        let (ends, bytes) = (world.ends(), vec![7; BYTES]);
        let published = publish(&ends[0], Call::barrier(), &bytes).expect("it is long enough");
        match view(&ends[1], BYTES) {
            Poll::Ready(Ok(view)) => assert_eq!(view.as_ptr_range(), bytes.as_ptr_range()),
            _ => panic!("it was published"),
        }
        assert!(released(&ends[0]).is_pending());
        if fails {
            drop(published);
            assert!(view(&ends[1], BYTES).is_pending(), "the fault is not known yet");
            ends[0].fail(Error::Usage("given up".to_owned()));
            assert!(matches!(view(&ends[1], BYTES), Poll::Ready(Err(Error::Usage(_)))));
            assert!(matches!(released(&ends[0]), Poll::Ready(Err(_))));
        } else {
            ends[1].release(Lane(0), 0);
            assert!(matches!(released(&ends[0]), Poll::Ready(Ok(()))));
            drop(published);
            assert!(view(&ends[1], BYTES).is_pending());
        }
    }
}

#[test]
fn short_data_and_data_that_a_function_of_the_program_reduces_are_copied() {
    let world = MemWorld::new(2).unwrap();
    let (ends, bytes) = (world.ends(), vec![7; BYTES]);
    assert!(publish(&ends[0], Call::barrier(), &bytes[..8]).is_none());
    let operator = Operator::User { commutative: true };
    let reduction = Reduction { dtype: DataType::Int32.into(), operator };
    let call = Call::all_reduce(BYTES / 4, reduction);
    assert!(publish(&ends[0], call, &bytes).is_none());
}
