//! Puts operations on CUDA streams: a call alone, or those of a group.
//!
//! An operation takes one of three routes. Ring: the pieces of a cut collective, and collectives no
//! larger than a piece, pass through a ring of slots, a few ahead. Whole: messages and larger uncut
//! collectives are copied in before the first wait. Blocking: the caller copies and waits, if the
//! staging buffer is too small or streams cannot wait. Leaves to `staged` what an operation does
//! between its copies. Invariants: operations get their sequence numbers in the order of their
//! calls; everything that other ranks need from this one to complete a wait is enqueued before that
//! wait; once operations have begun, a failure of the driver fails their communicators and releases
//! their streams.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::comm::run::{HostRequest, Stream, Work, begin};
use crate::comm::{Communicator, Request};
use crate::cut::Cut;
use crate::device::staging::{PendingValue, SLOTS, Timeline, TimelineValue};
use crate::device::{CudaStream, Device, EnteredContext};
use crate::error::{Error, Result};
use crate::rank::RankOf;

use super::allocation::Enqueuing;
use super::attach::OnCuda;
use super::layout::{CopyRows, StagingLayout};
use super::staged::{Staged, StagedMemory, StagedPiece};
use super::state::{CudaState, Order};

/// How often a thread that waits for a stream checks it.
const STREAM_POLL: Duration = Duration::from_micros(50);

/// A request: on host memory alone, or to be put on a CUDA stream.
enum Planned {
    Host(HostRequest),
    Cuda(PlannedOnCuda),
}

struct PlannedOnCuda {
    communicator: Arc<Communicator>,
    /// Index of the plan of its communicator.
    plan: usize,
    stream: CudaStream,
    work: Work<'static>,
    cut: Option<Cut>,
    layouts: Vec<StagingLayout>,
    route: Route,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Piece by piece, through the slots of the staging buffer.
    Ring,
    /// As a whole, through the rest of the staging buffer.
    Whole,
    /// As a whole, while the caller waits.
    Blocking,
}

/// What is enqueued for one communicator, while its order is locked.
struct CommPlan<'a> {
    cuda: &'a Arc<CudaState>,
    device: Arc<Device>,
    order: MutexGuard<'a, Order>,
    /// Copies in before the steps and copies out after them, by stream.
    whole: Vec<Whole>,
    /// How many bytes of the staging buffer `whole` has taken.
    taken: usize,
    /// The steps of the ring, in this order.
    steps: VecDeque<EnqueueStep>,
}

struct Whole {
    stream: CudaStream,
    value: Arc<PendingValue>,
    fetch: Vec<CopyRows>,
    store: Vec<CopyRows>,
}

/// A step that is enqueued on a stream for a piece.
enum EnqueueStep {
    /// Copies the data in, then writes the value to `start`.
    Front(CudaStream, TimelineValue, Vec<CopyRows>),
    /// Waits until `done` has reached the value, then copies the result out.
    Back(CudaStream, TimelineValue, Vec<CopyRows>),
    /// Takes the turn of a piece that takes another route here, and perhaps not on other ranks.
    Skipped,
}

/// An enqueued operation, for error texts.
struct Enqueued {
    communicator: Arc<Communicator>,
    what: String,
}

/// An operation that the caller waits for, and the copies out that the caller then executes.
struct Blocking {
    enqueued: Enqueued,
    cuda: Arc<CudaState>,
    stream: CudaStream,
    memory: Arc<Mutex<Vec<u8>>>,
    store: Vec<CopyRows>,
}

/// Gives all requests, of which some are on CUDA streams, their sequence numbers in this order,
/// starts them all, and waits for those that are on no stream. Returns the first error.
pub fn enqueue_all(requests: Vec<Request>) -> Result<()> {
    let requests: Vec<_> = requests.into_iter().map(Request::into_host).collect();
    let cudas = cudas_of(&requests);
    let result = enqueue_on(&cudas, requests);
    // A caller that waited for lack of memory has drained its streams: memory may be allocated now.
    cudas.iter().filter(|cuda| !cuda.has_memory()).for_each(|cuda| cuda.get_memory());
    // A communicator that ended meanwhile may not have been able to wait for this call.
    cudas.iter().for_each(|cuda| cuda.release_if_ended(Duration::ZERO));
    result
}

