//! Operations on the memory of a CUDA device, in the order of the caller's stream.
//!
//! The caller's thread puts everything on the stream: copies into pinned memory, a number that says so, a wait
//! for the number that says that the result is there, copies back. A thread of ours (`Stream`) makes the
//! operation in between and never calls the driver. Leaves to `staging` what is copied where, and to `device`
//! the driver. Invariants:
//! - all that was put on a stream is let go on, whatever becomes of the operation;
//! - what is enqueued for a communicator is ordered on the device as it was called, on whichever streams;
//! - before the first wait stands all that other ranks need from this one to end it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::collective::{self, Exchange};
use crate::cut::{Cut, SLOT};
use crate::device::staging::{Lent, Number, Staging};
use crate::device::{CudaStream, Device, Entered, Event, Kind, kind_of};
use crate::error::{Error, Result};
use crate::messaging;
use crate::op::Op;
use crate::runtime;
use crate::transport::{AnyMesh, Mesh};

use super::Communicator;
use super::leftovers;
use super::staging::{Layout, OnDevice};
use super::stream::Stream;
use super::ticket::Ticket;
use super::work::Work;

/// The result of an operation that failed, in every byte: a NaN of every float type.
const SPOILT: u8 = 0xff;

/// How a communicator ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Destroyed,
    Aborted,
}

impl Ending {
    /// How long it waits for a device that has all it needs.
    fn patience(self) -> Duration {
        match self {
            Self::Destroyed => Duration::from_secs(30),
            Self::Aborted => Duration::from_millis(500),
        }
    }
}

const RETIRE_LOOK: Duration = Duration::from_micros(100);
/// Who waits for a device looks so often whether it still works.
pub(super) const DEVICE_LOOK: Duration = Duration::from_millis(100);

/// A piece may need a scalar besides its data.
const ROOM_FOR_SCALAR: usize = 4096;

/// CUDA's stream of each thread.
const PER_THREAD: usize = 2;

/// What a communicator needs for the memory of a device.
pub(super) struct Cuda {
    device: Arc<Device>,
    /// Makes what was enqueued.
    stream: Arc<Stream>,
    /// `None`: streams of the device cannot wait for numbers, so callers do.
    staging: Option<Arc<Staging>>,
    order: Mutex<Order>,
    /// A failed operation holds its stream until the communicator is aborted or destroyed.
    holds: bool,
    /// Whether it was told that a caller waits.
    has_told: AtomicBool,
}

/// In which order things were enqueued on streams.
pub(super) struct Order {
    event: Option<Event>,
    last: Option<CudaStream>,
    /// Whether `event` stands behind all of it.
    is_recorded: bool,
}

