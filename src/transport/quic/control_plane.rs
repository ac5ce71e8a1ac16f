//! The control plane of a link: heartbeats, faults and leaves beside the data, and the streams that
//! the peer opens.
//!
//! Leaves to `dial` how a link is established. Invariant: a connection that ends without a `Bye` is
//! the loss of the peer.

use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionError, RecvStream, SendStream};
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use tracing::debug;

use crate::error::{Code, Error};
use crate::rank::Rank;

use super::beacon::FaultsOfLinks;
use super::context_id::ContextId;
use super::control::{EnteredCall, Frame, MOST_ENTERED};
use super::drain::while_bytes_flow;
use super::link::{LEFT, Link};
use super::link_error::LinkError;
use super::links::Links;
use super::stream_opening::{OpenedStream, accept, read_frame};

/// The interval of heartbeats. A host whose process has died refuses the next one (`suspicion`).
const HEARTBEAT: Duration = Duration::from_millis(250);
/// Contexts that a peer may leave while one of its streams is accepted.
const MOST_LEAVES: usize = 1 << 12;
/// How long to wait for a free entry when a peer leaves that many.
const LEAVES_PATIENCE: Duration = Duration::from_millis(10);

/// Writes the control frames of this side, and a heartbeat four times a second.
pub(super) async fn write_frames(
    links: Arc<Links>,
    peer: Rank,
    link: Arc<Link>,
    mut frames: mpsc::UnboundedReceiver<Frame>,
    mut stream: SendStream,
) -> Result<(), LinkError> {
    let mut tick = tokio::time::interval(HEARTBEAT.min(links.plan.peer_timeout / 4));
    loop {
        let frame = tokio::select! {
            biased;
            frame = frames.recv() => frame.unwrap_or(Frame::Bye),
            _ = tick.tick() => {
                for heartbeat in heartbeats(&links, peer) {
                    stream.write_all(&heartbeat.encode()).await?;
                }
                continue;
            }
        };
        stream.write_all(&frame.encode()).await?;
        if frame == Frame::Bye {
            let _ = stream.finish();
            let alone = std::slice::from_ref(&link);
            while_bytes_flow(alone, links.is_hurried(), stream.stopped()).await;
            link.connection.close(LEFT, &links.close_faults(peer));
            return Ok(());
        }
    }
}

/// The latest calls of this rank in all contexts of which the peer is a member. They are repeated,
/// because the peer may not have created a context yet when the first one arrives.
fn heartbeats(links: &Links, peer: Rank) -> Vec<Frame> {
    let mut entered = Vec::new();
    for context in links.contexts_with(peer) {
        let id = context.id();
        let latest = context.latest_calls().into_iter();
        entered.extend(latest.map(|(seq, call)| EnteredCall { context: id, seq, call }));
    }
    match entered.is_empty() {
        true => vec![Frame::Heartbeat(entered)],
        false => entered.chunks(MOST_ENTERED).map(|some| Frame::Heartbeat(some.into())).collect(),
    }
}

