//! How a link to a peer is established: this rank dials, or accepts the connection of a peer.
//!
//! Leaves to `peer` the states of a connection, and to `control_plane` what follows. Invariants:
//! when two ranks dial each other, the connection of the lower one stays. The accepting side
//! decides that before it sends its welcome, and no stream is opened before the welcome.

use std::sync::{Arc, Weak};
use std::time::Duration;

use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::rank::Rank;

use super::beacon::{Beacon, BesideQuic, FaultsOfLinks};
use super::control::Frame;
use super::control_plane::{accept_streams, write_frames};
use super::endpoint::DialError;
use super::link::{DUPLICATE, LEFT, Link};
use super::link_error::LinkError;
use super::links::Links;
use super::message_delivery::deliver;
use super::peer::ArrivalVerdict;
use super::plan::Plan;
use super::stream_opening::{OpenedStream, accept, open_control, read_frame};

/// Time for the welcome of the accepting side.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which a rank that knows the roster registers its service.
const OPENING_TIME: Duration = Duration::from_secs(5);
/// Pause before another attempt to reach a peer.
const RETRY: Duration = Duration::from_millis(50);

/// Dials a peer, unless that was done before.
pub(super) fn begin(links: &Arc<Links>, peer: Rank, runtime: &Handle) {
    if links.peers[peer.0].begin_dial() {
        runtime.spawn(dial(Arc::clone(links), peer));
    }
}

/// A peer has dialled this rank. Decides, before the welcome, whether that connection stays.
pub(super) fn accepted(links: &Arc<Links>, peer: Rank, connection: Connection) {
    match links.peers[peer.0].take_arrival(peer < links.me.rank) {
        ArrivalVerdict::Stays => {
            tokio::spawn(welcome(Arc::clone(links), peer, connection));
        }
        ArrivalVerdict::Duplicate => connection.close(DUPLICATE, b""),
        ArrivalVerdict::TooLate => connection.close(LEFT, &links.close_faults(peer)),
    }
}

/// Starts the tasks of a link, now that both sides know that it stays. `ours` is this side's
/// control stream; `None` if the peer has left at once and no longer accepts it. `theirs` is the
/// peer's, if it has been opened already.
fn start(
    links: &Arc<Links>,
    peer: Rank,
    connection: Connection,
    ours: Option<SendStream>,
    theirs: Option<RecvStream>,
) {
    let (sender, frames) = mpsc::unbounded_channel();
    let faults = Arc::downgrade(links) as Weak<dyn FaultsOfLinks>;
    let socket = Arc::clone(&links.plan.endpoint) as Arc<dyn BesideQuic>;
    let beacon = Beacon::new(faults, socket, links.me.rank, peer, &connection);
    let link = Arc::new(Link::new(connection, sender, beacon));
    // A rank that closes its links may have listed them before this one was established.
    if !links.peers[peer.0].connected(&link, || !links.is_closing()) {
        link.connection.close(LEFT, &links.close_faults(peer));
        return;
    }
    link.allow(links.contexts_with(peer).len());
    for context in links.contexts_with(peer) {
        deliver(links, &context, peer, &link);
    }
    for news in links.news_for(peer) {
        let _ = link.control.send(news);
    }
    if let Some(ours) = ours {
        tokio::spawn(write_frames(Arc::clone(links), peer, Arc::clone(&link), frames, ours));
    }
    tokio::spawn(accept_streams(Arc::clone(links), peer, link, theirs));
}

async fn dial(links: Arc<Links>, peer: Rank) {
    let deadline = Instant::now() + links.plan.dial_timeout;
    let still_wanted = || links.peers[peer.0].is_dialled();
    let mut last = "has no address".to_owned();
    let mut refused_since = None;
    while still_wanted() && Instant::now() < deadline {
        for address in &links.member(peer).addresses {
            let name = links.plan.service_of(peer);
            let Plan { endpoint, me, .. } = &links.plan;
            let key = links.member(peer).key;
            // No idle timeout of QUIC: `silence` decides when the peer is lost.
            let dialled = endpoint.dial(*address, &name, me, key, None);
            match timeout_at(deadline, dialled).await {
                Ok(Ok(connection)) => match timeout(WELCOME_TIMEOUT, welcomed(&connection)).await {
                    Ok(Ok((ours, theirs))) => {
                        return start(&links, peer, connection, ours, Some(theirs));
                    }
                    // The peer keeps its own connection, which is about to arrive here.
                    _ if closed_with(&connection, DUPLICATE) => return,
                    _ if closed_with(&connection, LEFT) => {
                        links.report_close_faults(peer, &connection);
                        return links.end(peer);
                    }
                    _ => last = format!("does not answer at {address}"),
                },
                Ok(Err(DialError::NoAnswer | DialError::Busy)) | Err(_) => {
                    last = format!("does not answer at {address}");
                }
                Ok(Err(DialError::Impostor)) => {
                    last = format!("is not the process at {address}");
                }
                Ok(Err(DialError::Refused)) => {
                    // All ranks have joined: this one has yet to register its service, or has left.
                    if refused_since.get_or_insert_with(Instant::now).elapsed() > OPENING_TIME {
                        return links.end(peer);
                    }
                    last = format!("refuses this rank at {address}");
                }
                Ok(Err(DialError::Other(why))) => {
                    last = format!("cannot be reached at {address}: {why}");
                }
            }
        }
        sleep(RETRY).await;
    }
    if still_wanted() {
        links.lose(peer, &last);
        links.forget(peer);
    }
}

/// Sends the welcome of the accepting side, before anything else is sent.
async fn welcome(links: Arc<Links>, peer: Rank, connection: Connection) {
    let first = async {
        let mut control = open_control(&connection).await?;
        control.write_all(&Frame::Welcome.encode()).await?;
        Ok::<_, LinkError>(control)
    };
    match timeout(WELCOME_TIMEOUT, first).await {
        Ok(Ok(control)) => start(&links, peer, connection, Some(control), None),
        _ => links.peers[peer.0].forget_arrival(),
    }
}

/// Waits for the welcome of the accepting side, which may have left since.
async fn welcomed(connection: &Connection) -> Result<(Option<SendStream>, RecvStream), LinkError> {
    let OpenedStream::Control(mut control) = accept(connection.accept_uni().await?).await? else {
        return Err(LinkError::Protocol(
            "opened a data stream before its control stream".to_owned(),
        ));
    };
    match read_frame(&mut control).await? {
        Frame::Welcome => match open_control(connection).await {
            Ok(ours) => Ok((Some(ours), control)),
            Err(_) if closed_with(connection, LEFT) => Ok((None, control)),
            Err(error) => Err(error),
        },
        other => Err(LinkError::Protocol(format!("began with {other:?}"))),
    }
}

fn closed_with(connection: &Connection, code: VarInt) -> bool {
    matches!(
        connection.close_reason(),
        Some(ConnectionError::ApplicationClosed(close)) if close.error_code == code
    )
}
