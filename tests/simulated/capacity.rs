//! Receives with a capacity, and probes: random programs of them agree with an oracle, a message
//! that is too long stays, and no message overtakes another.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::task::yield_now;

use nexar::comm::{Communicator, probe_async};
use nexar::dtype::DataType;
use nexar::error::{Code, Error, Result};
use nexar::message::{
    Envelope, Incoming, RecvCall, RecvCount, StatusReport, Tag, Wanted, WantedTag,
};
use nexar::messaging;
use nexar::rank::Rank;
use nexar::transport::EAGER;
use nexar::transport::injection::{Faults, FaultyWorld};

use crate::message::{contents, outgoing, pair, poll, receiving, send, sending};
use crate::world::{UNTOUCHED, quiet, run};

const ANY: Wanted = Wanted { source: None, tag: WantedTag::AnyNumber };

fn from(source: usize, tag: u32) -> Wanted {
    Wanted { source: Some(Rank(source)), tag: WantedTag::This(Tag::Number(tag)) }
}

fn up_to(wanted: Wanted, into: &mut [u8]) -> Incoming<'_> {
    let call =
        RecvCall { wanted, dtype: DataType::Int8.into(), count: RecvCount::UpTo(into.len()) };
    Incoming { call, into, report: None }
}

/// Receives at most `capacity` bytes. Returns what was reported, and the bytes.
async fn recv_up_to(
    rank: &Arc<Communicator>,
    wanted: Wanted,
    capacity: usize,
) -> Result<(Rank, Envelope, Vec<u8>)> {
    let (mut into, mut reported) = (vec![UNTOUCHED; capacity], None);
    let report: StatusReport<'_> = Box::new(|source, envelope| reported = Some((source, envelope)));
    let incoming = Incoming { report: Some(report), ..up_to(wanted, &mut into) };
    let result = rank.run_async(incoming).await;
    let received = reported.map_or(0, |(_, envelope)| envelope.count);
    assert!(into[received..].iter().all(|byte| *byte == UNTOUCHED), "written beyond the count");
    assert_eq!(result.is_ok(), reported.is_some(), "only a success is reported");
    result.map(|()| {
        let (source, envelope) = reported.expect("a success is reported");
        into.truncate(received);
        (source, envelope, into)
    })
}

/// A message of a random program, to rank 0.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: usize,
    tag: u32,
    length: usize,
}

impl Sent {
    fn envelope(&self) -> Envelope {
        let (tag, dtype) = (Tag::Number(self.tag), DataType::Int8);
        Envelope { tag, dtype: dtype.into(), count: self.length }
    }
}

/// A step of rank 0, for a message that it names by source and tag.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Probes, then receives as many elements as were found.
    Probe,
    /// Looks whether there is a message.
    Look,
    /// Receives with this capacity.
    UpTo(usize),
}

const LENGTHS: [usize; 7] = [0, 1, 2, 100, EAGER, EAGER + 1, 60_000];

fn sent(size: usize) -> impl Strategy<Value = Sent> {
    let length = prop::sample::select(&LENGTHS[..]);
    (1..size, 0..3_u32, length).prop_map(|(from, tag, length)| Sent { from, tag, length })
}

fn wanted(size: usize) -> impl Strategy<Value = Wanted> {
    let source = prop::option::of((1..size).prop_map(Rank));
    let this = (0..3_u32).prop_map(|tag| WantedTag::This(Tag::Number(tag)));
    let tag = prop_oneof![Just(WantedTag::AnyNumber), this];
    (source, tag).prop_map(|(source, tag)| Wanted { source, tag })
}

fn step() -> impl Strategy<Value = Step> {
    let capacity = prop::sample::select(&LENGTHS[..]);
    prop_oneof![Just(Step::Probe), Just(Step::Look), capacity.prop_map(Step::UpTo)]
}

type Program = (usize, Vec<Sent>, Vec<(Wanted, Step)>, u64);

fn program() -> impl Strategy<Value = Program> {
    (2..=4_usize).prop_flat_map(|size| {
        let messages = prop::collection::vec(sent(size), 0..20);
        let steps = prop::collection::vec((wanted(size), step()), 0..40);
        (Just(size), messages, steps, any::<u64>())
    })
}

