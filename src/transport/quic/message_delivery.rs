//! Delivers the control messages of a peer to the message queues of a context.
//!
//! A task reads them as they arrive, so the peer's writer waits for the network only. Leaves to
//! `control_messages` the stream. Invariant: a peer is reported as gone to the message queues only
//! once all its control messages have been delivered.

use std::sync::Arc;

use crate::rank::Rank;
use crate::transport::{CONTROL_HEAD_BYTES, ControlMessage};

use super::link::Link;
use super::link_error::LinkError;
use super::linked_context::LinkedContext;
use super::links::Links;
use super::stream_reader::StreamReader;

/// Starts to deliver the control messages of a peer, now that both the link and the context exist.
/// `peer` is its rank in the roster.
pub(super) fn deliver(
    links: &Arc<Links>,
    context: &Arc<dyn LinkedContext>,
    peer: Rank,
    link: &Arc<Link>,
) {
    let streams = link.streams(context.id());
    if peer == links.me.rank || !context.has_member(peer) {
        return;
    }
    if !streams.control_messages.begin_to_read() {
        return;
    }
    let (links, context, link) = (Arc::clone(links), Arc::clone(context), Arc::clone(link));
    tokio::spawn(async move {
        let reading = async {
            let mut reader = tokio::select! {
                biased;
                reader = streams.control_messages.reader() => reader,
                _ = links.peers[peer.0].gone_from(&streams) => return,
            };
            if let Err(LinkError::Protocol(what)) = read(&*context, peer, &mut reader).await {
                links.expel(peer, &link, &what);
            }
        };
        let until_gone = async {
            reading.await;
            let how = links.peers[peer.0].gone_from(&streams).await;
            context.no_more_messages(peer, &how);
        };
        tokio::select! {
            () = until_gone => {}
            () = context.left() => {}
        };
    });
}

/// As `deliver`, for all members of a new context that are linked, or were.
pub(super) fn deliver_all(links: &Arc<Links>, context: &Arc<dyn LinkedContext>) {
    for member in context.members() {
        // A peer that is gone may have sent messages before.
        if let Some(link) = links.peers[member.0].readable() {
            deliver(links, context, *member, &link);
        }
    }
}

/// Delivers control messages until the stream ends.
async fn read(
    context: &dyn LinkedContext,
    from: Rank,
    reader: &mut StreamReader,
) -> Result<(), LinkError> {
    let malformed = || LinkError::Protocol("sent a malformed control message".to_owned());
    loop {
        let mut head = [0; CONTROL_HEAD_BYTES];
        reader.fill(&mut head).await?;
        let mut message = ControlMessage::decode(&head).ok_or_else(malformed)?;
        reader.fill(message.payload_mut()).await?;
        context.deliver(from, message).map_err(LinkError::Protocol)?;
    }
}
