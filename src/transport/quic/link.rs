//! A connection to one peer, and the streams on it of all contexts that share it.
//!
//! Leaves to `streams` those of one context, and to `control_plane` the control stream, which
//! serves all of them. Invariant: a peer cannot make this rank keep streams of an unbounded number
//! of contexts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use quinn::{Connection, VarInt};
use tokio::sync::mpsc;

use crate::transport::LANES;

use super::beacon::Beacon;
use super::context_id::ContextId;
use super::control::Frame;
use super::endpoint;
use super::link_error::LinkError;
use super::mutex::lock;
use super::streams::Streams;

/// Codes with which a connection is closed: the rank has left, two ranks have dialled each other,
/// or the peer has broken the protocol.
pub const LEFT: VarInt = VarInt::from_u32(1);
pub const DUPLICATE: VarInt = VarInt::from_u32(2);
pub const VIOLATION: VarInt = VarInt::from_u32(3);

/// A peer may know contexts that this rank has yet to create: one for each split under way, of
/// which a context has at most one in each lane. The rest is slack.
const MOST_EARLY: usize = 1024;

pub struct Link {
    pub connection: Connection,
    /// Frames for the peer, written in order by the link's own task.
    pub control: mpsc::UnboundedSender<Frame>,
    /// `None` if TLS gave no keys for it.
    beacon: Option<Arc<Beacon>>,
    said_bye: AtomicBool,
    contexts: Mutex<HashMap<ContextId, Arc<Streams>>>,
    /// The number of contexts for which the connection's limits are set.
    allowed: Mutex<usize>,
}

impl Link {
    pub fn new(
        connection: Connection,
        control: mpsc::UnboundedSender<Frame>,
        beacon: Option<Arc<Beacon>>,
    ) -> Self {
        let said_bye = AtomicBool::new(false);
        let (contexts, allowed) = (Mutex::default(), Mutex::default());
        Self { connection, control, beacon, said_bye, contexts, allowed }
    }

    /// A counter that grows with everything that only the peer itself can have sent.
    pub fn heard(&self) -> u64 {
        let frames = self.connection.stats().frame_rx;
        let over_quic =
            frames.acks + frames.stream + frames.ping + frames.max_data + frames.max_stream_data;
        over_quic + self.beacon.as_ref().map_or(0, |beacon| beacon.heard())
    }

    /// The peer has left all contexts of the link.
    pub fn set_bye(&self) {
        self.said_bye.store(true, Ordering::Release);
    }

    pub fn has_said_bye(&self) -> bool {
        self.said_bye.load(Ordering::Acquire)
    }

    /// The streams of a context, created when they are first needed.
    pub fn streams(&self, context: ContextId) -> Arc<Streams> {
        let mut contexts = lock(&self.contexts);
        let new = || Arc::new(Streams::new(self.connection.clone(), context));
        let streams = contexts.entry(context).or_insert_with(new);
        Arc::clone(streams)
    }

    /// Whether the peer has left a context.
    pub fn has_left(&self, context: ContextId) -> bool {
        lock(&self.contexts).get(&context).is_some_and(|streams| streams.has_left())
    }

    /// As `streams`, for a context that the peer names. Fails if it has named too many.
    pub fn streams_of_peer(&self, context: ContextId) -> Result<Arc<Streams>, LinkError> {
        let most = MOST_EARLY + (LANES + 1) * *lock(&self.allowed);
        let contexts = lock(&self.contexts);
        if contexts.len() >= most && !contexts.contains_key(&context) {
            return Err(LinkError::Protocol("named too many communicators".to_owned()));
        }
        drop(contexts);
        Ok(self.streams(context))
    }

    /// Drops the streams of a context that this rank has left.
    pub fn forget(&self, context: ContextId) {
        lock(&self.contexts).remove(&context);
    }

    /// Lets the peer open the streams of this many contexts. Limits never shrink.
    pub fn allow(&self, contexts: usize) {
        let mut allowed = lock(&self.allowed);
        if contexts > *allowed {
            *allowed = contexts;
            endpoint::set_limits(&self.connection, contexts);
        }
    }
}
