//! Operations with buffers on a CUDA device, as a thread of this process executes them in host
//! memory.
//!
//! An operation is one piece, or is cut into several. Each piece waits until the device has copied
//! its data in, is executed, and then lets the device copy the result out. Leaves to `layout` where
//! buffers are staged, and to `enqueue` what the device does. It never calls the driver. Invariant:
//! every stream that waits for a piece is released, whatever happens to the operation, unless
//! `NEXAR_CUDA_ON_ERROR=hold` stops it.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::collective::{self, Exchange};
use crate::comm::Communicator;
use crate::comm::run::{Operation, Ticket, Work, in_turn, perform_in_pieces, receive};
use crate::cut::Cut;
use crate::device::staging::{LentBuffer, PendingValue};
use crate::error::{Error, Result};
use crate::messaging;
use crate::op::Op;
use crate::rank::Rank;
use crate::runtime;
use crate::transport::Peers;

use super::layout::StagingLayout;

/// Fills the result of an operation that failed: a NaN of every float type.
const SPOILT: u8 = 0xff;

/// A part of an operation, and the host memory in which it is executed.
pub struct StagedPiece {
    pub layout: StagingLayout,
    pub host: StagedMemory,
}

/// Host memory for the data of a device.
pub enum StagedMemory {
    /// The device copies its data in and out, in stream order. `range`: the part of the staging
    /// buffer.
    Pinned { value: Arc<PendingValue>, range: Range<usize> },
    /// The caller copies, and waits.
    Plain(Arc<Mutex<Vec<u8>>>),
}

/// Host memory while an operation uses it.
enum Borrowed {
    Pinned(LentBuffer),
    Plain { memory: Vec<u8>, owner: Arc<Mutex<Vec<u8>>> },
}

impl Borrowed {
    fn memory(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(lent) => lent.memory(),
            Self::Plain { memory, .. } => memory,
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Self::Plain { memory, owner } = self {
            *owner.lock().unwrap_or_else(PoisonError::into_inner) = std::mem::take(memory);
        }
    }
}

/// An operation with buffers on a device.
pub struct Staged<'a> {
    /// Taken when it is executed.
    work: Option<Work<'a>>,
    cut: Option<Cut>,
    pieces: VecDeque<StagedPiece>,
    holds: bool,
}

impl<'a> Staged<'a> {
    /// `cut`: where it is cut into these pieces, if it is. `holds`: whether it holds its stream if
    /// it fails.
    pub fn new(
        work: Work<'a>,
        cut: Option<Cut>,
        pieces: VecDeque<StagedPiece>,
        holds: bool,
    ) -> Self {
        Self { work: Some(work), cut, pieces, holds }
    }