/// The messages that rank 0 has not received, by sender, in the order sent, with their numbers.
struct Oracle(Vec<VecDeque<(usize, Sent)>>);

impl Oracle {
    fn new(size: usize, messages: &[Sent]) -> Self {
        let of = |rank| {
            let numbered = messages.iter().copied().enumerate();
            numbered.filter(|(_, message)| message.from == rank).collect()
        };
        Self((0..size).map(of).collect())
    }

    /// Whether a message that has not been received is `wanted`.
    fn has(&self, wanted: &Wanted) -> bool {
        let mut all = self.0.iter().flatten();
        all.any(|(_, one)| wanted.takes(Rank(one.from), Tag::Number(one.tag)))
    }

    /// Checks that a message found is the first of its sender that is `wanted`. Returns its number
    /// and its place in the queue of its sender.
    fn check(&self, wanted: &Wanted, source: Rank, envelope: Envelope) -> (usize, usize) {
        let names = |(_, one): &(usize, Sent)| wanted.takes(source, Tag::Number(one.tag));
        let place = self.0[source.0].iter().position(names).expect("it was sent");
        let (number, message) = self.0[source.0][place];
        assert_eq!(message.envelope(), envelope, "another was sent before");
        (number, place)
    }

    fn take(&mut self, wanted: &Wanted, source: Rank, envelope: Envelope, bytes: &[u8]) {
        let (number, place) = self.check(wanted, source, envelope);
        assert!(bytes == contents(number, envelope.count), "message {number}");
        self.0[source.0].remove(place);
    }
}

async fn probe(rank: &Arc<Communicator>, wanted: Wanted) -> Result<(Rank, Envelope)> {
    Ok(probe_async(rank, wanted, true).await?.expect("a probe that waits finds a message"))
}

/// Executes the steps of rank 0 that do not wait for ever, then receives what is left.
async fn receive_all(rank: &Arc<Communicator>, program: &Program) -> Result<()> {
    let (size, messages, steps, _) = program;
    let mut oracle = Oracle::new(*size, messages);
    let rest = steps.iter().copied().chain(std::iter::repeat((ANY, Step::Probe)));
    for (wanted, step) in rest {
        if !oracle.has(&ANY) {
            return Ok(());
        }
        let wanted = if oracle.has(&wanted) { wanted } else { ANY };
        match step {
            Step::Look => {
                if let Some((source, envelope)) = probe_async(rank, wanted, false).await? {
                    oracle.check(&wanted, source, envelope);
                }
            }
            Step::Probe => {
                let (source, found) = probe(rank, wanted).await?;
                oracle.check(&wanted, source, found);
                let this = Wanted { source: Some(source), tag: WantedTag::This(found.tag) };
                let (from, envelope, bytes) = recv_up_to(rank, this, found.count).await?;
                assert_eq!((from, envelope), (source, found));
                oracle.take(&this, source, envelope, &bytes);
            }
            Step::UpTo(capacity) => match recv_up_to(rank, wanted, capacity).await {
                Ok((source, envelope, bytes)) => oracle.take(&wanted, source, envelope, &bytes),
                Err(error) if error.code() == Code::InvalidArgument => {
                    let found = probe_async(rank, wanted, false).await?;
                    let (source, envelope) = found.expect("it has arrived, and stays");
                    oracle.check(&wanted, source, envelope);
                    assert!(envelope.count > capacity);
                    check_text(&error, source, envelope, wanted, capacity);
                }
                Err(error) => return Err(error),
            },
        }
    }
    unreachable!("the steps end when all messages were received")
}

fn check_text(error: &Error, from: Rank, sent: Envelope, wanted: Wanted, capacity: usize) {
    let Tag::Number(tag) = sent.tag else { panic!("it has a tag") };
    let call = format!("{from} called Send({} x int8 to rank 0, tag {tag})", sent.count);
    let receive = format!("too long for Recv(up to {capacity} x int8 {wanted}) of rank 0");
    let text = error.to_string();
    assert!(text.contains(&call) && text.contains(&receive), "{text}");
}

