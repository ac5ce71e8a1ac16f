//! Operations whose buffers, or some of them, lie on a CUDA device, as a thread of ours makes them in host memory.
//!
//! An operation is one piece, or is cut into several. Each waits until the device has copied its data in, is
//! made, and then lets the device copy the result out. Leaves to `layout` what lies where, to `enqueue` what the
//! device does, and never calls the driver. Invariant: all that was put on a stream is let go on, whatever becomes
//! of the operation.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::collective::{self, Exchange};
use crate::comm::Communicator;
use crate::comm::run::{Ticket, Work, receive};
use crate::cut::Cut;
use crate::device::staging::{Lent, Number};
use crate::error::{Error, Result};
use crate::messaging;
use crate::op::Op;
use crate::runtime;
use crate::transport::{AnyMesh, Mesh};

use super::layout::Layout;
use super::state::Cuda;

/// The result of an operation that failed, in every byte: a NaN of every float type.
const SPOILT: u8 = 0xff;

/// A part of an operation, and the host memory it is made in.
pub struct Piece {
    pub layout: Layout,
    pub host: Host,
}

/// Host memory for the data of a device.
pub enum Host {
    /// The device fills it and takes from it what has become of it, by itself.
    Pinned { number: Arc<Number>, room: Range<usize> },
    /// The caller does, who waits.
    Plain(Arc<Mutex<Vec<u8>>>),
}

/// Host memory while an operation uses it.
enum Borrowed {
    Pinned(Lent),
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

/// An operation whose buffers, or some of them, lie on a device.
pub struct Staged<'a> {
    /// Until it is made as a whole.
    work: Option<Box<Work<'a>>>,
    cut: Option<Cut>,
    pieces: VecDeque<Piece>,
    holds: bool,
}

impl<'a> Staged<'a> {
    /// `cut`: where it is cut into these pieces, if it is.
    pub fn new(
        work: Work<'a>,
        cut: Option<Cut>,
        pieces: VecDeque<Piece>,
        cuda: &Cuda,
    ) -> Self {
        Self { work: Some(Box::new(work)), cut, pieces, holds: cuda.holds }
    }

    pub fn work(&self) -> &Work<'a> {
        self.work.as_ref().expect("it is asked before it is made")
    }

    /// The pieces of a collective, in its turn.
    pub async fn perform(
        &mut self,
        ticket: &Ticket,
        exchange: &Exchange<'_, AnyMesh>,
    ) -> Result<()> {
        let communicator = &ticket.communicator;
        let mut work = self.work.take();
        let Some(Work::Collective(op)) = work.as_deref_mut() else {
            unreachable!("messages take no turns")
        };
        let mut index = 0;
        while let Some(mut borrowed) = self.lend(ticket).await? {
            let layout = &self.pieces[0].layout;
            match &self.cut {
                Some(cut) => {
                    let piece = layout.apply(cut.piece(op, index), borrowed.memory());
                    collective::perform(exchange, &communicator.selection, piece).await?;
                    exchange.confirm().await?; // the device takes it at once
                }
                None => {
                    let op = std::mem::replace(op, Op::Barrier);
                    let staged = layout.apply(op, borrowed.memory());
                    perform_cut(communicator, exchange, staged).await?;
                }
            }
            self.pieces.pop_front();
            index += 1;
        }
        Ok(())
    }

    /// A message.
    pub async fn perform_message(&mut self, ticket: &Ticket) -> Result<()> {
        let Some(mut borrowed) = self.lend(ticket).await? else { return Ok(()) };
        let (mesh, layout) = (&ticket.communicator.mesh, &self.pieces[0].layout);
        match self.work.take().map(|work| *work) {
            Some(Work::Send(outgoing)) => {
                let outgoing = layout.apply_outgoing(outgoing, borrowed.memory());
                ticket.in_order(messaging::send(mesh, outgoing)).await?;
            }
            Some(Work::Recv(incoming)) => {
                receive(ticket, layout.apply_incoming(incoming, borrowed.memory())).await?;
            }
            _ => unreachable!("collectives take turns"),
        }
        self.pieces.pop_front();
        Ok(())
    }

    /// The memory of the next piece, when the device has filled it. `None` if there is none.
    async fn lend(&self, ticket: &Ticket) -> Result<Option<Borrowed>> {
        let Some(piece) = self.pieces.front() else { return Ok(None) };
        let (number, room) = match &piece.host {
            Host::Pinned { number, room } => (number, room),
            Host::Plain(owner) => {
                let memory =
                    std::mem::take(&mut *owner.lock().unwrap_or_else(PoisonError::into_inner));
                return Ok(Some(Borrowed::Plain { memory, owner: Arc::clone(owner) }));
            }
        };
        let communicator = Arc::clone(&ticket.communicator);
        let is_over = move || communicator.mesh.fault().is_some();
        match number.lend(room.clone(), is_over).await {
            Some(lent) => Ok(Some(Borrowed::Pinned(lent))),
            None => Err(ticket.communicator.mesh.fault().unwrap_or(Error::Aborted)),
        }
    }
}

impl Drop for Staged<'_> {
    /// What has not been made is let go on when its turn comes, with a result that nobody takes for one.
    fn drop(&mut self) {
        let pieces = std::mem::take(&mut self.pieces).into_iter();
        let unmade: Vec<_> = pieces
            .filter_map(|Piece { layout, host }| match host {
                Host::Pinned { number, room } => Some((layout, number, room)),
                Host::Plain(_) => None,
            })
            .collect();
        if self.holds {
            unmade.into_iter().for_each(|(_, number, _)| number.hold());
            return;
        }
        if unmade.is_empty() {
            return;
        }
        let spoiling = async move {
            for (layout, number, room) in unmade {
                if let Some(mut lent) = number.lend(room, || false).await {
                    let memory = lent.memory();
                    layout.stored().for_each(|range| memory[range].fill(SPOILT));
                }
            }
        };
        match runtime::io(1) {
            Ok(io) => drop(io.spawn(spoiling)),
            Err(_) => drop(spoiling), // and with it the numbers
        }
    }
}

/// Makes a collective on host memory: in pieces, if some rank may have its buffers on a device.
pub async fn perform_cut(
    communicator: &Communicator,
    exchange: &Exchange<'_, AnyMesh>,
    mut op: Op<'_>,
) -> Result<()> {
    let selection = &communicator.selection;
    let cut = if communicator.cuts { Cut::of(&op, exchange.place()) } else { None };
    let Some(cut) = cut else { return collective::perform(exchange, selection, op).await };
    for index in 0..cut.pieces {
        collective::perform(exchange, selection, cut.piece(&mut op, index)).await?;
    }
    Ok(())
}
