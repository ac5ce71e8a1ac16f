//! One message from one rank to another, or to itself, over a mesh.
//!
//! ```text
//! eager       sender   Message with its bytes ---------->   receiver, copied when matched
//! rendezvous  sender   Message -------------------------->
//!                      <-------------------- ClearToSend   when matched
//!                      the payload, on its own stream --->   into the receive's buffer
//! ```
//!
//! A message is eager if it is short and its receiver has memory for it (`CREDIT`); otherwise its
//! bytes stay with the sender until it was matched (rendezvous). If the receiver has no memory for
//! the control message either, the sender waits. Leaves matching and credit to the message queues
//! and the transports to the mesh. Invariants:
//! - sends to one rank, and receives, are ordered by the steps that they take before their first
//!   wait;
//! - bytes are written only to a receive of exactly their type and count.

use crate::error::{Error, Result};
use crate::message::{Envelope, Incoming, Outgoing};
use crate::rank::Rank;
use crate::transport::{ControlMessage, Mesh, Permit, Protocol};

/// Sends one message. Returns when the caller may change its bytes: they were copied, or have been
/// sent. Not cancel safe, unless the communicator has failed: poll it to completion.
pub async fn send(mesh: &Mesh, outgoing: Outgoing<'_>) -> Result<()> {
    let Outgoing { to, envelope, bytes, synchronous } = outgoing;
    let message_queues = mesh.messages.message_queues();
    let turn = message_queues.turn(to);
    let Permit { id, eager } = turn.permit(bytes.len(), synchronous).await?;
    let protocol = match eager {
        true => Protocol::Eager { payload: bytes.to_vec(), wants_cts: synchronous },
        false => Protocol::Rendezvous,
    };
    mesh.messages.send_control(to, ControlMessage::Message { id, envelope, protocol }).await?;
    drop(turn);
    if !eager || synchronous {
        message_queues.ready(to, id).await?;
    }
    match eager {
        true => Ok(()),
        false => mesh.messages.send_payload(to, id, bytes).await,
    }
}

/// Receives one message. Returns its source and envelope. Fails if its type or count differs from
/// the receive's. Not cancel safe after a message was matched, unless the communicator has failed.
pub async fn recv(mesh: &Mesh, incoming: Incoming<'_>) -> Result<(Rank, Envelope)> {
    let call = incoming.call();
    let Incoming { wanted, dtype, count, into } = incoming;
    let message_queues = mesh.messages.message_queues();
    let mut receive = message_queues.post(wanted);
    if let Some(source) = wanted.source {
        mesh.messages.connect(source);
    }
    let arrival = receive.matched().await?;
    let (from, envelope, id) = (arrival.source, arrival.envelope, arrival.rest.id);
    if (envelope.dtype, envelope.count) != (dtype, count) {
        let to = mesh.me.rank;
        return Err(Error::MessageMismatch { from, sent: envelope, to, wanted: call });
    }
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
        Protocol::Rendezvous => {
            let _expected = message_queues.expect(from, id);
            mesh.messages.send_control(from, ControlMessage::ClearToSend { id }).await?;
            mesh.messages.recv_payload(from, id, into).await?;
        }
    }
    Ok((from, envelope))
}