/// Reports the death of a rank some time after it has died. Never ends.
async fn report_death(links: &FaultyWorld, victim: Rank) {
    while !links.is_dead(victim) {
        yield_now().await;
    }
    for _ in 0..1000 {
        yield_now().await;
    }
    links.report_death(victim);
    std::future::pending().await
}

async fn take_part(rank: Arc<Communicator>, program: Program) -> Result<()> {
    let me = rank.me().rank.0;
    if me == 0 {
        return receive_all(&rank, &program).await;
    }
    let numbered = program.1.iter().enumerate().filter(|(_, message)| message.from == me);
    let sends =
        numbered.map(|(number, message)| {
            let rank = &rank;
            async move {
                send(rank, 0, Tag::Number(message.tag), &contents(number, message.length)).await
            }
        });
    join_all(sends).await.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn receives_and_probes_find_the_first_message_of_a_sender(program in program()) {
        let world = FaultyWorld::new(program.0, Faults::delays(program.3)).unwrap();
        for result in run(&world, "", move |rank| take_part(rank, program.clone())) {
            prop_assert!(result.is_ok(), "{result:?}");
        }
    }

    #[test]
    fn a_death_ends_every_receive_and_every_probe(program in program()) {
        let (victim, at) = (program.3 as usize % program.0, program.3 / 64 % 40);
        let world = FaultyWorld::new(program.0, Faults::kill(Rank(victim), at)).unwrap();
        let links = Arc::clone(&world);
        let results = run(&world, "", move |rank| {
            let (links, program) = (Arc::clone(&links), program.clone());
            async move {
                // A receive from any rank ends when a link reports the death.
                tokio::select! {
                    result = take_part(rank, program) => result,
                    () = report_death(&links, Rank(victim)) => unreachable!("it goes on"),
                }
            }
        });
        for result in results {
            if let Err(error) = result {
                prop_assert_eq!(error.code(), Code::RemoteError, "{}", error);
            }
        }
    }

    /// Receives that name the same messages have the same results whether they are posted before
    /// the messages arrive or after.
    #[test]
    fn a_receive_has_the_same_result_before_its_message_and_after_it(
        lengths in prop::collection::vec(prop::sample::select(&LENGTHS[..]), 1..8),
        capacities in prop::collection::vec(prop::sample::select(&LENGTHS[..]), 0..8),
        is_posted_first in any::<bool>(),
    ) {
        // Receives that take all messages that are left.
        let capacities = capacities.into_iter().chain(lengths.iter().map(|_| 60_000));
        let (mut expected, mut message) = (Vec::new(), 0);
        for capacity in capacities {
            let Some(length) = lengths.get(message) else { break };
            let fits = *length <= capacity;
            expected.push((capacity, fits.then_some(message)));
            message += usize::from(fits);
        }
        let results = run(&quiet(2), "", move |rank| {
            let (lengths, expected) = (lengths.clone(), expected.clone());
            async move {
                match rank.me().rank {
                    Rank(0) => receive_in_order(&rank, &expected, is_posted_first).await,
                    _ => send_in_order(&rank, &lengths, is_posted_first).await,
                }
            }
        });
        for result in results {
            prop_assert!(result.is_ok(), "{result:?}");
        }
    }
}

/// `expected`: capacities, and which message each receives.
async fn receive_in_order(
    rank: &Arc<Communicator>,
    expected: &[(usize, Option<usize>)],
    is_posted_first: bool,
) -> Result<()> {
    let receives = expected.iter().map(|(capacity, _)| recv_up_to(rank, from(1, 7), *capacity));
    let received = if is_posted_first {
        let (received, told) = tokio::join!(join_all(receives), send(rank, 1, Tag::None, &[]));
        told?;
        received
    } else {
        let all_sent = Wanted { source: Some(Rank(1)), tag: WantedTag::This(Tag::None) };
        recv_up_to(rank, all_sent, 0).await?;
        join_all(receives).await
    };
    for ((capacity, message), result) in expected.iter().zip(received) {
        match (message, result) {
            (Some(number), Ok((_, envelope, bytes))) => {
                assert!(bytes == contents(*number, envelope.count), "{expected:?}");
            }
            (None, Err(Error::TooLong { sent, .. })) => assert!(sent.count > *capacity),
            (_, other) => panic!("{other:?} with {capacity} in {expected:?}"),
        }
    }
    Ok(())
}

