//! Puts operations on CUDA streams: a call alone, or those of a group.
//!
//! What is cut into pieces goes through a ring of places, a few pieces ahead; what is not, such as messages, is
//! all fetched before anything is waited for; what fits no place is copied while the caller waits. Leaves to
//! `cuda` what an operation does between its copies. Invariants: operations get their numbers, here and among
//! ranks, in the order in which they were called; a failure of the driver fails the communicator and lets its
//! streams go on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cut::Cut;
use crate::device::staging::{Mark, Number, Of, SLOTS};
use crate::device::{CudaStream, Entered};
use crate::error::{Error, Result};

use super::Communicator;
use super::batch::{Request, begin};
use super::cuda::{Cuda, Host, OnCuda, Order, Piece, Staged};
use super::staging::{Layout, Rows};
use super::work::Work;

/// A request that will be put on a CUDA stream.
struct Planned {
    communicator: Arc<Communicator>,
    /// Which of the devices' sides it is of.
    side: usize,
    stream: CudaStream,
    work: Work<'static>,
    cut: Option<Cut>,
    layouts: Vec<Layout>,
    way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Piece by piece.
    Ring,
    /// At once, through pinned memory.
    Whole,
    /// At once, while the caller waits.
    Waiting,
}

/// One of the communicators that are enqueued for, while nobody else does that.
struct Side<'a> {
    cuda: &'a Arc<Cuda>,
    order: MutexGuard<'a, Order>,
    /// Everything that is fetched before the rest, and stored behind it, by stream.
    whole: Vec<Whole>,
    /// How much of the place for such things is taken.
    taken: usize,
    /// In this order.
    steps: VecDeque<Step>,
}

struct Whole {
    stream: CudaStream,
    number: Arc<Number>,
    fetch: Vec<Rows>,
    store: Vec<Rows>,
}

/// What is put on a stream for a piece.
enum Step {
    /// Its data is fetched, and its number told.
    Front(CudaStream, Mark, Vec<Rows>),
    /// Its number is awaited, and its result stored.
    Back(CudaStream, Mark, Vec<Rows>),
}

/// What a caller waits for, and what is copied then.
struct Waiting {
    side: usize,
    stream: CudaStream,
    memory: Arc<Mutex<Vec<u8>>>,
    store: Vec<Rows>,
}

/// As `run_together`, where some requests are on CUDA streams.
pub(super) fn run_together(requests: Vec<Request<'static>>) -> Result<()> {
    let cudas = sides_of(&requests);
    // In one order in all threads, so that none waits for another's.
    let mut sides: Vec<_> = cudas
        .iter()
        .map(|cuda| Side {
            cuda,
            order: cuda.lock(),
            whole: Vec::new(),
            taken: 0,
            steps: VecDeque::new(),
        })
        .collect();
    let mut waiting = Vec::new();
    let mut ready = Vec::new();
    for request in requests {
        ready.push(match request.cuda {
            None => Err(request),
            Some(ref on) => {
                check(&request, on)?;
                Ok(plan(request, &cudas))
            }
        });
    }
    // Those that are fetched at once come first in the order of numbers.
    let placed = ready.iter_mut().map(|planned| match planned {
        Ok(planned) if planned.way != Way::Ring => place(planned, &mut sides, &mut waiting),
        _ => Ok(VecDeque::new()),
    });
    let hosts = match placed.collect::<Result<Vec<_>>>() {
        Ok(hosts) => hosts,
        Err(error) => {
            sides.iter_mut().for_each(Side::settle);
            return Err(error);
        }
    };
    let mut issued = Vec::new();
    let mut enqueued = Vec::new();
    for (planned, pieces) in ready.into_iter().zip(hosts) {
        match planned {
            Err(request) => issued.push(request),
            Ok(planned) => {
                enqueued.push((Arc::clone(&planned.communicator), planned.work.words()));
                issued.push(staged(planned, pieces, &mut sides));
            }
        }
    }
    let (result, here) = begin(issued);
    let put = sides.iter_mut().try_for_each(Side::begin);
    let put = put.and_then(|()| interleave(&mut sides));
    let put = put.and_then(|()| sides.iter_mut().try_for_each(Side::end));
    let put = put.map_err(|error| {
        let fail = |(communicator, what): &(Arc<Communicator>, String)| {
            communicator.fail_on_device(&format!("{what}, not enqueued"), &error)
        };
        let faults: Vec<_> = enqueued.iter().map(fail).collect();
        sides.iter_mut().for_each(Side::give_up);
        faults.into_iter().next().unwrap_or(error)
    });
    drop(sides);
    // Whoever aborted meanwhile did not know of these numbers.
    for (communicator, _) in enqueued.iter().filter(|(communicator, _)| communicator.is_aborted()) {
        communicator.release_device();
    }
    let ran = result.and(here.run());
    let stored = waiting.iter().try_for_each(|one| one.store(&cudas));
    put.and(ran).and(stored)
}