/// Hands the streams that the peer opens to their readers, until the connection has ended and its
/// last stream is handed over. Then records how the connection ended.
pub(super) async fn accept_streams(
    links: Arc<Links>,
    peer: Rank,
    link: Arc<Link>,
    theirs: Option<RecvStream>,
) {
    let (leave, mut leaves) = mpsc::channel(MOST_LEAVES);
    let read = |control| {
        let (links, link, leave) = (Arc::clone(&links), Arc::clone(&link), leave.clone());
        tokio::spawn(async move {
            let ended = read_frames(&links, peer, &link, control, &leave).await;
            if ended.is_ok() {
                link.set_bye();
            }
            if let Err(LinkError::Protocol(what)) = &ended {
                links.expel(peer, &link, what);
            }
            ended
        })
    };
    let mut reading = theirs.map(read);
    loop {
        // Biased, streams first: a peer leaves a context when all it sent there has arrived, so its
        // streams must be known before it is recorded as gone.
        let taken = tokio::select! {
            biased;
            stream = link.connection.accept_uni() => match stream {
                Ok(stream) => match accept(stream).await {
                    // Dropping the reader tells the peer not to send more.
                    Ok(OpenedStream::Data(context, ..)) if links.has_left(context) => Ok(()),
                    Ok(OpenedStream::Data(context, lane, reader)) => link
                        .streams_of_peer(context)
                        .and_then(|streams| streams.add_reader(lane, reader)),
                    Ok(OpenedStream::ControlMessages(context, _))
                        if links.has_left(context) =>
                    {
                        Ok(())
                    }
                    Ok(OpenedStream::ControlMessages(context, reader)) => link
                        .streams_of_peer(context)
                        .and_then(|streams| streams.control_messages.add(reader)),
                    Ok(OpenedStream::Payload(context, id, reader)) => {
                        links.take_payload(peer, &link, context, id, reader)
                    }
                    Ok(OpenedStream::Control(control)) if reading.is_none() => {
                        reading = Some(read(control));
                        Ok(())
                    }
                    Ok(OpenedStream::Control(_)) => {
                        Err(LinkError::Protocol("opened its control stream twice".to_owned()))
                    }
                    Err(error) => Err(error),
                },
                Err(_) => break,
            },
            Some(context) = leaves.recv() => links.peer_left(peer, &link, context),
        };
        if let Err(LinkError::Protocol(what)) = taken {
            links.expel(peer, &link, &what);
        }
    }
    let ended = match reading {
        Some(reading) => reading.await.unwrap_or(Err(LinkError::Lost)),
        None => Err(LinkError::Lost),
    };
    while let Ok(context) = leaves.try_recv() {
        let _ = links.peer_left(peer, &link, context);
    }
    if ended.is_ok() || links.is_closing() {
        return links.end(peer);
    }
    links.report_close_faults(peer, &link.connection);
    let how = match link.connection.closed().await {
        ConnectionError::ApplicationClosed(_) => "closed its connection".to_owned(),
        // A stateless reset: only the process that had the connection can send it, after it has
        // ended the connection.
        ConnectionError::Reset => "considers this rank lost".to_owned(),
        other => format!("lost its connection: {other}"),
    };
    debug!("{peer} of the roster {how}");
    links.lose(peer, &how);
    links.forget(peer);
}

/// Reads the control frames of the peer up to its `Bye`.
async fn read_frames(
    links: &Links,
    peer: Rank,
    link: &Link,
    mut control: RecvStream,
    leave: &mpsc::Sender<ContextId>,
) -> Result<(), LinkError> {
    loop {
        match read_frame(&mut control).await? {
            Frame::Heartbeat(entered) => {
                for EnteredCall { context, seq, call } in entered {
                    // A context that this rank has yet to create, or has left, is skipped.
                    if let Some(context) = links.context(context) {
                        context.peer_entered(peer, seq, call);
                    }
                }
            }
            Frame::Fault { context, code, text } => {
                links.report_fault(peer, context, Error::Reported { code, text });
            }
            Frame::Disagreement { context, text } => {
                let reported = Error::Reported { code: Code::InvalidUsage, text };
                match links.context(context) {
                    Some(context) => context.disagreement_reported(peer, reported),
                    None => links.report_fault(peer, context, reported),
                }
            }
            Frame::DeliverMessages(context) => {
                if let Some(context) = links.context(context) {
                    context.deliver_in_memory(peer);
                }
            }
            Frame::SharesNoMemory(context) if links.has_left(context) => {}
            Frame::SharesNoMemory(context) => link.streams_of_peer(context)?.refuse_memory(),
            Frame::Leave(context) => {
                // `accept_streams` receives them as they arrive, unless the peer stalls a stream
                // that it has opened.
                match leave.send_timeout(context, LEAVES_PATIENCE).await {
                    Ok(()) => {}
                    Err(SendTimeoutError::Closed(_)) => return Err(LinkError::Lost),
                    Err(SendTimeoutError::Timeout(_)) => {
                        let what = "left too many communicators".to_owned();
                        return Err(LinkError::Protocol(what));
                    }
                }
            }
            Frame::Bye => return Ok(()),
            Frame::Welcome => return Err(LinkError::Protocol("sent a second welcome".to_owned())),
        }
    }
}
