//! One message from one rank to another, or to itself, over a mesh.
//!
//! ```text
//! eager       sender    Message with its bytes ------------------------>   receiver, in its own time
//! announced   sender    Message ------------------------------------->
//!                       <------------------------------------- Ready       once it met its receive
//!                       the bytes, on a way of their own ------------->     straight into its buffer
//! ```
//!
//! A message is eager if it is short and its receiver has memory for it (`CREDIT`); otherwise it is
//! announced, and its bytes stay with the sender. Where there is no memory for an announcement either,
//! the sender waits. Leaves matching and credit to the inbox and the ways to the mesh. Invariants:
//! - what is done before the first wait fixes the order: of sends to one rank, and of receives;
//! - bytes land only in a receive of exactly their type and count.

use crate::error::{Error, Result};
use crate::message::{Envelope, Incoming, Outgoing};
use crate::rank::Rank;
use crate::transport::{Form, Mesh, Note, Permit};

/// Sends one message. Returns when its bytes may be changed: they are on their way, or have arrived.
/// Must be polled to its end, unless the communicator has failed.
pub async fn send(mesh: &Mesh, outgoing: Outgoing<'_>) -> Result<()> {
    let Outgoing { to, envelope, bytes, synchronous } = outgoing;
    let inbox = mesh.messages.inbox();
    let turn = inbox.turn(to);
    let Permit { id, eager } = turn.come(bytes.len(), synchronous).await?;
    let form = match eager {
        true => Form::Eager { payload: bytes.to_vec(), wants_ready: synchronous },
        false => Form::Announced,
    };
    mesh.messages.send_control(to, Note::Message { id, envelope, form }).await?;
    drop(turn);
    if !eager || synchronous {
        inbox.ready(to, id).await?;
    }
    match eager {
        true => Ok(()),
        false => mesh.messages.send_payload(to, id, bytes).await,
    }
}

/// Receives one message, and says whose it was. Must be polled to its end, unless the communicator
/// has failed or no message was matched yet.
pub async fn recv(mesh: &Mesh, incoming: Incoming<'_>) -> Result<(Rank, Envelope)> {
    let call = incoming.call();
    let Incoming { wanted, dtype, count, into } = incoming;
    let inbox = mesh.messages.inbox();
    let mut receive = inbox.post(wanted);
    if let Some(source) = wanted.source {
        mesh.messages.connect(source);
    }
    let arrival = receive.matched().await?;
    let (from, envelope, id) = (arrival.source, arrival.envelope, arrival.rest.id);
    if (envelope.dtype, envelope.count) != (dtype, count) {
        let to = mesh.place.rank;
        return Err(Error::MessageMismatch { from, sent: envelope, to, wanted: call });
    }
    if let Some(bytes) = inbox.settle(from, arrival.rest.form.cost()) {
        // A peer that has left needs none.
        let _ = mesh.messages.send_control(from, Note::Credit { bytes }).await;
    }
    match arrival.rest.form {
        Form::Eager { payload, wants_ready } => {
            into.copy_from_slice(&payload);
            if wants_ready {
                mesh.messages.send_control(from, Note::Ready { id }).await?;
            }
        }
        Form::Announced => {
            let _expected = inbox.expect(from, id);
            mesh.messages.send_control(from, Note::Ready { id }).await?;
            mesh.messages.recv_payload(from, id, into).await?;
        }
    }
    Ok((from, envelope))
}