fn enqueue_on(
    cudas: &[Arc<CudaState>],
    requests: Vec<(HostRequest, Option<OnCuda>)>,
) -> Result<()> {
    let enqueuing = Enqueuing::begin();
    // Locked in one order by all threads, so that no two deadlock.
    let mut plans = cudas.iter().map(CommPlan::new).collect::<Result<Vec<_>>>()?;
    let may_hold = enqueuing.is_some();
    let planned = requests.into_iter().map(|(request, on)| plan(request, on, cudas, may_hold));
    let mut planned = planned.collect::<Result<Vec<_>>>()?;
    let mut blocking = Vec::new();
    let uncut = stage_uncut(&mut planned, &mut plans, &mut blocking).inspect_err(|_| {
        plans.iter_mut().for_each(CommPlan::end_failed_series);
    })?;
    let is_for_caller = |one: &Planned| matches!(one, Planned::Host(one) if one.stream.is_none());
    // Other threads execute what the caller waits for: steps that are put on streams meanwhile may
    // wait for it.
    let host = planned.iter().any(is_for_caller).then(Stream::new).transpose()?;
    let mut enqueued = Vec::new();
    let requests = planned.into_iter().zip(uncut).map(|(planned, pieces)| match planned {
        Planned::Host(request) => {
            skip(&request, &mut plans);
            HostRequest { stream: request.stream.or_else(|| host.clone()), ..request }
        }
        Planned::Cuda(planned) => {
            enqueued.push(planned.enqueued());
            staged(planned, pieces, &mut plans)
        }
    });
    let requests = requests.collect();
    let (begun, _nothing_here) = begin(requests);
    let put = put_all(&mut plans).map_err(|error| {
        let faults: Vec<_> = enqueued.iter().map(|one| one.fail("not enqueued", &error)).collect();
        for plan in &mut plans {
            plan.cuda.release();
            plan.end_failed_series();
        }
        faults.into_iter().next().unwrap_or(error)
    });
    drop((plans, enqueuing));
    // A thread that aborted meanwhile may not have released the values issued here.
    for one in enqueued.iter().filter(|one| one.communicator.is_aborted()) {
        if let Some(cuda) = one.communicator.cuda.get() {
            cuda.release();
        }
    }
    // Also after a failure: an operation may use the caller's memory until it has completed.
    let on_host = host.map_or(Ok(()), |host| host.synchronize());
    put.and(begun).and(on_host).and(wait_for_all(&blocking))
}

/// Waits until all operations have completed, and copies out the results of communicators that have
/// not failed.
fn wait_for_all(blocking: &[Blocking]) -> Result<()> {
    let mut failed: Vec<&Arc<CudaState>> = Vec::new();
    let mut result = Ok(());
    for one in blocking {
        let executed = one.cuda.worker().synchronize();
        if executed.is_err() {
            failed.push(&one.cuda);
        }
        result = result.and(executed);
    }
    let has_failed = |one: &Blocking| {
        one.enqueued.communicator.fault().is_some()
            || failed.iter().any(|cuda| Arc::ptr_eq(cuda, &one.cuda))
    };
    for one in blocking.iter().filter(|one| !has_failed(one)) {
        result = result.and(one.store());
    }
    result
}

/// The states of all communicators that are enqueued for, in the same order in all threads.
fn cudas_of(requests: &[(HostRequest, Option<OnCuda>)]) -> Vec<Arc<CudaState>> {
    let on_cuda = requests.iter().filter(|(_, on)| on.is_some());
    let cudas = on_cuda.filter_map(|(request, _)| request.communicator.cuda.get().cloned());
    let mut cudas: Vec<_> = cudas.filter(|cuda| cuda.device().is_ok()).collect();
    cudas.sort_by_key(|cuda| Arc::as_ptr(cuda).addr());
    cudas.dedup_by(|one, other| Arc::ptr_eq(one, other));
    cudas
}

