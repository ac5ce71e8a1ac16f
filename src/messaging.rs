//! One message from one rank to another, or to itself, over a mesh.
//!
//! ```text
//! eager       sender   Message with its bytes ---------->   receiver, copied when matched
//! rendezvous  sender   Message -------------------------->
//!                      <-------------------- ClearToSend   when matched
//!                      the payload, on its own stream --->   into the receive's buffer
//! in memory   sender   Message with the location ------->   reads the payload when matched
//!                      <-------------------- PayloadRead   or ClearToSend, if it cannot be read
//! ```
//!
//! A message is eager if it is short and its receiver has memory for it (`CREDIT`); otherwise its
//! bytes stay with the sender until it was matched (rendezvous). A receiver on the same host that
//! can read them there does so. If the receiver has no memory for the control message either, the
//! sender waits. Leaves matching and credit to the message queues
//! and the transports to the mesh. Invariants:
//! - sends to one rank are ordered by their turns, and receives by their posts, both of which the
//!   caller takes when it issues them;
//! - bytes are written only to a receive of their type, and of their count or a capacity for it;
//! - a message that is too long for its receive stays in the unexpected queue.

use std::future::poll_fn;
use std::task::Poll;

use crate::error::{Error, Result};
use crate::message::{Envelope, Incoming, MessageCall, Outgoing, RecvCall, Wanted};
use crate::rank::Rank;
use crate::transport::{
    Answer, ControlMessage, MatchedMessage, Mesh, Permit, Protocol, Receive, SendTurn,
};

/// Sends one message in its turn. Returns when the caller may change its bytes: they were copied,
/// or have been sent. Not cancel safe, unless the communicator has failed: poll it to completion.
pub async fn send(mesh: &Mesh, turn: SendTurn, outgoing: Outgoing<'_>) -> Result<()> {
    let Outgoing { to, envelope, bytes, synchronous } = outgoing;
    let message_queues = mesh.messages.message_queues();
    let Permit { id, eager } = turn.permit(bytes.len(), synchronous).await?;
    let location = if eager { None } else { mesh.messages.publish_payload(to, bytes) };
    let protocol = match eager {
        true => Protocol::Eager { payload: bytes.to_vec(), wants_cts: synchronous },
        false => Protocol::Rendezvous { location },
    };
    mesh.messages.send_control(to, ControlMessage::Message { id, envelope, protocol }).await?;
    drop(turn);
    if eager && !synchronous {
        return Ok(());
    }
    let answered = message_queues.answered(to, id).await;
    // Before the program can overwrite what the receiver may be reading.
    let answer = answered.inspect_err(|_| mesh.messages.give_up())?;
    match (answer, location) {
        (Answer::ClearToSend, _) if eager => Ok(()),
        (Answer::ClearToSend, _) => mesh.messages.send_payload(to, id, bytes).await,
        (Answer::PayloadRead, Some(_)) => Ok(()),
        (Answer::PayloadRead, None) => {
            let what = format!("has read the payload of message {id}, which was not published");
            Err(Error::Protocol { peer: to, what })
        }
    }
}

/// Receives the message that a posted receive matches. Returns its source and envelope; the caller
/// reports them. Fails if its type or count is not what the receive accepts. Not cancel safe after
/// a message was matched, unless the communicator has failed.
pub async fn recv(
    mesh: &Mesh,
    mut receive: Receive,
    incoming: Incoming<'_>,
) -> Result<(Rank, Envelope)> {
    let Incoming { call, into, .. } = incoming;
    if let Some(source) = call.wanted.source {
        mesh.messages.connect(source);
    }
    let arrival = receive.matched().await?;
    take(mesh, arrival, call, into).await
}

/// Receives a message that a receive has matched, as `recv` does.
pub async fn take(
    mesh: &Mesh,
    arrival: MatchedMessage,
    call: RecvCall,
    into: &mut [u8],
) -> Result<(Rank, Envelope)> {
    let message_queues = mesh.messages.message_queues();
    let (from, envelope, id) = (arrival.source, arrival.envelope, arrival.rest.id);
    if !call.agrees_with(&envelope) {
        let (to, wanted) = (mesh.me.rank, MessageCall::Recv(call));
        return Err(Error::MessageMismatch { from, sent: envelope, to, wanted });
    }
    let into = &mut into[..envelope.bytes()];
    if let Some(bytes) = message_queues.settle(from, arrival.rest.protocol.cost()) {
        // A peer that has left needs no credit.
        let _ = mesh.messages.send_control(from, ControlMessage::Credit { bytes }).await;
    }
    match arrival.rest.protocol {
        Protocol::Eager { payload, wants_cts } => {
            into.copy_from_slice(&payload);
            if wants_cts {
                mesh.messages.send_control(from, ControlMessage::ClearToSend { id }).await?;
            }
        }
        Protocol::Rendezvous { location: Some(location) }
            if mesh.messages.read_payload(from, location, into) =>
        {
            mesh.messages.send_control(from, ControlMessage::PayloadRead { id }).await?;
        }
        Protocol::Rendezvous { .. } => {
            let _expected = message_queues.expect(from, id);
            mesh.messages.send_control(from, ControlMessage::ClearToSend { id }).await?;
            mesh.messages.recv_payload(from, id, into).await?;
        }
    }
    Ok((from, envelope))
}

/// Waits for a message that `wanted` takes. Returns its source and envelope; the message stays.
pub async fn probe(mesh: &Mesh, wanted: Wanted) -> Result<(Rank, Envelope)> {
    if let Some(source) = wanted.source {
        mesh.messages.connect(source);
    }
    mesh.messages.message_queues().probe(wanted).found().await
}

/// As `probe`, but returns `None` if no such message has arrived.
pub async fn probe_now(mesh: &Mesh, wanted: Wanted) -> Result<Option<(Rank, Envelope)>> {
    if let Some(source) = wanted.source {
        mesh.messages.connect(source);
    }
    mesh.messages.progress();
    // A thread that drives the network reads the sockets after the first poll, and executes the
    // tasks that deliver messages after the second.
    const POLLS: usize = 3;
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        match mesh.messages.message_queues().look(&wanted) {
            Ok(None) if polls < POLLS => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            found => Poll::Ready(found),
        }
    })
    .await
}
