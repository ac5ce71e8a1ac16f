//! Point-to-point messages: random programs of them, with delays and killed ranks, receive the
//! right bytes or return an error that names the culprit, and never hang.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::join_all;
use proptest::prelude::*;

use nexar::comm::Communicator;
use nexar::dtype::DataType;
use nexar::error::{Code, Result};
use nexar::message::{Envelope, Incoming, Outgoing, RecvCall, RecvCount, Tag, Wanted, WantedTag};
use nexar::messaging;
use nexar::rank::Rank;
use nexar::transport::injection::{Faults, FaultyWorld};
use nexar::transport::{CREDIT, EAGER, Mesh, OVERHEAD};

use crate::case::{Case, Collective, sum};
use crate::world::Placement::OutOfPlace;
use crate::world::{execute, quiet, run};

const UNTAGGED: WantedTag = WantedTag::This(Tag::None);

pub fn outgoing(to: usize, tag: Tag, bytes: &[u8]) -> Outgoing<'_> {
    let envelope = Envelope { tag, dtype: DataType::Int8.into(), count: bytes.len() };
    Outgoing { to: Rank(to), envelope, bytes, synchronous: false }
}

fn incoming(from: Option<usize>, tag: WantedTag, into: &mut [u8]) -> Incoming<'_> {
    let wanted = Wanted { source: from.map(Rank), tag };
    let (dtype, count) = (DataType::Int8, RecvCount::Exactly(into.len()));
    Incoming { call: RecvCall { wanted, dtype: dtype.into(), count }, into, report: None }
}

/// A receive that is posted without a buffer.
fn posting(wanted: Wanted) -> RecvCall {
    RecvCall { wanted, dtype: DataType::Int8.into(), count: RecvCount::Exactly(1) }
}

/// The payload of message `number`, different for each.
pub fn contents(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 31 + at * 7 + at / 256) as u8).collect()
}

pub async fn send(rank: &Arc<Communicator>, to: usize, tag: Tag, bytes: &[u8]) -> Result<()> {
    rank.run_async(outgoing(to, tag, bytes)).await
}

async fn recv(
    rank: &Arc<Communicator>,
    from: Option<usize>,
    tag: WantedTag,
    length: usize,
) -> Result<Vec<u8>> {
    let mut into = vec![0xaa; length];
    rank.run_async(incoming(from, tag, &mut into)).await?;
    Ok(into)
}

/// A message of a random program. A sender posts all its sends at once, in the order of the
/// program; a receiver posts its receives in another order, at once or one by one.
#[derive(Clone, Debug)]
struct Message {
    from: usize,
    to: usize,
    tag: Tag,
    length: usize,
}

fn message(size: usize) -> impl Strategy<Value = Message> {
    let tag = prop_oneof![Just(Tag::None), (0..3_u32).prop_map(Tag::Number)];
    let length = prop_oneof![
        Just(0),
        1..200_usize,
        Just(EAGER),
        Just(EAGER + 1),
        (1..4_usize).prop_map(|parts| parts * (128 << 10) + 5),
    ];
    (0..size, 0..size, tag, length).prop_map(|(from, to, tag, length)| Message {
        from,
        to,
        tag,
        length,
    })
}

fn program() -> impl Strategy<Value = (usize, Vec<Message>, u64, bool)> {
    (2..=6_usize).prop_flat_map(|size| {
        let messages = prop::collection::vec(message(size), 0..40);
        (Just(size), messages, any::<u64>(), any::<bool>())
    })
}

