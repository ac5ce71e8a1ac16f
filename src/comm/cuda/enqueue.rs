//! Puts operations on CUDA streams: a call alone, or those of a group.
//!
//! Pieces, and what is no larger than one, go through a ring of slots, a few ahead; messages and what is larger but
//! not cut is all fetched before anything is waited for; what does not fit then is copied while the caller waits.
//! Leaves to `staged` what an operation does between its copies. Invariants: operations get their numbers, here and
//! among ranks, in the order in which they were called; before the first wait stands all that other ranks need from
//! this one to end it; once operations have begun, a failure of the driver fails their communicators and lets
//! their streams go on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::comm::Communicator;
use crate::comm::run::{Request, Stream, Work, begin};
use crate::cut::Cut;
use crate::device::staging::{Mark, Number, SLOTS, Track};
use crate::device::{CudaStream, Device, Entered};
use crate::error::{Error, Result};
use crate::rank::Place;

use super::allocation::Enqueuing;
use super::attach::OnCuda;
use super::layout::{Layout, Rows};
use super::staged::{Host, Piece, Staged};
use super::state::{Cuda, Order};

/// Who waits for a stream looks so often.
const STREAM_LOOK: Duration = Duration::from_micros(50);

/// What was asked for: of the host alone, or something to be put on a CUDA stream.
enum Asked {
    Host(Request<'static>),
    Cuda(Planned),
}

struct Planned {
    communicator: Arc<Communicator>,
    /// Which of the sides it is of.
    side: usize,
    stream: CudaStream,
    work: Work<'static>,
    cut: Option<Cut>,
    layouts: Vec<Layout>,
    route: Route,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
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
    device: Arc<Device>,
    order: MutexGuard<'a, Order>,
    /// Everything that is fetched before the rest, and stored behind it, by stream.
    whole: Vec<Whole>,
    /// How much of the memory for such things is taken.
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
    /// In place of that, where it goes another way here and perhaps not on other ranks.
    Skipped,
}

/// What was enqueued, for the text of a failure.
struct Enqueued {
    communicator: Arc<Communicator>,
    what: String,
}

/// What a caller waits for, and what is copied then.
struct Waiting {
    enqueued: Enqueued,
    cuda: Arc<Cuda>,
    stream: CudaStream,
    memory: Arc<Mutex<Vec<u8>>>,
    store: Vec<Rows>,
}

/// As `batch::run_together`, where some requests are on CUDA streams.
pub fn run_together(requests: Vec<Request<'static>>) -> Result<()> {
    let cudas = cudas_of(&requests);
    let result = run_on(&cudas, requests);
    // A caller that has waited for want of memory has drained its streams: memory may be had now.
    cudas.iter().filter(|cuda| !cuda.has_memory()).for_each(|cuda| cuda.get_memory());
    // A communicator that has ended meanwhile could perhaps not wait for this.
    cudas.iter().for_each(|cuda| cuda.give_back(Duration::ZERO));
    result
}

fn run_on(cudas: &[Arc<Cuda>], requests: Vec<Request<'static>>) -> Result<()> {
    let enqueuing = Enqueuing::begin();
    // In one order in all threads, so that none waits for another's.
    let mut sides = cudas.iter().map(Side::new).collect::<Result<Vec<_>>>()?;
    let may_hold = enqueuing.is_some();
    let asked = requests.into_iter().map(|request| plan(request, cudas, may_hold));
    let mut asked = asked.collect::<Result<Vec<_>>>()?;
    let mut waiting = Vec::new();
    let uncut = find_room(&mut asked, &mut sides, &mut waiting).inspect_err(|_| {
        sides.iter_mut().for_each(Side::settle);
    })?;
    let is_for_caller = |asked: &Asked| matches!(asked, Asked::Host(one) if one.stream.is_none());
    // What the caller waits for is made by other threads: what is put on streams meanwhile may wait for it.
    let host = asked.iter().any(is_for_caller).then(Stream::new).transpose()?;
    let mut enqueued = Vec::new();
    let requests = asked.into_iter().zip(uncut).map(|(asked, pieces)| match asked {
        Asked::Host(request) => {
            skip(&request, &mut sides);
            Request { stream: request.stream.or_else(|| host.clone()), ..request }
        }
        Asked::Cuda(planned) => {
            enqueued.push(planned.enqueued());
            staged(planned, pieces, &mut sides)
        }
    });
    let requests = requests.collect();
    let (begun, _nothing_here) = begin(requests);
    let put = put_all(&mut sides).map_err(|error| {
        let faults: Vec<_> = enqueued.iter().map(|one| one.fail("not enqueued", &error)).collect();
        for side in &mut sides {
            side.cuda.release();
            side.settle();
        }
        faults.into_iter().next().unwrap_or(error)
    });
    drop((sides, enqueuing));
    // Whoever aborted meanwhile did not know of these numbers.
    for one in enqueued.iter().filter(|one| one.communicator.is_aborted()) {
        one.communicator.release_device();
    }
    // Whatever has failed: while it is made it may use memory of the caller's.
    let on_host = host.map_or(Ok(()), |host| host.synchronize());
    put.and(begun).and(on_host).and(wait_for_all(&waiting))
}

/// Waits until all has been made, and stores what communicators have made without a failure.
fn wait_for_all(waiting: &[Waiting]) -> Result<()> {
    let mut failed: Vec<&Arc<Cuda>> = Vec::new();
    let mut result = Ok(());
    for one in waiting {
        let made = one.cuda.worker().synchronize();
        if made.is_err() {
            failed.push(&one.cuda);
        }
        result = result.and(made);
    }
    let has_failed = |one: &Waiting| {
        one.enqueued.communicator.fault().is_some()
            || failed.iter().any(|cuda| Arc::ptr_eq(cuda, &one.cuda))
    };
    for one in waiting.iter().filter(|one| !has_failed(one)) {
        result = result.and(one.store());
    }
    result
}

/// Those of all communicators that are enqueued for, in one order in all threads.
fn cudas_of(requests: &[Request<'static>]) -> Vec<Arc<Cuda>> {
    let on_cuda = requests.iter().filter(|request| request.cuda.is_some());
    let cudas = on_cuda.filter_map(|request| request.communicator.cuda.get().cloned());
    let mut cudas: Vec<_> = cudas.filter(|cuda| cuda.device().is_ok()).collect();
    cudas.sort_by_key(|cuda| Arc::as_ptr(cuda).addr());
    cudas.dedup_by(|one, other| Arc::ptr_eq(one, other));
    cudas
}

/// Says what is to be put where, before anything is begun. `may_hold`: whether streams may wait for this process.
fn plan(request: Request<'static>, cudas: &[Arc<Cuda>], may_hold: bool) -> Result<Asked> {
    let Some(on) = &request.cuda else { return Ok(Asked::Host(request)) };
    if request.communicator.check_takes(&request.work).is_err() {
        // It gets no number and is not made, which is its own matter: others of the group are.
        return Ok(Asked::Host(Request { cuda: None, ..request }));
    }
    let own = request.communicator.cuda.get();
    let side = cudas.iter().position(|cuda| own.is_some_and(|own| Arc::ptr_eq(cuda, own)));
    let (Some(cuda), Some(side)) = (own, side) else {
        return Err(Error::Aborted); // since it was looked at
    };
    cuda.device()?.enter()?.check_not_capturing(on.stream)?;
    let OnCuda { stream, ref device } = *on;
    let place = request.communicator.place();
    let (communicator, mut work) = (request.communicator, request.work);
    let mut cut = None;
    let mut layouts = match &mut work {
        Work::Collective(op) => {
            cut = Cut::of(op, place);
            match cut {
                Some(cut) => (0..cut.pieces)
                    .map(|index| Layout::of(&cut.piece(op, index), place, device))
                    .collect(),
                None => vec![Layout::of(op, place, device)],
            }
        }
        Work::Send(outgoing) => vec![Layout::of_outgoing(outgoing, device)],
        Work::Recv(incoming) => vec![Layout::of_incoming(incoming, device)],
        Work::Split(_) | Work::Staged(_) => unreachable!("such work comes from no caller"),
    };
    let cuda = &cudas[side];
    let route = match cuda.staging().filter(|_| may_hold) {
        None => Route::Waiting,
        // Pieces fit by construction.
        Some(_) if cut.is_some() => Route::Ring,
        Some(staging) if layouts[0].bytes <= staging.slot_bytes() && !work.is_message() => {
            Route::Ring
        }
        Some(_) => Route::Whole,
    };
    if route == Route::Waiting && cut.is_some() {
        if let Work::Collective(op) = &work {
            layouts = vec![Layout::of(op, place, device)];
        }
        cut = None; // it is cut when it is made
    }
    Ok(Asked::Cuda(Planned { communicator, side, stream, work, cut, layouts, route }))
}

/// Finds memory for what is not cut: that comes first in the order of numbers. The one piece of each, and none of
/// what is of the host or goes through the ring.
fn find_room(
    asked: &mut [Asked],
    sides: &mut [Side<'_>],
    waiting: &mut Vec<Waiting>,
) -> Result<Vec<VecDeque<Piece>>> {
    let pieces = asked.iter_mut().map(|asked| match asked {
        Asked::Cuda(planned) if planned.route != Route::Ring => {
            let piece = room_for(planned, &mut sides[planned.side], waiting)?;
            Ok([piece].into())
        }
        _ => Ok(VecDeque::new()),
    });
    pieces.collect()
}

/// What finds no pinned memory is fetched here.
fn room_for(
    planned: &mut Planned,
    side: &mut Side<'_>,
    waiting: &mut Vec<Waiting>,
) -> Result<Piece> {
    let layout = planned.layouts.pop().expect("what is not cut has one layout");
    let start = side.taken.next_multiple_of(64);
    if let (Route::Whole, Some(staging)) = (planned.route, side.cuda.staging()) {
        let all = staging.whole();
        if start + layout.bytes <= all.len() {
            side.taken = start + layout.bytes;
            let room = all.start + start..all.start + start + layout.bytes;
            let number = side.whole_on(planned.stream, &layout, room.start);
            return Ok(Piece { layout, host: Host::Pinned { number, room } });
        }
        planned.route = Route::Waiting;
        side.cuda.tell_that_callers_wait(layout.bytes);
    }
    let memory = side.fetched(&planned.communicator, planned.stream, &layout)?;
    let memory = Arc::new(Mutex::new(memory));
    waiting.push(Waiting {
        enqueued: planned.enqueued(),
        cuda: Arc::clone(side.cuda),
        stream: planned.stream,
        memory: Arc::clone(&memory),
        store: layout.store.clone(),
    });
    Ok(Piece { layout, host: Host::Plain(memory) })
}

/// The request as a thread of ours makes it.
fn staged(
    planned: Planned,
    mut pieces: VecDeque<Piece>,
    sides: &mut [Side<'_>],
) -> Request<'static> {
    let Planned { communicator, side, stream, work, cut, layouts, route } = planned;
    let side = &mut sides[side];
    match route {
        Route::Ring => pieces = side.ring(stream, layouts),
        Route::Whole | Route::Waiting => side.skip(&work, communicator.place()),
    }
    let worker = Some(Arc::clone(side.cuda.worker()));
    let work = Work::Staged(Staged::new(work, cut, pieces, side.cuda));
    Request { communicator, stream: worker, cuda: None, work }
}

/// As `Side::skip`, for what is of the host here.
fn skip(request: &Request<'static>, sides: &mut [Side<'_>]) {
    let own = request.communicator.cuda.get();
    let side = sides.iter_mut().find(|side| own.is_some_and(|own| Arc::ptr_eq(side.cuda, own)));
    if let Some(side) = side {
        side.skip(&request.work, request.communicator.place());
    }
}

/// Puts everything on streams.
fn put_all(sides: &mut [Side<'_>]) -> Result<()> {
    sides.iter_mut().try_for_each(Side::begin)?;
    interleave(sides)?;
    sides.iter_mut().try_for_each(Side::end)
}

/// All sides go on by turns: a wait of one is never before what another rank needs of the others to end it,
/// whatever the order of communicators is there. What is waited for in a turn was fetched in an earlier one, so
/// all ranks must count turns alike: also for collectives that go another way here.
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

impl Planned {
    fn enqueued(&self) -> Enqueued {
        Enqueued { communicator: Arc::clone(&self.communicator), what: self.work.words() }
    }
}

impl Enqueued {
    /// Fails the communicator.
    fn fail(&self, how: &str, cause: &Error) -> Error {
        self.communicator.fail_on_device(&format!("{}, {how}", self.what), cause)
    }
}

impl<'a> Side<'a> {
    fn new(cuda: &'a Arc<Cuda>) -> Result<Self> {
        let (device, order) = (cuda.device()?, cuda.lock());
        Ok(Self { cuda, device, order, whole: Vec::new(), taken: 0, steps: VecDeque::new() })
    }

    /// Memory of our own, with what is to be fetched, when the stream has come so far.
    fn fetched(
        &mut self,
        communicator: &Communicator,
        stream: CudaStream,
        layout: &Layout,
    ) -> Result<Vec<u8>> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(layout.bytes).map_err(|_| Error::out_of_memory(layout.bytes))?;
        memory.resize(layout.bytes, 0);
        let entered = self.device.enter()?;
        self.order.go_on_with(stream, &entered)?;
        wait_for_stream(communicator, &entered, stream)?;
        let base = memory.as_mut_ptr().addr() as u64;
        copy_all(&entered, &layout.fetch, base, Towards::Host, stream)?;
        entered.synchronize(stream)?;
        self.order.clear();
        Ok(memory)
    }

    /// Adds to what is fetched on a stream before all else. Its number.
    fn whole_on(&mut self, stream: CudaStream, layout: &Layout, start: usize) -> Arc<Number> {
        let staging = self.cuda.staging().expect("it has room there");
        let index =
            self.whole.iter().position(|whole| whole.stream == stream).unwrap_or_else(|| {
                let number = staging.issue(Track::Whole);
                self.whole.push(Whole { stream, number, fetch: Vec::new(), store: Vec::new() });
                self.whole.len() - 1
            });
        let whole = &mut self.whole[index];
        whole.fetch.extend(layout.fetch.iter().map(|rows| rows.moved(start)));
        whole.store.extend(layout.store.iter().map(|rows| rows.moved(start)));
        Arc::clone(&whole.number)
    }

    /// Has pieces go through the ring: each slot is used again when its result was stored.
    fn ring(&mut self, stream: CudaStream, layouts: Vec<Layout>) -> VecDeque<Piece> {
        let staging = self.cuda.staging().expect("it has a ring");
        let mut backs = VecDeque::new();
        let mut pieces = VecDeque::new();
        for (index, layout) in layouts.into_iter().enumerate() {
            if index >= SLOTS {
                self.steps.extend(backs.pop_front());
            }
            let (number, room) = (staging.issue(Track::Pieces), staging.slot(index));
            let moved = |rows: &[Rows]| rows.iter().map(|rows| rows.moved(room.start)).collect();
            self.steps.push_back(Step::Front(stream, number.mark, moved(&layout.fetch)));
            backs.push_back(Step::Back(stream, number.mark, moved(&layout.store)));
            pieces.push_back(Piece { layout, host: Host::Pinned { number, room } });
        }
        self.steps.extend(backs);
        pieces
    }

    /// A collective that does not go through the ring here takes as many turns as if it did.
    fn skip(&mut self, work: &Work<'_>, place: Place) {
        if let Work::Collective(op) = work {
            let turns = Cut::of(op, place).map_or(1, |cut| cut.pieces);
            self.steps.extend((0..turns).map(|_| Step::Skipped));
        }
    }

    /// Fetches what is made at once.
    fn begin(&mut self) -> Result<()> {
        let device = Arc::clone(&self.device);
        let entered = device.enter()?;
        for index in 0..self.whole.len() {
            let Whole { stream, ref number, ref fetch, .. } = self.whole[index];
            let step = Step::Front(stream, number.mark, fetch.clone());
            self.put(&entered, step)?;
        }
        Ok(())
    }

    /// Puts on streams what stands before the next wait, and, but for the first time, that wait before it.
    fn go_on(&mut self, is_first: bool) -> Result<()> {
        let device = Arc::clone(&self.device);
        let entered = device.enter()?;
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
        let device = Arc::clone(&self.device);
        let entered = device.enter()?;
        for whole in std::mem::take(&mut self.whole) {
            let step = Step::Back(whole.stream, whole.number.mark, whole.store);
            drop(whole.number); // who makes it has it too
            self.put(&entered, step)?;
        }
        self.cuda.rest(&mut self.order, &entered)
    }

    fn settle(&mut self) {
        self.cuda.settle(&mut self.order, &self.device);
    }

    fn put(&mut self, entered: &Entered<'_>, step: Step) -> Result<()> {
        let Some(staging) = self.cuda.staging() else { return Ok(()) }; // all is skipped
        let base = staging.device_address(0);
        match step {
            Step::Front(stream, mark, fetch) => {
                self.order.go_on_with(stream, entered)?;
                copy_all(entered, &fetch, base, Towards::Host, stream)?;
                entered.write_value(staging.start(mark), mark.value, stream)
            }
            Step::Back(stream, mark, store) => {
                self.order.go_on_with(stream, entered)?;
                entered.wait_value(staging.done(mark), mark.value, stream)?;
                copy_all(entered, &store, base, Towards::Device, stream)
            }
            Step::Skipped => Ok(()),
        }
    }
}

/// Waits for all that the program has put on the stream, no longer than a call may take: a copy from or to memory
/// that is not pinned would wait for it inside the driver.
fn wait_for_stream(
    communicator: &Communicator,
    entered: &Entered<'_>,
    stream: CudaStream,
) -> Result<()> {
    let limit = communicator.config.op_timeout;
    let until = Instant::now() + limit;
    while !entered.is_idle(stream)? {
        if let Some(fault) = communicator.fault() {
            return Err(communicator.as_caller_is_told(fault));
        }
        if Instant::now() >= until {
            let blame = "the stream has not come to it".to_owned();
            return Err(Error::Timeout { limit_ms: limit.as_millis(), blame });
        }
        std::thread::sleep(STREAM_LOOK);
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
    /// The caller waits for this too. Other ranks have ended the operation by now.
    fn store(&self) -> Result<()> {
        if self.store.is_empty() {
            return Ok(());
        }
        let device = self.cuda.device()?;
        let mut order = self.cuda.lock();
        self.try_store(&mut order, &device).map_err(|error| {
            self.cuda.settle(&mut order, &device);
            self.enqueued.fail("its result not stored", &error)
        })
    }

    fn try_store(&self, order: &mut Order, device: &Device) -> Result<()> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = device.enter()?;
        order.go_on_with(self.stream, &entered)?;
        wait_for_stream(&self.enqueued.communicator, &entered, self.stream)?;
        let base = memory.as_ptr().addr() as u64;
        copy_all(&entered, &self.store, base, Towards::Device, self.stream)?;
        entered.synchronize(self.stream)?;
        order.clear();
        Ok(())
    }
}