/// Chooses the route of a request and its layouts, before anything begins. `may_hold`: whether
/// streams may wait for this process.
fn plan(
    request: HostRequest,
    on: Option<OnCuda>,
    cudas: &[Arc<CudaState>],
    may_hold: bool,
) -> Result<Planned> {
    let Some(OnCuda { stream, device }) = on else { return Ok(Planned::Host(request)) };
    let HostRequest { communicator, mut work, .. } = request;
    if communicator.check_open(&communicator.lock(), &work.describe()).is_err() {
        // It will get no sequence number and fail alone: the others of the group are executed.
        let request = HostRequest { communicator, stream: None, is_for_caller: true, work };
        return Ok(Planned::Host(request));
    }
    let own = communicator.cuda.get();
    let plan = cudas.iter().position(|cuda| own.is_some_and(|own| Arc::ptr_eq(cuda, own)));
    let (Some(cuda), Some(plan)) = (own, plan) else {
        return Err(Error::Aborted); // after `check_open`
    };
    cuda.device()?.enter()?.check_not_capturing(stream)?;
    let (me, device) = (communicator.me(), &device);
    let mut cut = None;
    let mut layouts = match &mut work {
        Work::Collective(op) => {
            cut = Cut::of(op, me);
            match cut {
                Some(cut) => (0..cut.pieces)
                    .map(|index| StagingLayout::of(&cut.piece(op, index), me, device))
                    .collect(),
                None => vec![StagingLayout::of(op, me, device)],
            }
        }
        Work::Send(outgoing) => vec![StagingLayout::of_outgoing(outgoing, device)],
        Work::Recv(incoming) => vec![StagingLayout::of_incoming(incoming, device)],
        Work::Other(_) => unreachable!("no caller submits such work"),
    };
    let cuda = &cudas[plan];
    let route = match cuda.staging().filter(|_| may_hold) {
        None => Route::Blocking,
        // Pieces fit by construction.
        Some(_) if cut.is_some() => Route::Ring,
        Some(staging) if layouts[0].bytes <= staging.slot_bytes() && work.message().is_none() => {
            Route::Ring
        }
        Some(_) => Route::Whole,
    };
    if route == Route::Blocking && cut.is_some() {
        if let Work::Collective(op) = &work {
            layouts = vec![StagingLayout::of(op, me, device)];
        }
        cut = None; // it is cut when it is executed
    }
    Ok(Planned::Cuda(PlannedOnCuda { communicator, plan, stream, work, cut, layouts, route }))
}

