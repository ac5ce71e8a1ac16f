//! A sequence of control messages, and the message queues that they are delivered to.
//!
//! The first byte is the number of receives, for messages without a tag, that are posted in
//! advance.
#![cfg_attr(fuzzing, no_main)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nexar::dtype::DataType;
use nexar::error::Error;
use nexar::message::{RecvCall, RecvCount, Tag, Wanted, WantedTag};
use nexar::rank::{Rank, RankOf};
use nexar::transport::{CONTROL_HEAD_BYTES, CREDIT, ControlMessage, MessageQueues};
use nexar_fuzz::{fuzz_target, same_bytes, watched};

const PEER: Rank = Rank(1);
const WANTED: Wanted = Wanted { source: Some(PEER), tag: WantedTag::This(Tag::None) };

/// Every other receive has a capacity, which a message may exceed.
fn call(number: u8) -> RecvCall {
    let count = if number % 2 == 0 { RecvCount::Exactly(1) } else { RecvCount::UpTo(1) };
    RecvCall { wanted: WANTED, dtype: DataType::Int8.into(), count }
}

fuzz_target!(|data: &[u8]| {
    let Some((posts, mut rest)) = data.split_first() else { return };
    let message_queues = Arc::new(MessageQueues::new(RankOf::new(Rank(0), 2)));
    let posted = (0..posts % 8).map(|number| message_queues.post(call(number)));
    let mut receives: Vec<_> = posted.collect();
    let (mut arrived, mut received) = (0, 0);
    while let Some((head, behind)) = rest.split_first_chunk::<CONTROL_HEAD_BYTES>() {
        let Some(mut message) = watched(|| ControlMessage::decode(head)) else { return };
        let Some((payload, next)) = behind.split_at_checked(message.payload().len()) else {
            return;
        };
        message.payload_mut().copy_from_slice(payload);
        same_bytes(&message.encode(), &rest[..CONTROL_HEAD_BYTES + payload.len()]);
        let cost = match &message {
            ControlMessage::Message { protocol, .. } => protocol.cost(),
            // A decoder of a network never returns PayloadRead.
            ControlMessage::ClearToSend { .. }
            | ControlMessage::PayloadRead { .. }
            | ControlMessage::Credit { .. } => 0,
        };
        if watched(|| message_queues.deliver(PEER, message)).is_err() {
            return;
        }
        arrived += cost;
        receives.retain_mut(|receive| {
            let matched = pin!(receive.matched());
            match matched.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(arrival)) => {
                    let cost = arrival.rest.protocol.cost();
                    received += cost;
                    message_queues.settle(PEER, cost);
                    false
                }
                Poll::Ready(Err(Error::TooLong { .. })) => false,
                Poll::Ready(Err(error)) => panic!("no rank has left: {error}"),
                Poll::Pending => true,
            }
        });
        assert!(arrived - received <= CREDIT, "{} bytes wait", arrived - received);
        rest = next;
    }
});