/// Executes a rank's part of a program. Receives are sorted by source and tag: in another order
/// than the sends, but in the same order for each source and tag.
async fn take_part(
    rank: Arc<Communicator>,
    messages: Vec<Message>,
    one_by_one: bool,
) -> Result<()> {
    let me = rank.me().rank.0;
    let numbered = || messages.iter().enumerate();
    let sends = numbered().filter(|(_, message)| message.from == me).map(|(number, message)| {
        let rank = &rank;
        async move { send(rank, message.to, message.tag, &contents(number, message.length)).await }
    });
    let mut mine: Vec<_> = numbered().filter(|(_, message)| message.to == me).collect();
    mine.sort_by_key(|(number, message)| (message.from, format!("{:?}", message.tag), *number));
    let receives = mine.into_iter().map(|(number, message)| {
        let rank = &rank;
        async move {
            let tag = WantedTag::This(message.tag);
            let got = recv(rank, Some(message.from), tag, message.length).await?;
            assert!(got == contents(number, message.length), "message {number}: {message:?}");
            Ok(())
        }
    });
    let receiving = async {
        if one_by_one {
            for receive in receives {
                receive.await?;
            }
            return Ok(());
        }
        join_all(receives).await.into_iter().collect()
    };
    let (sent, received): (Vec<Result<()>>, Result<()>) = tokio::join!(join_all(sends), receiving);
    sent.into_iter().collect::<Result<()>>().and(received)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn random_programs_move_the_right_bytes((size, messages, seed, one_by_one) in program()) {
        let world = FaultyWorld::new(size, Faults::delays(seed)).unwrap();
        let results = run(&world, "", move |rank| take_part(rank, messages.clone(), one_by_one));
        for result in results {
            prop_assert!(result.is_ok(), "{result:?}");
        }
    }

    #[test]
    fn a_death_at_any_moment_ends_every_wait((size, messages, seed, one_by_one) in program()) {
        let (victim, at) = (seed as usize % size, seed / 64 % 40);
        let world = FaultyWorld::new(size, Faults::kill(Rank(victim), at)).unwrap();
        let results = run(&world, "", move |rank| take_part(rank, messages.clone(), one_by_one));
        for result in results {
            if let Err(error) = result {
                prop_assert_eq!(error.code(), Code::RemoteError);
                prop_assert!(error.to_string().ends_with("was killed"), "{}", error);
                prop_assert!(error.to_string().contains(&format!("rank {victim} ")), "{}", error);
            }
        }
    }
}

#[test]
fn a_short_message_does_not_overtake_a_long_one_before_it() {
    let results = run(&quiet(2), "", |rank| async move {
        match rank.me().rank {
            Rank(0) => {
                let (long, short) = (contents(1, 300_000), contents(2, 10));
                let both =
                    [send(&rank, 1, Tag::Number(5), &long), send(&rank, 1, Tag::Number(5), &short)];
                join_all(both).await.into_iter().for_each(Result::unwrap);
            }
            _ => {
                let tag = WantedTag::AnyNumber;
                assert!(recv(&rank, Some(0), tag, 300_000).await.unwrap() == contents(1, 300_000));
                assert!(recv(&rank, None, tag, 10).await.unwrap() == contents(2, 10));
            }
        }
    });
    assert_eq!(results.len(), 2);
}

