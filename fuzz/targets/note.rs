//! Notes about messages, one behind another, and the inbox they arrive in.
//!
//! The first byte says how many receives are posted before, each for a message without a tag.
#![no_main]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use nexar::message::{Tag, Wanted, WantedTag};
use nexar::rank::{Place, Rank};
use nexar::transport::{CREDIT, Inbox, NOTE_HEAD_BYTES, Note};
use nexar_fuzz::{same_bytes, watched};

const PEER: Rank = Rank(1);
const WANTED: Wanted = Wanted { source: Some(PEER), tag: WantedTag::This(Tag::None) };

fuzz_target!(|data: &[u8]| {
    let Some((posts, mut rest)) = data.split_first() else { return };
    let inbox = Inbox::new(Place::new(Rank(0), 2));
    let mut receives: Vec<_> = (0..posts % 8).map(|_| inbox.post(WANTED)).collect();
    let (mut arrived, mut received) = (0, 0);
    while let Some((head, behind)) = rest.split_first_chunk::<NOTE_HEAD_BYTES>() {
        let Some(mut note) = watched(|| Note::decode(head)) else { return };
        let Some((payload, next)) = behind.split_at_checked(note.payload().len()) else { return };
        note.payload().copy_from_slice(payload);
        same_bytes(&note.encode(), &rest[..NOTE_HEAD_BYTES + payload.len()]);
        let cost = match &note {
            Note::Message { form, .. } => form.cost(),
            Note::Ready { .. } | Note::Credit { .. } => 0,
        };
        if watched(|| inbox.deliver(PEER, note)).is_err() {
            return;
        }
        arrived += cost;
        receives.retain_mut(|receive| {
            let matched = pin!(receive.matched());
            match matched.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(arrival)) => {
                    let cost = arrival.rest.form.cost();
                    received += cost;
                    inbox.settle(PEER, cost);
                    false
                }
                Poll::Ready(Err(error)) => panic!("nobody has gone: {error}"),
                Poll::Pending => true,
            }
        });
        assert!(arrived - received <= CREDIT, "{} bytes wait", arrived - received);
        rest = next;
    }
});