/// The sides of all communicators that are enqueued for, in one order in all threads.
fn sides_of(requests: &[Request<'static>]) -> Vec<Arc<Cuda>> {
    let on_cuda = requests.iter().filter(|request| request.cuda.is_some());
    let mut cudas: Vec<_> =
        on_cuda.filter_map(|request| request.communicator.cuda.get().cloned()).collect();
    cudas.sort_by_key(|cuda| Arc::as_ptr(cuda).addr());
    cudas.dedup_by(|one, other| Arc::ptr_eq(one, other));
    cudas
}

/// Before anything is begun.
fn check(request: &Request<'static>, on: &OnCuda) -> Result<()> {
    let cuda = request
        .communicator
        .cuda
        .get()
        .ok_or_else(|| Error::Panic("a request is on a stream of no device".to_owned()))?;
    request.communicator.check_takes(&request.work)?;
    cuda.device().enter()?.check_not_capturing(on.stream)
}

fn plan(request: Request<'static>, cudas: &[Arc<Cuda>]) -> Planned {
    let Request { communicator, cuda, mut work, .. } = request;
    let OnCuda { stream, device } = cuda.expect("it is on a CUDA stream");
    let own = communicator.cuda.get().expect("it was checked");
    let side = cudas.iter().position(|cuda| Arc::ptr_eq(cuda, own)).expect("it is one of them");
    let place = communicator.place();
    let mut cut = None;
    let mut layouts = match &mut work {
        Work::Collective(op) => {
            cut = Cut::of(op, place);
            match cut {
                Some(cut) => (0..cut.pieces)
                    .map(|index| Layout::of(&cut.piece(op, index), place, &device))
                    .collect(),
                None => vec![Layout::of(op, place, &device)],
            }
        }
        Work::Send(outgoing) => vec![Layout::of_outgoing(outgoing, &device)],
        Work::Recv(incoming) => vec![Layout::of_incoming(incoming, &device)],
        Work::Split(_) | Work::Staged(_) => unreachable!("such work comes from no caller"),
    };
    let way = match own.staging() {
        None => Way::Waiting,
        // Pieces fit by construction.
        Some(_) if cut.is_some() => Way::Ring,
        Some(staging) if layouts[0].bytes <= staging.slot_bytes() && !work.is_message() => {
            Way::Ring
        }
        Some(_) => Way::Whole,
    };
    if way == Way::Waiting && cut.is_some() {
        if let Work::Collective(op) = &work {
            layouts = vec![Layout::of(op, place, &device)];
        }
        cut = None; // it is cut when it is made
    }
    Planned { communicator, side, stream, work, cut, layouts, way }
}

/// Finds memory for what is not cut. What finds none is fetched here.
fn place(
    planned: &mut Planned,
    sides: &mut [Side<'_>],
    waiting: &mut Vec<Waiting>,
) -> Result<VecDeque<Piece>> {
    let side = &mut sides[planned.side];
    let layout = planned.layouts.pop().expect("what is not cut has one layout");
    let start = side.taken.next_multiple_of(64);
    if let (Way::Whole, Some(staging)) = (planned.way, side.cuda.staging()) {
        let all = staging.whole();
        if start + layout.bytes <= all.len() {
            side.taken = start + layout.bytes;
            let place = all.start + start..all.start + start + layout.bytes;
            let number = side.whole_on(planned.stream, &layout, place.start);
            return Ok([Piece { layout, host: Host::Pinned { number, place } }].into());
        }
        planned.way = Way::Waiting;
        side.cuda.tell_that_callers_wait(layout.bytes);
    }
    let memory = fetched(side, planned.stream, &layout)?;
    let memory = Arc::new(Mutex::new(memory));
    waiting.push(Waiting {
        side: planned.side,
        stream: planned.stream,
        memory: Arc::clone(&memory),
        store: layout.store.clone(),
    });
    Ok([Piece { layout, host: Host::Plain(memory) }].into())
}

/// Memory of our own, with what is to be fetched, when the stream has come so far.
fn fetched(side: &mut Side<'_>, stream: CudaStream, layout: &Layout) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(layout.bytes).map_err(|_| Error::out_of_memory(layout.bytes))?;
    memory.resize(layout.bytes, 0);
    let entered = side.cuda.device().enter()?;
    side.order.come_to(stream, &entered)?;
    let base = memory.as_mut_ptr().addr() as u64;
    copy_all(&entered, &layout.fetch, base, Towards::Host, stream)?;
    entered.synchronize(stream)?;
    side.order.clear();
    Ok(memory)
}

/// The request as a thread of ours makes it, or the caller if he waits.
fn staged(
    planned: Planned,
    mut pieces: VecDeque<Piece>,
    sides: &mut [Side<'_>],
) -> Request<'static> {
    let Planned { communicator, side, stream, work, cut, layouts, way } = planned;
    let side = &mut sides[side];
    if way == Way::Ring {
        pieces = side.ring(stream, layouts);
    }
    let queue = (way != Way::Waiting).then(|| Arc::clone(side.cuda.stream()));
    let work = Work::Staged(Staged::new(work, cut, pieces, side.cuda));
    Request { communicator, stream: queue, cuda: None, work }
}

impl Side<'_> {
    /// Adds to what is fetched on a stream before all else. Its number.
    fn whole_on(&mut self, stream: CudaStream, layout: &Layout, start: usize) -> Arc<Number> {
        let staging = self.cuda.staging().expect("it has a place there");
        let index =
            self.whole.iter().position(|whole| whole.stream == stream).unwrap_or_else(|| {
                let number = staging.issue(Of::Whole);
                self.whole.push(Whole { stream, number, fetch: Vec::new(), store: Vec::new() });
                self.whole.len() - 1
            });
        let whole = &mut self.whole[index];
        whole.fetch.extend(layout.fetch.iter().map(|rows| rows.moved(start)));
        whole.store.extend(layout.store.iter().map(|rows| rows.moved(start)));
        Arc::clone(&whole.number)
    }

    /// Has pieces go through the ring: each place is used again when its result was stored.
    fn ring(&mut self, stream: CudaStream, layouts: Vec<Layout>) -> VecDeque<Piece> {
        let staging = self.cuda.staging().expect("it has a ring");
        let mut backs = VecDeque::new();
        let mut pieces = VecDeque::new();
        for (index, layout) in layouts.into_iter().enumerate() {
            if index >= SLOTS {
                self.steps.extend(backs.pop_front());
            }
            let (number, place) = (staging.issue(Of::Pieces), staging.slot(index));
            let moved = |rows: &[Rows]| rows.iter().map(|rows| rows.moved(place.start)).collect();
            self.steps.push_back(Step::Front(stream, number.mark, moved(&layout.fetch)));
            backs.push_back(Step::Back(stream, number.mark, moved(&layout.store)));
            pieces.push_back(Piece { layout, host: Host::Pinned { number, place } });
        }
        self.steps.extend(backs);
        pieces
    }

    /// Fetches what is made at once.
    fn begin(&mut self) -> Result<()> {
        let entered = self.cuda.device().enter()?;
        for index in 0..self.whole.len() {
            let Whole { stream, ref number, ref fetch, .. } = self.whole[index];
            let step = Step::Front(stream, number.mark, fetch.clone());
            self.put(&entered, step)?;
        }
        Ok(())
    }

    /// Puts on streams what stands before the next wait, and, but for the first time, that wait before it.
    fn go_on(&mut self, is_first: bool) -> Result<()> {
        let entered = self.cuda.device().enter()?;
        if !is_first && let Some(back) = self.steps.pop_front() {
            self.put(&entered, back)?;
        }
        while let Some(Step::Front(..)) = self.steps.front()
            && let Some(front) = self.steps.pop_front()
        {
            self.put(&entered, front)?;
        }
        Ok(())
    }

    /// Stores what was made at once, and lets the streams be.
    fn end(&mut self) -> Result<()> {
        let entered = self.cuda.device().enter()?;
        for whole in std::mem::take(&mut self.whole) {
            let step = Step::Back(whole.stream, whole.number.mark, whole.store);
            drop(whole.number); // who makes it has it too
            self.put(&entered, step)?;
        }
        self.rest(&entered)
    }

    /// Has the device say when it has done all this.
    fn rest(&mut self, entered: &Entered<'_>) -> Result<()> {
        if let (Some(staging), Some(stream)) = (self.cuda.staging(), self.order.unrested()) {
            staging.retire(|cell, value| entered.write_value(cell, value, stream))?;
        }
        self.order.rest(entered)
    }

    /// The same, after a failure that ends the communicator.
    fn give_up(&mut self) {
        self.cuda.release();
        self.settle();
    }

    /// The same, after any failure.
    fn settle(&mut self) {
        let cuda = self.cuda;
        let rested = cuda.device().enter().and_then(|entered| self.rest(&entered));
        if let (Err(_), Some(staging)) = (rested, cuda.staging()) {
            staging.lose();
        }
    }

    fn put(&mut self, entered: &Entered<'_>, step: Step) -> Result<()> {
        let staging = self.cuda.staging().expect("steps are of the memory there");
        let base = staging.device_address(0);
        match step {
            Step::Front(stream, mark, fetch) => {
                self.order.come_to(stream, entered)?;
                copy_all(entered, &fetch, base, Towards::Host, stream)?;
                entered.write_value(staging.start(mark), mark.value, stream)
            }
            Step::Back(stream, mark, store) => {
                self.order.come_to(stream, entered)?;
                entered.wait_value(staging.done(mark), mark.value, stream)?;
                copy_all(entered, &store, base, Towards::Device, stream)
            }
        }
    }
}

/// All sides go on by turns: a wait of one is never before what another rank needs of the others to end it,
/// whatever the order of communicators is there.
fn interleave(sides: &mut [Side<'_>]) -> Result<()> {
    let mut is_first = true;
    while sides.iter().any(|side| !side.steps.is_empty()) {
        for side in sides.iter_mut().filter(|side| !side.steps.is_empty()) {
            side.go_on(is_first)?;
        }
        is_first = false;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Towards {
    Host,
    Device,
}

fn copy_all(
    entered: &Entered<'_>,
    rows: &[Rows],
    base: u64,
    towards: Towards,
    stream: CudaStream,
) -> Result<()> {
    for rows in rows {
        let Rows { device, device_pitch, host, host_pitch, width, count } = *rows;
        let host = base + host as u64;
        match towards {
            Towards::Host => {
                entered.copy_rows(host, host_pitch, device, device_pitch, width, count, stream)?
            }
            Towards::Device => {
                entered.copy_rows(device, device_pitch, host, host_pitch, width, count, stream)?
            }
        }
    }
    Ok(())
}

impl Waiting {
    fn store(&self, cudas: &[Arc<Cuda>]) -> Result<()> {
        if self.store.is_empty() {
            return Ok(());
        }
        let cuda = &cudas[self.side];
        let mut order = cuda.lock();
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = cuda.device().enter()?;
        order.come_to(self.stream, &entered)?;
        let base = memory.as_ptr().addr() as u64;
        copy_all(&entered, &self.store, base, Towards::Device, self.stream)?;
        entered.synchronize(self.stream)?;
        order.clear();
        Ok(())
    }
}