#[test]
fn another_count_or_type_is_a_mismatch_on_both_sides_with_one_text() {
    for length in [3, EAGER + 4] {
        let texts = run(&quiet(3), "", move |rank| async move {
            let result = match rank.me().rank.0 {
                1 => send(&rank, 0, Tag::Number(5), &contents(1, length)).await,
                0 => recv(&rank, Some(1), WantedTag::This(Tag::Number(5)), length + 1)
                    .await
                    .map(drop),
                _ => Ok(()),
            };
            // A rank whose call has completed reports the mismatch in its next call.
            let case = Case {
                collective: Collective::Barrier,
                count: 0,
                reducer: sum(),
                root: 0,
                size: 3,
            };
            let error = match result {
                Ok(()) => execute(&rank, &case, OutOfPlace).await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(error.code(), Code::InvalidUsage);
            error.to_string()
        });
        let more = length + 1;
        let expected = format!(
            "rank 1 called Send({length} x int8 to rank 0, tag 5), but rank 0 called \
             Recv({more} x int8 from rank 1, tag 5)"
        );
        assert_eq!(texts, vec![expected; 3]);
    }
}

#[test]
fn a_receive_from_a_rank_that_has_left_gets_what_was_sent_and_then_an_error() {
    let results = run(&quiet(3), "", |rank| async move {
        if rank.me().rank != Rank(0) {
            send(&rank, 0, Tag::None, &[7]).await.unwrap();
            return Ok(Vec::new());
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(recv(&rank, Some(1), UNTAGGED, 1).await.unwrap(), [7]);
        assert_eq!(recv(&rank, None, UNTAGGED, 1).await.unwrap(), [7]);
        recv(&rank, None, UNTAGGED, 4).await
    });
    let error = results[0].as_ref().unwrap_err();
    assert_eq!(error.code(), Code::RemoteError);
    assert_eq!(
        error.to_string(),
        "rank 0, Recv(4 x int8 from any rank): rank 1 has left the communicator"
    );
}

#[test]
fn a_receive_from_any_rank_waits_while_one_is_left() {
    let results = run(&quiet(3), "", |rank| async move {
        match rank.me().rank {
            Rank(0) => recv(&rank, None, UNTAGGED, 2).await.unwrap(),
            Rank(1) => Vec::new(), // leaves at once
            _ => {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                send(&rank, 0, Tag::None, &[1, 2]).await.unwrap();
                Vec::new()
            }
        }
    });
    assert_eq!(results[0], [1, 2]);
}

#[test]
fn a_receive_that_waits_holds_up_no_collective_and_no_other_message() {
    run(&quiet(2), "", |rank| async move {
        let me = rank.me().rank.0;
        let case =
            Case { collective: Collective::AllReduce, count: 5, reducer: sum(), root: 0, size: 2 };
        let others = async {
            for _ in 0..5 {
                execute(&rank, &case, OutOfPlace).await.unwrap();
                let (sent, got) = tokio::join!(
                    send(&rank, 1 - me, Tag::Number(1), &[3]),
                    recv(&rank, Some(1 - me), WantedTag::This(Tag::Number(1)), 1)
                );
                assert_eq!((sent.unwrap(), got.unwrap()), ((), vec![3]));
            }
            send(&rank, 1 - me, Tag::Number(0), &[9]).await.unwrap();
        };
        let late = recv(&rank, Some(1 - me), WantedTag::This(Tag::Number(0)), 1);
        assert_eq!(tokio::join!(late, others).0.unwrap(), [9]);
    });
}

// The tests below poll the protocol itself, to check which operation waits for what.

pub fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Sends a message that takes its turn now.
pub fn sending<'a>(
    mesh: &'a Mesh,
    outgoing: Outgoing<'a>,
) -> impl Future<Output = Result<()>> + 'a {
    let turn = mesh.messages.message_queues().turn(outgoing.to);
    messaging::send(mesh, turn, outgoing)
}

/// Receives a message by a receive that is posted now.
pub fn receiving<'a>(
    mesh: &'a Mesh,
    incoming: Incoming<'a>,
) -> impl Future<Output = Result<(Rank, Envelope)>> + 'a {
    let receive = mesh.messages.message_queues().post(incoming.call);
    messaging::recv(mesh, receive, incoming)
}

pub fn pair() -> (Mesh, Mesh) {
    let mut meshes = quiet(2).meshes().into_iter();
    (meshes.next().unwrap(), meshes.next().unwrap())
}

#[test]
fn a_sender_whose_messages_nobody_receives_waits_in_the_end() {
    for length in [0, 100, EAGER, EAGER + 1] {
        let (one, other) = pair();
        let bytes = contents(0, length);
        let mut context = Context::from_waker(Waker::noop());
        // Pinned and kept: dropping a send that waits for its receive would cancel it.
        let mut waiting: Vec<_> =
            (0..4_000).map(|_| Box::pin(sending(&one, outgoing(1, Tag::None, &bytes)))).collect();
        waiting.retain_mut(|send| send.as_mut().poll(&mut context).is_pending());
        let mut arrived = 0;
        let wanted = Wanted { source: Some(Rank(0)), tag: UNTAGGED };
        while other.messages.message_queues().look(&wanted).unwrap().is_some() {
            drop(other.messages.message_queues().post(posting(wanted)));
            arrived += 1;
        }
        let cost = OVERHEAD + if length <= EAGER { length } else { 0 };
        assert!(
            arrived * OVERHEAD <= CREDIT && arrived >= CREDIT / cost,
            "{arrived} of {length} bytes"
        );
        assert!(waiting.len() >= 4_000 - arrived);
    }
}

#[test]
fn credit_comes_back_for_as_many_messages_as_one_likes() {
    let (one, other) = pair();
    for number in 0..10_000 {
        let bytes = contents(number, number % 2000);
        assert!(matches!(poll(sending(&one, outgoing(1, Tag::None, &bytes))), Poll::Ready(Ok(()))));
        let mut into = vec![0; bytes.len()];
        let received = receiving(&other, incoming(Some(0), UNTAGGED, &mut into));
        assert!(matches!(poll(received), Poll::Ready(Ok(_))), "message {number}");
        assert!(into == bytes);
    }
}

