//! Messages between two ranks: taken while the communicator is open, awaited until their deadline,
//! and like any operation its failure is that of the communicator.
//!
//! Leaves to `messaging` what is sent. They have no numbers and use no lane: a thread that waits for a
//! message holds up no collective and no other message. Order is fixed when a future is first polled.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use tracing::{trace, warn};

use crate::error::{Doing, Error, Result};
use crate::message::{Incoming, MessageCall, Outgoing, Wanted};
use crate::messaging;
use crate::runtime;
use crate::transport::{AnyMesh, Mesh};

use super::{Communicator, SMALL, Stage};

impl Communicator {
    /// Sends a message, on the calling thread.
    pub fn send(&self, outgoing: Outgoing<'_>) -> Result<()> {
        let (call, leaves_work) = (outgoing.call(), outgoing.bytes.len() > SMALL);
        self.wait_for_message(leaves_work, self.send_async(outgoing), || call)
    }

    /// Receives a message, on the calling thread.
    pub fn recv(&self, incoming: Incoming<'_>) -> Result<()> {
        let call = incoming.call();
        self.wait_for_message(false, self.recv_async(incoming), || call)
    }

    /// Sends one message and receives another, both under way before either is waited for.
    pub fn send_recv(&self, outgoing: Outgoing<'_>, incoming: Incoming<'_>) -> Result<()> {
        let (sends, receives) = (outgoing.call(), incoming.call());
        let leaves_work = outgoing.bytes.len() > SMALL;
        let received = Cell::new(false);
        let both = async {
            let receive = async {
                let result = self.recv_async(incoming).await;
                received.set(true);
                result
            };
            let (sent, received) = tokio::join!(self.send_async(outgoing), receive);
            sent.and(received)
        };
        let late = || if received.get() { sends } else { receives };
        self.wait_for_message(leaves_work, both, late)
    }

    /// As `send`, polled by whoever awaits it, without a deadline. Must be polled to its end.
    pub async fn send_async(&self, outgoing: Outgoing<'_>) -> Result<()> {
        let call = outgoing.call();
        let _under_way = self.begin_message(call)?;
        let sent = messaging::send(&self.mesh, outgoing).await;
        sent.map_err(|cause| self.message_failed(call, cause))
    }

    /// As `recv`, polled by whoever awaits it, without a deadline. Must be polled to its end.
    pub async fn recv_async(&self, incoming: Incoming<'_>) -> Result<()> {
        let call = incoming.call();
        let _under_way = self.begin_message(call)?;
        let received = messaging::recv(&self.mesh, incoming).await;
        received.map(drop).map_err(|cause| self.message_failed(call, cause))
    }

    fn begin_message(&self, call: MessageCall) -> Result<UnderWay<'_>> {
        let mut state = self.lock();
        match state.stage {
            Stage::Open => {}
            Stage::Finalized => {
                return Err(Error::Usage(format!("{call} on a communicator that was finalized")));
            }
            Stage::Aborted => return Err(Error::Aborted),
        }
        if let Some(fault) = self.mesh.fault() {
            return Err(fault);
        }
        state.running += 1;
        let (name, rank) = (&self.name, self.place().rank);
        trace!(rank = rank.0 as u64, "communicator {name}: {rank}, {call}");
        Ok(UnderWay(self))
    }

    /// Fails the communicator on all ranks. Returns what this call returns.
    pub(super) fn message_failed(&self, call: MessageCall, cause: Error) -> Error {
        let (rank, doing) = (self.place().rank, Doing::Message(call));
        let fault = self.mesh.fail(cause.during(rank, doing)).during(rank, doing);
        if self.lock().stage == Stage::Aborted {
            return Error::Aborted;
        }
        warn!(rank = rank.0 as u64, "communicator {}: {rank} failed: {fault}", self.name);
        fault
    }

    /// Runs a call's messages to their end on this thread. `late` is the one that is waited for.
    fn wait_for_message(
        &self,
        leaves_work: bool,
        messages: impl Future<Output = Result<()>>,
        late: impl Fn() -> MessageCall,
    ) -> Result<()> {
        let deadline = Instant::now() + self.op_timeout;
        // In a box: it is larger than the stack of a small thread.
        let mut messages = Box::pin(messages);
        let ended = catch_unwind(AssertUnwindSafe(|| match self.mesh {
            AnyMesh::Mem(_) => runtime::block_on(messages.as_mut(), deadline),
            AnyMesh::Quic(_) => runtime::drive(messages.as_mut(), deadline, leaves_work),
        }));
        // The message is dropped after the communicator failed: nothing is sent behind a broken note.
        match ended {
            Ok(Some(result)) => result,
            Ok(None) => Err(self.message_failed(late(), self.message_timeout(late()))),
            Err(panic) => Err(self.message_failed(late(), Error::from_panic(&*panic))),
        }
    }

    pub(super) fn message_timeout(&self, call: MessageCall) -> Error {
        let blame = match call {
            MessageCall::Send { to, .. } => format!("{to} has not received it"),
            MessageCall::Recv { wanted: Wanted { source: Some(from), .. }, .. } => {
                format!("{from} has not sent it")
            }
            MessageCall::Recv { .. } => "no rank has sent it".to_owned(),
        };
        Error::Timeout { limit_ms: self.op_timeout.as_millis(), blame }
    }
}

/// A message between its beginning and its end.
struct UnderWay<'a>(&'a Communicator);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running -= 1;
        if state.running == 0 {
            self.0.idle.notify_all();
        }
    }
}