impl Cuda {
    /// Nothing is allocated later: that could wait for what is under way.
    pub fn new(device: Arc<Device>, holds: bool) -> Result<Self> {
        let entered = device.enter()?;
        let event = entered.create_event()?;
        let staging = match entered.memops_work() {
            true => match Staging::new(&entered, SLOT + ROOM_FOR_SCALAR) {
                Ok(staging) => Some(staging),
                Err(error) => {
                    device.destroy_event(event);
                    return Err(error);
                }
            },
            false => None,
        };
        drop(entered);
        let pinned = staging.as_ref().map_or(0, |staging| staging.bytes());
        info!("device {}: {} KiB of pinned memory", device.ordinal(), pinned >> 10);
        Ok(Self {
            stream: Stream::new()?,
            staging,
            order: Mutex::new(Order { event: Some(event), last: None, is_recorded: true }),
            holds,
            has_told: AtomicBool::new(false),
            device,
        })
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Lets the device go on with all that was enqueued.
    pub fn release(&self) {
        if let Some(staging) = &self.staging {
            staging.release();
        }
    }

    /// Everything enqueued has ended: waits until the device has done its part, and gives all back.
    pub fn close(&self, ending: Ending) {
        self.stream.close();
        let mut order = self.lock();
        if let Some(staging) = &self.staging {
            if self.holds {
                staging.release();
            }
            let until = Instant::now() + ending.patience();
            while !is_done(staging, DEVICE_LOOK) && Instant::now() < until {
                if self.why_broken_in(&order).is_some() {
                    staging.lose();
                }
            }
            if !staging.is_idle() {
                let ordinal = self.device.ordinal();
                warn!("device {ordinal}: a stream stands still, its pinned memory is kept");
            }
            if !staging.is_lost() {
                let (staging, device) = (Arc::clone(staging), Arc::clone(&self.device));
                leftovers::give_back(staging, device, ending == Ending::Destroyed);
            }
        }
        if let Some(event) = order.event.take() {
            self.device.destroy_event(event);
        }
    }

    /// Why its device does nothing of what was put on streams any more, if that is so and can be seen now.
    pub fn why_broken(&self) -> Option<Error> {
        self.why_broken_in(&*self.order.try_lock().ok()?)
    }

    fn why_broken_in(&self, order: &Order) -> Option<Error> {
        let event = order.event.as_ref()?;
        let entered = self.device.enter();
        entered.and_then(|entered| entered.has_happened(event)).err()
    }

    pub fn staging(&self) -> Option<&Arc<Staging>> {
        self.staging.as_ref()
    }

    /// What its operations are queued on.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Says, once, that a caller waits for what would else be made behind its back.
    pub fn tell_that_callers_wait(&self, bytes: usize) {
        if self.staging.is_some() && !self.has_told.swap(true, Ordering::Relaxed) {
            info!("device {}: {bytes} bytes at once, the caller waits", self.device.ordinal());
        }
    }

    /// While this is held nobody else enqueues anything for the communicator.
    pub fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits a while until the device needs it no more, or nobody will know when.
fn is_done(staging: &Staging, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let is_done = || staging.is_idle() || staging.is_lost();
    while !is_done() && Instant::now() < until {
        std::thread::sleep(RETIRE_LOOK);
    }
    is_done()
}

impl Order {
    /// What is put on this stream next comes behind all that was enqueued before.
    pub fn come_to(&mut self, stream: CudaStream, entered: &Entered<'_>) -> Result<()> {
        let Some(event) = &self.event else { return Ok(()) };
        match self.last {
            Some(last) if last == stream => {}
            None => {}
            Some(last) => {
                if !self.is_recorded {
                    entered.record(event, last)?;
                }
                entered.wait_event(stream, event)?;
            }
        }
        (self.last, self.is_recorded) = (Some(stream), false);
        Ok(())
    }

    /// All that was enqueued has been done: nothing comes behind it.
    pub fn clear(&mut self) {
        (self.last, self.is_recorded) = (None, true);
    }

    /// The stream that something was put on since the last rest.
    pub fn unrested(&self) -> Option<CudaStream> {
        self.last.filter(|_| !self.is_recorded)
    }

    /// Nothing more is enqueued for now: the caller may destroy its streams.
    pub fn rest(&mut self, entered: &Entered<'_>) -> Result<()> {
        if let (Some(event), Some(last), false) = (&self.event, self.last, self.is_recorded) {
            entered.record(event, last)?;
            self.is_recorded = true;
            // The same number is another stream in another thread.
            if last.0.addr() == PER_THREAD {
                self.last = Some(CudaStream(std::ptr::without_provenance_mut(usize::MAX)));
            }
        }
        Ok(())
    }
}

/// The sides of all communicators of this process.
fn live() -> MutexGuard<'static, Vec<Weak<Cuda>>> {
    static LIVE: Mutex<Vec<Weak<Cuda>>> = Mutex::new(Vec::new());
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|cuda| cuda.strong_count() > 0);
    live
}

/// Whether some stream is inside a call that this process has not finished.
pub(super) fn some_stream_waits() -> bool {
    let cudas = live().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
    cudas.iter().filter_map(|cuda| cuda.staging()).any(|staging| !staging.is_idle())
}

/// No stream waits for this process any more, which ends: nothing else could interrupt it.
pub(super) fn release_all() {
    live().iter().filter_map(Weak::upgrade).for_each(|cuda| cuda.release());
}

/// What of a request lies on a device, and the stream it is made in the order of.
#[derive(Clone)]
pub struct OnCuda {
    pub(super) stream: CudaStream,
    pub(super) device: OnDevice,
}

impl Communicator {
    /// Whether and where the buffers of an operation lie on a device; `stream` if it is one of CUDA's.
    pub fn on_cuda(&self, work: &Work<'_>, stream: Option<CudaStream>) -> Result<Option<OnCuda>> {
        let mut found = OnDevice::default();
        let mut ordinal = None;
        for (name, bytes) in work.memory() {
            let (address, length) = (bytes.as_ptr().addr(), bytes.len());
            match kind_of(name, address, length)? {
                Kind::Plain | Kind::Pinned => {}
                Kind::Device { ordinal: here } | Kind::Managed { ordinal: here } => {
                    let own = self.cuda_device().or(self.wanted_device.get().copied());
                    let expected = *ordinal.get_or_insert(own.unwrap_or(here));
                    if expected != here {
                        let what = format!(
                            "{name} is on device {here}, the communicator on device {expected}"
                        );
                        return Err(Error::Argument(what));
                    }
                    found.0.push(address..address + length);
                }
            }
        }
        if let Work::Collective(op) = work
            && let Some((address, bytes)) = op.scalar_on_device()
        {
            found.0.push(address as usize..address as usize + bytes);
        }
        if found.0.is_empty() && stream.is_none() {
            return Ok(None);
        }
        self.attach_to(ordinal.or(self.wanted_device.get().copied()))?;
        let stream = stream.unwrap_or(CudaStream(std::ptr::null_mut()));
        Ok(Some(OnCuda { stream, device: found }))
    }