#[test]
fn a_synchronous_send_waits_for_its_receive_however_short_it_is() {
    let (one, other) = pair();
    let mut context = Context::from_waker(Waker::noop());
    let short = Outgoing { synchronous: true, ..outgoing(1, Tag::Number(3), &[1]) };
    let mut sent = pin!(sending(&one, short));
    assert!(sent.as_mut().poll(&mut context).is_pending());
    let wanted = Wanted { source: None, tag: WantedTag::AnyNumber };
    let (source, envelope) =
        other.messages.message_queues().look(&wanted).unwrap().expect("it has arrived");
    assert_eq!((source, envelope), (Rank(0), short.envelope));
    assert!(sent.as_mut().poll(&mut context).is_pending(), "a probe is no receive");
    let mut into = [0];
    let received = receiving(&other, incoming(Some(0), WantedTag::AnyNumber, &mut into));
    assert!(matches!(poll(received), Poll::Ready(Ok(_))));
    assert!(matches!(sent.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
}

#[test]
fn a_posted_receive_can_be_taken_back_until_it_has_its_message() {
    let (one, other) = pair();
    let wanted = Wanted { source: Some(Rank(0)), tag: UNTAGGED };
    assert!(other.messages.message_queues().post(posting(wanted)).cancel().is_none());
    let receive = other.messages.message_queues().post(posting(wanted));
    assert!(matches!(poll(sending(&one, outgoing(1, Tag::None, &[1]))), Poll::Ready(Ok(()))));
    let mut receive = receive.cancel().expect("it has its message");
    assert!(matches!(poll(receive.matched()), Poll::Ready(Ok(_))));
}

#[test]
fn a_receive_polled_by_another_task_wakes_that_one() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (one, other) = pair();
    let wanted = Wanted { source: None, tag: UNTAGGED };
    let mut receive = other.messages.message_queues().post(posting(wanted));
    let mut matched = pin!(receive.matched());
    let tasks = [(); 2].map(|()| Arc::new(Count(AtomicUsize::new(0))));
    for task in &tasks {
        let waker = Waker::from(Arc::clone(task));
        assert!(matched.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(matches!(poll(sending(&one, outgoing(1, Tag::None, &[1]))), Poll::Ready(Ok(()))));
    assert_eq!(tasks.map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
}

#[test]
fn a_long_message_to_oneself_waits_for_its_receive() {
    let mesh = quiet(1).meshes().remove(0);
    let mut context = Context::from_waker(Waker::noop());
    let bytes = contents(1, 3 << 20);
    let mut sent = pin!(sending(&mesh, outgoing(0, Tag::None, &bytes)));
    assert!(sent.as_mut().poll(&mut context).is_pending());
    let mut into = vec![0; 3 << 20];
    {
        let mut received = pin!(receiving(&mesh, incoming(None, UNTAGGED, &mut into)));
        let mut done = (false, false);
        for _ in 0..100 {
            done.0 = done.0 || received.as_mut().poll(&mut context).is_ready();
            done.1 = done.1 || sent.as_mut().poll(&mut context).is_ready();
            if done == (true, true) {
                break;
            }
        }
        assert_eq!(done, (true, true));
    }
    assert!(into == bytes);
}

#[test]
fn a_control_message_that_breaks_the_rules_is_refused() {
    use nexar::transport::{ControlMessage, MessageQueues, Protocol};
    let message_queues = MessageQueues::new(nexar::rank::RankOf::new(Rank(0), 2));
    let message = |id, length| {
        let envelope = Envelope { tag: Tag::None, dtype: DataType::Int8.into(), count: length };
        let protocol = Protocol::Eager { payload: vec![0; length], wants_cts: false };
        ControlMessage::Message { id, envelope, protocol }
    };
    assert!(message_queues.deliver(Rank(1), message(0, 1)).is_ok());
    let refused = |message| message_queues.deliver(Rank(1), message).unwrap_err();
    assert!(refused(message(0, 1)).contains("where 1 was expected"));
    assert!(refused(ControlMessage::ClearToSend { id: 0 }).contains("which awaits none"));
    assert!(refused(ControlMessage::Credit { bytes: 1 }).contains("not used"));
    let beyond = (1..).find_map(|id| message_queues.deliver(Rank(1), message(id, EAGER)).err());
    assert!(beyond.unwrap().contains("beyond its credit"));
}
