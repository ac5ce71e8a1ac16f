//! The control plane of a link: heartbeats, faults and leaves beside the data, and the streams that
//! the peer opens.
//!
//! Leaves to `dial` how a link comes up. Invariant: only a peer that said so may go.

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

/// A host whose process has died says so in reply to the next heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// Contexts that a peer may leave while one of its streams is accepted.
const MOST_LEAVES: usize = 1 << 12;
/// How long a peer that leaves that many is waited for.
const LEAVES_PATIENCE: Duration = Duration::from_millis(10);

/// Writes the control frames of this side, and a heartbeat four times a second.
pub(super) async fn speak(
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
            link.connection.close(LEFT, &links.last_words(peer));
            return Ok(());
        }
    }
}

/// The latest calls of this rank in all contexts that the peer is a member of. They are repeated,
/// because the peer may not have made a context yet when it first hears of it.
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

/// Hands the streams that the peer opens to their readers, until the connection has ended and all
/// that was sent on it is handed out. Then decides how it ended.
pub(super) async fn attend(
    links: Arc<Links>,
    peer: Rank,
    link: Arc<Link>,
    theirs: Option<RecvStream>,
) {
    let (leave, mut leaves) = mpsc::channel(MOST_LEAVES);
    let listen = |control| {
        let (links, link, leave) = (Arc::clone(&links), Arc::clone(&link), leave.clone());
        tokio::spawn(async move {
            let heard = listen(&links, peer, &link, control, &leave).await;
            if heard.is_ok() {
                link.note_bye();
            }
            if let Err(LinkError::Protocol(what)) = &heard {
                links.expel(peer, &link, what);
            }
            heard
        })
    };
    let mut listening = theirs.map(listen);
    loop {
        // In this order: a peer leaves a context when all it sent there has arrived, so that its
        // streams are known before it is noted as gone.
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
                    Ok(OpenedStream::Control(control)) if listening.is_none() => {
                        listening = Some(listen(control));
                        Ok(())
                    }
                    Ok(OpenedStream::Control(_)) => {
                        Err(LinkError::Protocol("opened control twice".to_owned()))
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
    let heard = match listening {
        Some(listening) => listening.await.unwrap_or(Err(LinkError::Lost)),
        None => Err(LinkError::Lost),
    };
    while let Ok(context) = leaves.try_recv() {
        let _ = links.peer_left(peer, &link, context);
    }
    if heard.is_ok() || links.is_closing() {
        return links.end(peer);
    }
    links.heed_last_words(peer, &link.connection);
    let how = match link.connection.closed().await {
        ConnectionError::ApplicationClosed(_) => "closed its connection".to_owned(),
        // Only the process that had the connection can say so: it has ended it.
        ConnectionError::Reset => "took this rank for lost".to_owned(),
        other => format!("lost its connection: {other}"),
    };
    debug!("{peer} of the roster {how}");
    links.lose(peer, &how);
    links.forget(peer);
}

/// Reads the control frames of the peer, until it says goodbye.
async fn listen(
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
                    // A context that this rank has yet to make, or has left, is skipped.
                    if let Some(context) = links.context(context) {
                        context.peer_entered(peer, seq, call);
                    }
                }
            }
            Frame::Fault { context, code, text } => {
                links.told(peer, context, Error::Told { code, text });
            }
            Frame::Disagreement { context, text } => {
                let told = Error::Told { code: Code::InvalidUsage, text };
                match links.context(context) {
                    Some(context) => context.disagreement_reported(peer, told),
                    None => links.told(peer, context, told),
                }
            }
            Frame::SharesNoMemory(context) if links.has_left(context) => {}
            Frame::SharesNoMemory(context) => link.streams_of_peer(context)?.refuse_memory(),
            Frame::Leave(context) => {
                // `attend` takes them as they arrive, unless the peer stalls a stream that it has
                // opened.
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
            Frame::Welcome => return Err(LinkError::Protocol("welcomed us twice".to_owned())),
        }
    }
}
