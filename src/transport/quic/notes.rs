//! Notes between two ranks of a context: a stream of them in each direction, opened at the first.
//!
//! A task reads what arrives and hands it to the inbox at once, so that a writer waits for the network
//! only. Invariants:
//! - notes are written whole, in the order of first polls;
//! - a peer is gone for the inbox once it has left and all its notes have been handed over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quinn::{Connection, SendStream};
use tokio::sync::{Mutex as FairMutex, Notify};

use crate::rank::Rank;
use crate::transport::note::{NOTE_HEAD_BYTES, Note};

use super::context::{Context, ContextId, gone_from};
use super::link::{Link, LinkError, open};
use super::links::Links;
use super::lock;
use super::preamble::Preamble;
use super::reader::StreamReader;

/// The notes of one context to and from one peer.
#[derive(Default)]
pub struct Notes {
    outgoing: FairMutex<Outgoing>,
    incoming: Mutex<Incoming>,
    opened: Notify,
    is_watched: AtomicBool,
}

#[derive(Default)]
enum Outgoing {
    #[default]
    Unopened,
    Open(SendStream),
    /// A note is being written, or was broken off.
    Busy,
}

#[derive(Default)]
enum Incoming {
    #[default]
    Unopened,
    Open(StreamReader),
    Taken,
}

impl Notes {
    pub async fn write(
        &self,
        connection: &Connection,
        context: ContextId,
        note: &Note,
    ) -> Result<(), LinkError> {
        let mut outgoing = self.outgoing.lock().await;
        let mut stream = match std::mem::replace(&mut *outgoing, Outgoing::Busy) {
            Outgoing::Unopened => open(connection, Preamble::Notes(context)).await?,
            Outgoing::Open(stream) => stream,
            Outgoing::Busy => return Err(LinkError::Lost),
        };
        stream.write_chunk(Bytes::from(note.encode())).await?;
        *outgoing = Outgoing::Open(stream);
        Ok(())
    }

    /// The peer has opened its stream, which it does once.
    pub fn add(&self, reader: StreamReader) -> Result<(), LinkError> {
        let mut incoming = lock(&self.incoming);
        if !matches!(*incoming, Incoming::Unopened) {
            return Err(LinkError::Protocol("opened its notes twice".to_owned()));
        }
        *incoming = Incoming::Open(reader);
        drop(incoming);
        self.opened.notify_one();
        Ok(())
    }

    /// This side's stream, to be finished.
    pub fn take_sender(&self) -> Option<SendStream> {
        match std::mem::replace(&mut *self.outgoing.try_lock().ok()?, Outgoing::Busy) {
            Outgoing::Open(stream) => Some(stream),
            Outgoing::Unopened | Outgoing::Busy => None,
        }
    }

    /// Waits for the peer's stream.
    async fn reader(&self) -> StreamReader {
        loop {
            {
                let mut incoming = lock(&self.incoming);
                if let Incoming::Open(_) = &*incoming
                    && let Incoming::Open(reader) =
                        std::mem::replace(&mut *incoming, Incoming::Taken)
                {
                    return reader;
                }
            }
            self.opened.notified().await;
        }
    }
}

/// Begins to hand a peer's notes to the inbox of a context, now that there are a link and the context.
/// `peer` is its rank in the roster.
pub fn watch(links: &Arc<Links>, context: &Arc<Context>, peer: Rank, link: &Arc<Link>) {
    let streams = link.streams(context.id);
    let Some(rank) = context.rank_of(peer).filter(|rank| *rank != context.place.rank) else {
        return;
    };
    if streams.notes.is_watched.swap(true, Ordering::AcqRel) {
        return;
    }
    let (links, context, link) = (Arc::clone(links), Arc::clone(context), Arc::clone(link));
    tokio::spawn(async move {
        let reading = async {
            let mut reader = tokio::select! {
                biased;
                reader = streams.notes.reader() => reader,
                _ = gone_from(&streams, context.peer(rank)) => return,
            };
            if let Err(LinkError::Protocol(what)) = read(&context, rank, &mut reader).await {
                links.expel(peer, &link, &what);
            }
        };
        let until_gone = async {
            reading.await;
            let how = gone_from(&streams, context.peer(rank)).await;
            context.inbox.gone(rank, &how);
        };
        tokio::select! {
            () = until_gone => {}
            () = context.left() => {}
        };
    });
}

/// Hands over notes until there are no more.
async fn read(context: &Context, from: Rank, reader: &mut StreamReader) -> Result<(), LinkError> {
    let malformed = || LinkError::Protocol("sent a malformed note".to_owned());
    loop {
        let mut head = [0; NOTE_HEAD_BYTES];
        reader.fill(&mut head).await?;
        let mut note = Note::decode(&head).ok_or_else(malformed)?;
        reader.fill(note.payload()).await?;
        context.inbox.deliver(from, note).map_err(LinkError::Protocol)?;
    }
}