/// Stages the operations that are not cut, before those of the ring. Returns the one piece of each,
/// and none for a request on host memory or on the ring.
fn stage_uncut(
    planned: &mut [Planned],
    plans: &mut [CommPlan<'_>],
    blocking: &mut Vec<Blocking>,
) -> Result<Vec<VecDeque<StagedPiece>>> {
    let pieces = planned.iter_mut().map(|planned| match planned {
        Planned::Cuda(planned) if planned.route != Route::Ring => {
            let piece = stage_one(planned, &mut plans[planned.plan], blocking)?;
            Ok([piece].into())
        }
        _ => Ok(VecDeque::new()),
    });
    pieces.collect()
}

/// Reserves pinned memory for an operation. If that does not suffice, copies its data in here.
fn stage_one(
    planned: &mut PlannedOnCuda,
    plan: &mut CommPlan<'_>,
    blocking: &mut Vec<Blocking>,
) -> Result<StagedPiece> {
    let layout = planned.layouts.pop().expect("an uncut operation has one layout");
    let start = plan.taken.next_multiple_of(64);
    if let (Route::Whole, Some(staging)) = (planned.route, plan.cuda.staging()) {
        let all = staging.whole();
        if start + layout.bytes <= all.len() {
            plan.taken = start + layout.bytes;
            let range = all.start + start..all.start + start + layout.bytes;
            let value = plan.whole_on(planned.stream, &layout, range.start);
            return Ok(StagedPiece { layout, host: StagedMemory::Pinned { value, range } });
        }
        planned.route = Route::Blocking;
        plan.cuda.log_that_callers_wait(layout.bytes);
    }
    let memory = plan.fetched(&planned.communicator, planned.stream, &layout)?;
    let memory = Arc::new(Mutex::new(memory));
    blocking.push(Blocking {
        enqueued: planned.enqueued(),
        cuda: Arc::clone(plan.cuda),
        stream: planned.stream,
        memory: Arc::clone(&memory),
        store: layout.store.clone(),
    });
    Ok(StagedPiece { layout, host: StagedMemory::Plain(memory) })
}

/// The request as the worker of the communicator executes it.
fn staged(
    planned: PlannedOnCuda,
    mut pieces: VecDeque<StagedPiece>,
    plans: &mut [CommPlan<'_>],
) -> HostRequest {
    let PlannedOnCuda { communicator, plan, stream, work, cut, layouts, route } = planned;
    let plan = &mut plans[plan];
    match route {
        Route::Ring => pieces = plan.ring(stream, layouts),
        Route::Whole | Route::Blocking => plan.skip(&work, communicator.me()),
    }
    let worker = Some(Arc::clone(plan.cuda.worker()));
    let work = Work::Other(Box::new(Staged::new(work, cut, pieces, plan.cuda.holds)));
    HostRequest { communicator, stream: worker, is_for_caller: false, work }
}

/// Takes the turns of a request that is on host memory here.
fn skip(request: &HostRequest, plans: &mut [CommPlan<'_>]) {
    let own = request.communicator.cuda.get();
    let plan = plans.iter_mut().find(|plan| own.is_some_and(|own| Arc::ptr_eq(plan.cuda, own)));
    if let Some(plan) = plan {
        plan.skip(&request.work, request.communicator.me());
    }
}

/// Puts everything on streams.
fn put_all(plans: &mut [CommPlan<'_>]) -> Result<()> {
    plans.iter_mut().try_for_each(CommPlan::begin)?;
    interleave(plans)?;
    plans.iter_mut().try_for_each(CommPlan::end)
}

/// Puts the steps of all plans on streams, in turns. Ranks may then name their communicators in any
/// order: no wait for one communicator precedes a copy that another rank needs to complete that
/// wait. A turn waits for data that an earlier turn has copied in, so all ranks must count the same
/// turns, also for collectives that take another route here.
fn interleave(plans: &mut [CommPlan<'_>]) -> Result<()> {
    let mut is_first = true;
    while plans.iter().any(|plan| !plan.steps.is_empty()) {
        for plan in plans.iter_mut().filter(|plan| !plan.steps.is_empty()) {
            plan.take_turn(is_first)?;
        }
        is_first = false;
    }
    Ok(())
}

impl PlannedOnCuda {
    fn enqueued(&self) -> Enqueued {
        Enqueued { communicator: Arc::clone(&self.communicator), what: self.work.describe() }
    }
}

impl Enqueued {
    /// Fails the communicator. Returns the error to report to the caller.
    fn fail(&self, how: &str, cause: &Error) -> Error {
        self.communicator.fail_on_device(&format!("{}, {how}", self.what), cause)
    }
}

impl<'a> CommPlan<'a> {
    fn new(cuda: &'a Arc<CudaState>) -> Result<Self> {
        let (device, order) = (cuda.device()?, cuda.lock());
        Ok(Self { cuda, device, order, whole: Vec::new(), taken: 0, steps: VecDeque::new() })
    }

    /// Waits for the stream, and copies the data of an operation into memory that is not pinned.
    fn fetched(
        &mut self,
        communicator: &Communicator,
        stream: CudaStream,
        layout: &StagingLayout,
    ) -> Result<Vec<u8>> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(layout.bytes).map_err(|_| Error::out_of_memory(layout.bytes))?;
        memory.resize(layout.bytes, 0);
        let entered = self.device.enter()?;
        self.order.continue_on(stream, &entered)?;
        wait_for_stream(communicator, &entered, stream)?;
        let base = memory.as_mut_ptr().addr() as u64;
        copy_all(&entered, &layout.fetch, base, Towards::Host, stream)?;
        entered.synchronize(stream)?;
        self.order.clear();
        Ok(memory)
    }

    /// Adds the copies of an operation to those of the route Whole on this stream. Returns the
    /// value that they share.
    fn whole_on(
        &mut self,
        stream: CudaStream,
        layout: &StagingLayout,
        start: usize,
    ) -> Arc<PendingValue> {
        let staging = self.cuda.staging().expect("the route Whole needs a staging buffer");
        let index =
            self.whole.iter().position(|whole| whole.stream == stream).unwrap_or_else(|| {
                let value = staging.issue(Timeline::Whole);
                self.whole.push(Whole { stream, value, fetch: Vec::new(), store: Vec::new() });
                self.whole.len() - 1
            });
        let whole = &mut self.whole[index];
        whole.fetch.extend(layout.fetch.iter().map(|rows| rows.moved(start)));
        whole.store.extend(layout.store.iter().map(|rows| rows.moved(start)));
        Arc::clone(&whole.value)
    }

    /// Adds the steps of pieces to the ring. A slot is reused when the result in it was copied out.
    fn ring(&mut self, stream: CudaStream, layouts: Vec<StagingLayout>) -> VecDeque<StagedPiece> {
        let staging = self.cuda.staging().expect("it has a ring");
        let mut backs = VecDeque::new();
        let mut pieces = VecDeque::new();
        for (index, layout) in layouts.into_iter().enumerate() {
            if index >= SLOTS {
                self.steps.extend(backs.pop_front());
            }
            let (value, range) = (staging.issue(Timeline::Pieces), staging.slot(index));
            let moved =
                |rows: &[CopyRows]| rows.iter().map(|rows| rows.moved(range.start)).collect();
            self.steps.push_back(EnqueueStep::Front(stream, value.point, moved(&layout.fetch)));
            backs.push_back(EnqueueStep::Back(stream, value.point, moved(&layout.store)));
            pieces.push_back(StagedPiece { layout, host: StagedMemory::Pinned { value, range } });
        }
        self.steps.extend(backs);
        pieces
    }

    /// Adds the turns of a collective that takes another route than the ring here.
    fn skip(&mut self, work: &Work<'_>, me: RankOf) {
        if let Work::Collective(op) = work {
            let turns = Cut::of(op, me).map_or(1, |cut| cut.pieces);
            self.steps.extend((0..turns).map(|_| EnqueueStep::Skipped));
        }
    }

    /// Enqueues the copies in of the route Whole.
    fn begin(&mut self) -> Result<()> {
        let device = Arc::clone(&self.device);
        let entered = device.enter()?;
        for index in 0..self.whole.len() {
            let Whole { stream, ref value, ref fetch, .. } = self.whole[index];
            let step = EnqueueStep::Front(stream, value.point, fetch.clone());
            self.put(&entered, step)?;
        }
        Ok(())
    }

    /// Enqueues the steps up to the next wait. Except in the first turn, enqueues the wait before
    /// them first.
    fn take_turn(&mut self, is_first: bool) -> Result<()> {
        let device = Arc::clone(&self.device);
        let entered = device.enter()?;
        if !is_first && let Some(back) = self.steps.pop_front() {
            self.put(&entered, back)?;
        }
        while let Some(EnqueueStep::Front(..)) = self.steps.front()
            && let Some(front) = self.steps.pop_front()
        {
            self.put(&entered, front)?;
        }
        Ok(())
    }

    /// Enqueues the copies out of the route Whole, and ends the series of steps.
    fn end(&mut self) -> Result<()> {
        let device = Arc::clone(&self.device);
        let entered = device.enter()?;
        for whole in std::mem::take(&mut self.whole) {
            let step = EnqueueStep::Back(whole.stream, whole.value.point, whole.store);
            drop(whole.value); // the pieces hold it too
            self.put(&entered, step)?;
        }
        self.cuda.end_series(&mut self.order, &entered)
    }

    fn end_failed_series(&mut self) {
        self.cuda.end_failed_series(&mut self.order, &self.device);
    }

    fn put(&mut self, entered: &EnteredContext<'_>, step: EnqueueStep) -> Result<()> {
        let Some(staging) = self.cuda.staging() else { return Ok(()) }; // every step is skipped
        let base = staging.device_address(0);
        match step {
            EnqueueStep::Front(stream, point, fetch) => {
                self.order.continue_on(stream, entered)?;
                copy_all(entered, &fetch, base, Towards::Host, stream)?;
                entered.write_value(staging.start(point), point.value, stream)
            }
            EnqueueStep::Back(stream, point, store) => {
                self.order.continue_on(stream, entered)?;
                entered.wait_value(staging.done(point), point.value, stream)?;
                copy_all(entered, &store, base, Towards::Device, stream)
            }
            EnqueueStep::Skipped => Ok(()),
        }
    }
}

/// Waits until the stream has executed all enqueued work, at most for the timeout of a call. A copy
/// from or to memory that is not pinned would wait for it inside the driver, without a limit.
fn wait_for_stream(
    communicator: &Communicator,
    entered: &EnteredContext<'_>,
    stream: CudaStream,
) -> Result<()> {
    let limit = communicator.config.op_timeout;
    let until = Instant::now() + limit;
    while !entered.is_idle(stream)? {
        if let Some(fault) = communicator.fault() {
            return Err(communicator.as_reported(fault));
        }
        if Instant::now() >= until {
            let blame = "the stream has not reached it".to_owned();
            return Err(Error::Timeout { limit_ms: limit.as_millis(), blame });
        }
        std::thread::sleep(STREAM_POLL);
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Towards {
    Host,
    Device,
}

fn copy_all(
    entered: &EnteredContext<'_>,
    rows: &[CopyRows],
    base: u64,
    towards: Towards,
    stream: CudaStream,
) -> Result<()> {
    for rows in rows {
        let CopyRows { device, device_pitch, host, host_pitch, width, count } = *rows;
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

impl Blocking {
    /// Copies the result out while the caller waits. Other ranks have completed the operation by
    /// now.
    fn store(&self) -> Result<()> {
        if self.store.is_empty() {
            return Ok(());
        }
        let device = self.cuda.device()?;
        let mut order = self.cuda.lock();
        self.try_store(&mut order, &device).map_err(|error| {
            self.cuda.end_failed_series(&mut order, &device);
            self.enqueued.fail("its result not stored", &error)
        })
    }

    fn try_store(&self, order: &mut Order, device: &Device) -> Result<()> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = device.enter()?;
        order.continue_on(self.stream, &entered)?;
        wait_for_stream(&self.enqueued.communicator, &entered, self.stream)?;
        let base = memory.as_ptr().addr() as u64;
        copy_all(&entered, &self.store, base, Towards::Device, self.stream)?;
        entered.synchronize(self.stream)?;
        order.clear();
        Ok(())
    }
}