    /// The number of its device, if it has one.
    pub fn cuda_device(&self) -> Option<i32> {
        self.cuda.get().map(|cuda| cuda.device().ordinal())
    }

    /// The device itself.
    pub fn device(&self) -> Option<Arc<Device>> {
        self.cuda.get().map(|cuda| Arc::clone(cuda.device()))
    }

    /// The program has named a device for it, which it gets at once: later other ranks of this process may have
    /// work under way that waits for this one, and a device may wait for that before it gives memory.
    pub fn want_device(&self, ordinal: i32) -> Result<()> {
        let _ = self.wanted_device.set(ordinal);
        match Device::if_there(ordinal)? {
            Some(device) => self.attach(Arc::new(device)),
            None => Ok(()),
        }
    }

    /// Gives it a device, before any operation. Must be called by a thread of the program.
    pub fn attach(&self, device: Arc<Device>) -> Result<()> {
        let made = Cuda::new(device, self.config.cuda_holds)?;
        let made = Arc::new(made);
        live().push(Arc::downgrade(&made));
        let _ = self.cuda.set(made);
        Ok(())
    }

    /// The program had used no device when the communicator was made.
    fn attach_to(&self, ordinal: Option<i32>) -> Result<()> {
        if self.cuda.get().is_some() {
            return Ok(());
        }
        let current = match ordinal {
            Some(ordinal) => Some(Device::primary(ordinal)?),
            None => Device::current()?,
        };
        match current {
            Some(device) => self.attach(Arc::new(device)),
            None => self.attach(Arc::new(Device::primary(0)?)),
        }
    }
}

/// A part of an operation, and the host memory it is made in.
pub(super) struct Piece {
    pub layout: Layout,
    pub host: Host,
}

/// Host memory for the data of a device.
pub(super) enum Host {
    /// The device fills it and takes from it what has become of it, by itself.
    Pinned { number: Arc<Number>, place: Range<usize> },
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
    pub(super) fn new(
        work: Work<'a>,
        cut: Option<Cut>,
        pieces: VecDeque<Piece>,
        cuda: &Cuda,
    ) -> Self {
        Self { work: Some(Box::new(work)), cut, pieces, holds: cuda.holds }
    }

    pub(super) fn work(&self) -> &Work<'a> {
        self.work.as_ref().expect("it is asked before it is made")
    }

    /// The pieces of a collective, in its turn.
    pub(super) async fn perform(
        mut self,
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
    pub(super) async fn perform_message(mut self, ticket: &Ticket) -> Result<()> {
        let Some(mut borrowed) = self.lend(ticket).await? else { return Ok(()) };
        let (mesh, layout) = (&ticket.communicator.mesh, &self.pieces[0].layout);
        match self.work.take().map(|work| *work) {
            Some(Work::Send(outgoing)) => {
                let outgoing = layout.apply_outgoing(outgoing, borrowed.memory());
                ticket.in_order(messaging::send(mesh, outgoing)).await?;
            }
            Some(Work::Recv(incoming)) => {
                let incoming = layout.apply_incoming(incoming, borrowed.memory());
                let receiving = async { messaging::recv(mesh, incoming).await.map(drop) };
                ticket.in_order(receiving).await?;
            }
            _ => unreachable!("collectives take turns"),
        }
        self.pieces.pop_front();
        Ok(())
    }

    /// The memory of the next piece, when the device has filled it. `None` if there is none.
    async fn lend(&self, ticket: &Ticket) -> Result<Option<Borrowed>> {
        let Some(piece) = self.pieces.front() else { return Ok(None) };
        let (number, place) = match &piece.host {
            Host::Pinned { number, place } => (number, place),
            Host::Plain(owner) => {
                let memory =
                    std::mem::take(&mut *owner.lock().unwrap_or_else(PoisonError::into_inner));
                return Ok(Some(Borrowed::Plain { memory, owner: Arc::clone(owner) }));
            }
        };
        let communicator = Arc::clone(&ticket.communicator);
        let is_over = move || communicator.mesh.fault().is_some();
        match number.lend(place.clone(), is_over).await {
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
                Host::Pinned { number, place } => Some((layout, number, place)),
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
            for (layout, number, place) in unmade {
                if let Some(mut lent) = number.lend(place, || false).await {
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
pub(super) async fn perform_cut(
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