    fn work(&self) -> &Work<'a> {
        self.work.as_ref().expect("an operation is described before it is executed")
    }

    async fn execute(&mut self, ticket: &Ticket) -> Result<()> {
        let executed = match self.work.take() {
            Some(Work::Collective(op)) => {
                in_turn(ticket, None, async |exchange| self.collective(ticket, exchange, *op).await)
                    .await
            }
            Some(message) => self.message(ticket, message).await,
            None => unreachable!("an operation is executed once"),
        };
        // The device is released when `self` is dropped: the fault must be visible before that.
        executed.inspect_err(|cause| ticket.publish_fault(cause))
    }

    /// Executes the pieces of a collective, in the turn of its lane.
    async fn collective(
        &mut self,
        ticket: &Ticket,
        exchange: &Exchange<'_>,
        mut op: Op<'_>,
    ) -> Result<()> {
        let communicator = &ticket.communicator;
        let mut index = 0;
        while let Some(mut borrowed) = self.lend(ticket).await? {
            let layout = &self.pieces[0].layout;
            match &self.cut {
                Some(cut) => {
                    let mut piece = layout.apply(cut.piece(&mut op, index), borrowed.memory());
                    collective::perform(exchange, &communicator.selection, &mut piece).await?;
                    exchange.confirm().await?; // the device copies the result out at once
                }
                None => {
                    let op = std::mem::replace(&mut op, Op::barrier());
                    let mut staged = layout.apply(op, borrowed.memory());
                    perform_in_pieces(communicator, exchange, &mut staged).await?;
                }
            }
            self.pieces.pop_front();
            index += 1;
        }
        Ok(())
    }

    /// Executes a message.
    async fn message(&mut self, ticket: &Ticket, message: Work<'_>) -> Result<()> {
        let Some(mut borrowed) = self.lend(ticket).await? else { return Ok(()) };
        let (mesh, layout) = (&ticket.communicator.mesh, &self.pieces[0].layout);
        match message {
            Work::Send(outgoing) => {
                let outgoing = layout.apply_outgoing(outgoing, borrowed.memory());
                messaging::send(mesh, ticket.turn(), outgoing).await?;
            }
            Work::Recv(incoming) => {
                receive(ticket, layout.apply_incoming(incoming, borrowed.memory())).await?;
            }
            Work::Collective(_) | Work::Other(_) => unreachable!("only messages take no turn"),
        }
        self.pieces.pop_front();
        Ok(())
    }

    /// The memory of the next piece, when the device has filled it. `None` if there is none.
    async fn lend(&self, ticket: &Ticket) -> Result<Option<Borrowed>> {
        let Some(piece) = self.pieces.front() else { return Ok(None) };
        let (value, range) = match &piece.host {
            StagedMemory::Pinned { value, range } => (value, range),
            StagedMemory::Plain(owner) => {
                let memory =
                    std::mem::take(&mut *owner.lock().unwrap_or_else(PoisonError::into_inner));
                return Ok(Some(Borrowed::Plain { memory, owner: Arc::clone(owner) }));
            }
        };
        let communicator = Arc::clone(&ticket.communicator);
        let is_cancelled = move || communicator.mesh.membership.fault().is_some();
        match value.lend(range.clone(), is_cancelled).await {
            Some(lent) => Ok(Some(Borrowed::Pinned(lent))),
            None => Err(ticket.communicator.mesh.membership.fault().unwrap_or(Error::Aborted)),
        }
    }
}

impl Operation for Staged<'_> {
    fn begin(&self, communicator: Arc<Communicator>) -> Result<Ticket> {
        self.work().begin(communicator)
    }

    fn describe(&self) -> String {
        self.work().describe()
    }

    fn message(&self) -> Option<Peers> {
        self.work().message()
    }

    fn calls_program(&self) -> bool {
        self.work().calls_program()
    }

    fn leaves_work(&self, rank: Rank) -> bool {
        self.work().leaves_work(rank)
    }

    fn perform<'t>(
        mut self: Box<Self>,
        ticket: &'t Ticket,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + 't>>
    where
        Self: 't,
    {
        Box::pin(async move { self.execute(ticket).await })
    }
}

impl Drop for Staged<'_> {
    /// Releases the device from the pieces that were not executed, each in its turn, with a result
    /// that no program takes for one.
    fn drop(&mut self) {
        let pieces = std::mem::take(&mut self.pieces).into_iter();
        let unexecuted: Vec<_> = pieces
            .filter_map(|StagedPiece { layout, host }| match host {
                StagedMemory::Pinned { value, range } => Some((layout, value, range)),
                StagedMemory::Plain(_) => None,
            })
            .collect();
        if self.holds {
            unexecuted.into_iter().for_each(|(_, value, _)| value.hold());
            return;
        }
        if unexecuted.is_empty() {
            return;
        }
        let spoiling = async move {
            for (layout, value, range) in unexecuted {
                if let Some(mut lent) = value.lend(range, || false).await {
                    let memory = lent.memory();
                    layout.stored().for_each(|range| memory[range].fill(SPOILT));
                }
            }
        };
        match runtime::io(1) {
            Ok(io) => drop(io.spawn(spoiling)),
            Err(_) => drop(spoiling), // and with it the values, which releases the device
        }
    }
}