async fn send_in_order(
    rank: &Arc<Communicator>,
    lengths: &[usize],
    is_posted_first: bool,
) -> Result<()> {
    let all_posted = Wanted { source: Some(Rank(0)), tag: WantedTag::This(Tag::None) };
    if is_posted_first {
        recv_up_to(rank, all_posted, 0).await?;
    }
    let numbered = lengths.iter().enumerate();
    let sends = join_all(numbered.map(|(number, length)| async move {
        send(rank, 0, Tag::Number(7), &contents(number, *length)).await
    }));
    if is_posted_first {
        return sends.await.into_iter().collect();
    }
    // Behind the envelopes of all messages.
    let (sent, told) = tokio::join!(sends, send(rank, 0, Tag::None, &[]));
    sent.into_iter().collect::<Result<()>>().and(told)
}

// The tests below poll the protocol itself, to check what a probe waits for.

#[test]
fn a_probe_that_waits_does_not_find_what_a_posted_receive_takes() {
    let (one, other) = pair();
    let mut context = Context::from_waker(Waker::noop());
    let mut probing = pin!(messaging::probe(&other, ANY));
    assert!(probing.as_mut().poll(&mut context).is_pending());
    let mut into = [0; 2];
    {
        let mut received = pin!(receiving(&other, up_to(from(0, 1), &mut into)));
        assert!(received.as_mut().poll(&mut context).is_pending());
        let sent = poll(sending(&one, outgoing(1, Tag::Number(1), &[5])));
        assert!(matches!(sent, Poll::Ready(Ok(()))));
        assert!(probing.as_mut().poll(&mut context).is_pending());
        assert!(matches!(received.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    }
    assert_eq!(into, [5, 0]);
    let untagged = poll(sending(&one, outgoing(1, Tag::None, &[6])));
    assert!(matches!(untagged, Poll::Ready(Ok(()))));
    assert!(probing.as_mut().poll(&mut context).is_pending());
    let next = outgoing(1, Tag::Number(2), &[7; 3]);
    assert!(matches!(poll(sending(&one, next)), Poll::Ready(Ok(()))));
    let found = Poll::Ready((Rank(0), next.envelope));
    assert_eq!(probing.as_mut().poll(&mut context).map(Result::unwrap), found);
    assert_eq!(poll(messaging::probe(&other, ANY)).map(Result::unwrap), found, "it stays");
}

#[test]
fn a_message_that_is_too_long_passes_from_one_posted_receive_to_the_next() {
    let (one, other) = pair();
    let mut context = Context::from_waker(Waker::noop());
    let (mut short, mut enough, mut late) = ([0; 2], [0; 3], [0; 3]);
    let mut probing = pin!(messaging::probe(&other, ANY));
    assert!(probing.as_mut().poll(&mut context).is_pending());
    let mut receives =
        [&mut short[..], &mut enough[..]].map(|into| Box::pin(receiving(&other, up_to(ANY, into))));
    for receive in &mut receives {
        assert!(receive.as_mut().poll(&mut context).is_pending());
    }
    let long = outgoing(1, Tag::Number(4), &[9; 3]);
    assert!(matches!(poll(sending(&one, long)), Poll::Ready(Ok(()))));
    let [first, second] = receives.map(|mut receive| receive.as_mut().poll(&mut context));
    assert!(matches!(first, Poll::Ready(Err(Error::TooLong { .. }))));
    assert!(matches!(second, Poll::Ready(Ok(_))));
    assert!(probing.as_mut().poll(&mut context).is_pending());

    // No receive is left: the message is unexpected, and a probe finds it.
    let mut rejected = Box::pin(receiving(&other, up_to(ANY, &mut late[..2])));
    assert!(rejected.as_mut().poll(&mut context).is_pending());
    assert!(matches!(poll(sending(&one, long)), Poll::Ready(Ok(()))));
    assert!(matches!(probing.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    assert!(matches!(rejected.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    drop(rejected);
    let received = poll(receiving(&other, up_to(ANY, &mut late)));
    assert!(matches!(received, Poll::Ready(Ok(_))));
    assert_eq!((enough, late), ([9; 3], [9; 3]));
}
