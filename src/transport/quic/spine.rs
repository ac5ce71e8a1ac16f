//! Who is there and what became of it: heartbeats, faults and leaves, beside the data.
//!
//! Leaves to `peer` how a link comes to be. Invariant: only a peer that said so may go.

use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionError, RecvStream, SendStream};
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use tracing::debug;

use crate::error::{Code, Error};
use crate::rank::Rank;

use super::context::ContextId;
use super::control::{Entered, Frame, MOST_ENTERED};
use super::link::{Link, LinkError, Opened, opened, read_frame};
use super::links::Links;
use super::peer::LEFT;

/// Where a host says that its process has died, it says so to the next heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// Contexts that a peer may leave while one of its streams is looked at.
const MOST_LEAVES: usize = 1 << 12;
/// And how long it may go on with that when there are so many.
const LEAVES_PATIENCE: Duration = Duration::from_millis(10);

/// Writes this side's control frames, and a heartbeat four times a second.
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
            links.while_it_flows(alone, links.is_hurried(), stream.stopped()).await;
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
        let id = context.id;
        let latest = context.latest().into_iter();
        entered.extend(latest.map(|(seq, call)| Entered { context: id, seq, call }));
    }
    match entered.is_empty() {
        true => vec![Frame::Heartbeat(entered)],
        false => entered.chunks(MOST_ENTERED).map(|some| Frame::Heartbeat(some.into())).collect(),
    }
}

/// Hands the streams the peer opens to whoever reads them, until the connection has ended and all
/// that was sent on it is handed out; then judges how it ended.
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
                Ok(stream) => match opened(stream).await {
                    // Dropping it tells the peer not to send more.
                    Ok(Opened::Data(context, ..)) if links.has_left(context) => Ok(()),
                    Ok(Opened::Data(context, lane, reader)) => link
                        .streams_of_peer(context)
                        .and_then(|streams| streams.add_reader(lane, reader)),
                    Ok(Opened::Notes(context, _)) if links.has_left(context) => Ok(()),
                    Ok(Opened::Notes(context, reader)) => link
                        .streams_of_peer(context)
                        .and_then(|streams| streams.notes.add(reader)),
                    Ok(Opened::Body(context, id, reader)) => {
                        links.take_body(peer, &link, context, id, reader)
                    }
                    Ok(Opened::Control(control)) if listening.is_none() => {
                        listening = Some(listen(control));
                        Ok(())
                    }
                    Ok(Opened::Control(_)) => {
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

/// Reads the peer's control frames, until it says that it leaves.
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
                for Entered { context, seq, call } in entered {
                    // One that this rank has yet to make, or that it has left, is passed over.
                    let Some(context) = links.context(context) else { continue };
                    if let Some(rank) = context.rank_of(peer) {
                        context.entered(rank, seq, call);
                    }
                }
            }
            Frame::Fault { context, code, text } => {
                links.told(peer, context, Error::Told { code, text });
            }
            Frame::Disagreement { context, text } => {
                let told = Error::Told { code: Code::InvalidUsage, text };
                match links.context(context) {
                    Some(context) if context.rank_of(peer).is_some() => context.propose(told),
                    Some(_) => {}
                    None => links.told(peer, context, told),
                }
            }
            Frame::SharesNoMemory(context) if links.has_left(context) => {}
            Frame::SharesNoMemory(context) => link.streams_of_peer(context)?.refuse_memory(),
            Frame::Leave(context) => {
                // They are taken as fast as they come, unless the peer holds back what it began before.
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
