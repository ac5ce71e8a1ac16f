//! Calls of the C API in any order, on a communicator of one rank, with valid and invalid handles,
//! counts, codes and pointers.
//!
//! A buffer is as long as the call's arguments say, or they say a length that must be refused.
//! Findings are a panic, a write outside the call's buffers, and a text that is not UTF-8.
#![cfg_attr(fuzzing, no_main)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use arbitrary::Arbitrary;
use nexar::capi::collective::*;
use nexar::capi::comm::*;
use nexar::capi::group::{nexarGroupEnd, nexarGroupStart};
use nexar::capi::memory::*;
use nexar::capi::message::*;
use nexar::capi::redop::*;
use nexar::capi::split::nexarCommSplit;
use nexar::capi::stream::*;
use nexar::capi::types::*;
use nexar::capi::varying::*;
use nexar::capi::version::*;
use nexar::error::Code;
use nexar_fuzz::arena::{Arena, BufferStart, Count};
use nexar_fuzz::c_api::{created, keep_left, no_panic, text};
use nexar_fuzz::fuzz_target;

const MOST_CALLS: usize = 32;
/// Short, because a receive without a send waits for this timeout.
const OP_TIMEOUT_MS: c_int = 3;

#[derive(Arbitrary, Debug)]
struct Step {
    call: Call,
    comm: Handle,
    stream: Handle,
    send: BufferStart,
    recv: BufferStart,
    count: Count,
    other_count: Count,
    displacement: Count,
    datatype: Number,
    op: Number,
    peer: Number,
    tag: Number,
    /// Which pointers to arrays and to results are NULL.
    nulls: [bool; 3],
    config: Option<Settings>,
}

#[derive(Arbitrary, Debug)]
enum Call {
    AllReduce,
    Reduce,
    Broadcast,
    Bcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
    Scan,
    ExScan,
    Barrier,
    Bucketed,
    AllGatherV,
    ReduceScatterV,
    AllToAllV,
    GatherV,
    ScatterV,
    Send,
    SendTag,
    Recv,
    RecvTag,
    SendRecv,
    RecvTagStatus,
    ProbeTag,
    InitAll,
    InitRank,
    InitRankConfig([u8; 16]),
    InitFromEnv,
    Split,
    Query,
    Finalize,
    Destroy,
    Abort,
    PreMulSum,
    RedOpCreate,
    RedOpDestroy,
    StreamCreate,
    StreamSynchronize,
    StreamQuery,
    StreamDestroy,
    GroupStart,
    GroupEnd,
    MemAlloc,
    MemFree,
    Register,
    Deregister,
    Texts,
}

/// A handle that was created in this run, even if it is destroyed by now; or NULL; or a number.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Handle {
    Created(u8),
    Null,
    Foreign(u64),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Small(u8),
    Any(i32),
    /// The operator that was created last.
    Latest,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Settings {
    size: Count,
    magic_is_right: bool,
    blocking: Number,
    timeout: Number,
    share: Number,
    is_named: bool,
}

/// The objects that the run has created, and its open group.
#[derive(Default)]
struct Run {
    comms: Vec<nexarComm_t>,
    streams: Vec<nexarStream_t>,
    operators: Vec<c_int>,
    memory: Vec<*mut c_void>,
    registrations: Vec<*mut c_void>,
    depth: usize,
    /// The buffers of calls in the open group, which complete at its end.
    grouped: Vec<Box<Arena>>,
    /// The status of each receive, which may be written at the end of the group.
    statuses: Vec<Box<nexarStatus_t>>,
    /// The handles of splits in the open group, which are written at its end.
    pending_splits: Vec<Box<nexarComm_t>>,
}

fuzz_target!(
    init: {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("NEXAR_OP_TIMEOUT_MS", OP_TIMEOUT_MS.to_string()) };
    },
    |steps: Vec<Step>| {
        let mut run = Run::default();
        run.begin();
        for step in steps.into_iter().take(MOST_CALLS) {
            run.step(&step);
        }
        run.end();
    }
);

impl Run {
    fn begin(&mut self) {
        let mut comm = null_mut();
        // SAFETY: `comm` has room for one handle.
        assert_eq!(unsafe { nexarCommInitAll(&raw mut comm, 1, null()) }, Code::Success);
        self.comms.push(comm);
    }

    /// Ends groups, and destroys or frees all that was created.
    fn end(&mut self) {
        while self.depth > 0 {
            self.group_end();
        }
        for stream in &self.streams {
            no_panic(nexarStreamDestroy(*stream));
        }
        for comm in &self.comms {
            no_panic(nexarCommDestroy(*comm));
        }
        for memory in &self.memory {
            // SAFETY: nothing uses the memory, and a second free is refused.
            no_panic(unsafe { nexarMemFree(*memory) });
        }
        assert_eq!(nexarGroupEnd(), Code::InvalidUsage, "no group is open");
    }

    fn group_end(&mut self) -> Code {
        let code = no_panic(nexarGroupEnd());
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 {
            self.settle();
            for arena in std::mem::take(&mut self.grouped) {
                arena.check();
            }
            self.comms
                .extend(std::mem::take(&mut self.pending_splits).into_iter().map(|comm| *comm));
        }
        code
    }

    /// Waits for the calls that are queued on streams.
    fn settle(&self) {
        for stream in &self.streams {
            no_panic(nexarStreamSynchronize(*stream));
        }
    }

    fn comm(&self, handle: Handle) -> nexarComm_t {
        match handle {
            Handle::Created(which) => created(&self.comms, which).unwrap_or(null_mut()),
            Handle::Null => null_mut(),
            Handle::Foreign(number) => without_provenance_mut(number as usize),
        }
    }

    /// NULL most of the time, because a run creates few streams.
    fn stream(&self, handle: Handle) -> nexarStream_t {
        match handle {
            Handle::Created(which) => created(&self.streams, which).unwrap_or(null_mut()),
            Handle::Null => null_mut(),
            Handle::Foreign(number) => without_provenance_mut(number as usize),
        }
    }

    fn number(&self, number: Number) -> c_int {
        match number {
            Number::Small(number) => c_int::from(number) % 40 - 1,
            Number::Any(number) => number,
            Number::Latest => self.operators.last().copied().unwrap_or(0),
        }
    }

    fn step(&mut self, step: &Step) {
        let mut arena = Box::new(Arena::new());
        let code = match step.call {
            Call::Send
            | Call::SendTag
            | Call::Recv
            | Call::RecvTag
            | Call::RecvTagStatus
            | Call::SendRecv => self.message(step, &mut arena),
            Call::ProbeTag => self.probe(step),
            Call::Bucketed => self.bucketed(step, &mut arena),
            Call::AllGatherV
            | Call::ReduceScatterV
            | Call::AllToAllV
            | Call::GatherV
            | Call::ScatterV => self.varying(step, &mut arena),
            Call::InitAll
            | Call::InitRank
            | Call::InitRankConfig(_)
            | Call::InitFromEnv
            | Call::Split
            | Call::Query
            | Call::Finalize
            | Call::Destroy
            | Call::Abort => self.communicator(step),
            Call::PreMulSum | Call::RedOpCreate | Call::RedOpDestroy => {
                self.operator(step, &mut arena)
            }
            Call::StreamCreate
            | Call::StreamSynchronize
            | Call::StreamQuery
            | Call::StreamDestroy => self.streaming(step),
            Call::GroupStart => {
                self.depth += 1;
                nexarGroupStart()
            }
            Call::GroupEnd => self.group_end(),
            Call::MemAlloc | Call::MemFree | Call::Register | Call::Deregister => {
                self.memory_and_registration(step)
            }
            Call::Texts => self.texts(step),
            _ => self.collective(step, &mut arena),
        };
        no_panic(code);
        if self.depth > 0 {
            // Calls in a group may use the arena until the group ends.
            self.grouped.push(arena);
            return;
        }
        self.settle();
        if code == Code::InvalidArgument {
            arena.may_write_nothing();
        }
        arena.check();
    }

    fn collective(&mut self, step: &Step, arena: &mut Arena) -> Code {
        let (comm, stream) = (self.comm(step.comm), self.stream(step.stream));
        let (datatype, op) = (self.number(step.datatype), self.number(step.op));
        let (count, root) = (step.count.get(), self.number(step.peer));
        let (send, recv) = (arena.pointer(step.send), arena.pointer(step.recv));
        arena.may_write(step.recv, 0, count, datatype);
        // SAFETY: both buffers are as long as the arguments say, NULL, or must be refused.
        unsafe {
            match step.call {
                Call::AllReduce => nexarAllReduce(send, recv, count, datatype, op, comm, stream),
                Call::Reduce => nexarReduce(send, recv, count, datatype, op, root, comm, stream),
                Call::Broadcast => nexarBroadcast(send, recv, count, datatype, root, comm, stream),
                Call::Bcast => nexarBcast(recv, count, datatype, root, comm, stream),
                Call::AllGather => nexarAllGather(send, recv, count, datatype, comm, stream),
                Call::ReduceScatter => {
                    nexarReduceScatter(send, recv, count, datatype, op, comm, stream)
                }
                Call::AllToAll => nexarAllToAll(send, recv, count, datatype, comm, stream),
                Call::Gather => nexarGather(send, recv, count, datatype, root, comm, stream),
                Call::Scatter => nexarScatter(send, recv, count, datatype, root, comm, stream),
                Call::Scan => nexarScan(send, recv, count, datatype, op, comm, stream),
                Call::ExScan => nexarExScan(send, recv, count, datatype, op, comm, stream),
                _ => nexarBarrier(comm, stream),
            }
        }
    }

    fn bucketed(&mut self, step: &Step, arena: &mut Arena) -> Code {
        let (comm, stream) = (self.comm(step.comm), self.stream(step.stream));
        let (datatype, op) = (self.number(step.datatype), self.number(step.op));
        let buffs = [arena.pointer(step.send), arena.pointer(step.recv)];
        let counts = [step.count.get(), step.other_count.get()];
        arena.may_write(step.send, 0, counts[0], datatype);
        arena.may_write(step.recv, 0, counts[1], datatype);
        let [no_buffs, no_counts, _] = step.nulls;
        // A count of buffers that memory cannot hold, only with NULL for the counts.
        let nbuffs = match step.displacement {
            Count::Small(count) => usize::from(count) % 3,
            Count::Huge(_) if no_counts => step.displacement.get(),
            Count::Huge(_) => 2,
        };
        let buffs = if no_buffs { null() } else { buffs.as_ptr() };
        let counts = if no_counts { null() } else { counts.as_ptr() };
        // SAFETY: the arrays have two elements and are read at once; the buffers are as long as
        // said.
        unsafe { nexarAllReduceBucketed(buffs, counts, nbuffs, datatype, op, comm, stream) }
    }

    fn varying(&mut self, step: &Step, arena: &mut Arena) -> Code {
        let (comm, stream) = (self.comm(step.comm), self.stream(step.stream));
        let (datatype, op) = (self.number(step.datatype), self.number(step.op));
        let root = self.number(step.peer);
        let (send, recv) = (arena.pointer(step.send), arena.pointer(step.recv));
        let (count, counts) = (step.other_count.get(), [step.count.get()]);
        let displacements = [step.displacement.get()];
        let [no_counts, no_sent, no_displacements] = step.nulls;
        let pointer =
            |is_null: bool, array: &[usize; 1]| if is_null { null() } else { array.as_ptr() };
        let recvcounts = pointer(no_counts, &counts);
        let displs = pointer(no_displacements, &displacements);
        let first = if no_displacements { 0 } else { displacements[0] };
        // The own count of a scatter is that of its receive buffer; its blocks are those sent.
        match step.call {
            Call::ScatterV => arena.may_write(step.recv, 0, count, datatype),
            Call::ReduceScatterV => arena.may_write(step.recv, 0, counts[0], datatype),
            _ => arena.may_write(step.recv, first, counts[0], datatype),
        }
        // SAFETY: the arrays have one element and are read at once; the buffers are as long as
        // said.
        unsafe {
            match step.call {
                Call::AllGatherV => {
                    nexarAllGatherV(send, count, recv, recvcounts, displs, datatype, comm, stream)
                }
                Call::ReduceScatterV => {
                    nexarReduceScatterV(send, recv, recvcounts, datatype, op, comm, stream)
                }
                Call::AllToAllV => {
                    let sent = [count];
                    let sendcounts = pointer(no_sent, &sent);
                    nexarAllToAllV(
                        send, sendcounts, displs, recv, recvcounts, displs, datatype, comm, stream,
                    )
                }
                Call::GatherV => nexarGatherV(
                    send, count, recv, recvcounts, displs, datatype, root, comm, stream,
                ),
                _ => nexarScatterV(
                    send, recvcounts, displs, recv, count, datatype, root, comm, stream,
                ),
            }
        }
    }

    fn message(&mut self, step: &Step, arena: &mut Arena) -> Code {
        let (comm, stream) = (self.comm(step.comm), self.stream(step.stream));
        let datatype = self.number(step.datatype);
        let (peer, tag) = (self.number(step.peer), self.number(step.tag));
        let (count, other) = (step.count.get(), step.other_count.get());
        let (send, recv) = (arena.pointer(step.send), arena.pointer(step.recv));
        // SAFETY: both buffers are as long as the arguments say, NULL, or must be refused.
        unsafe {
            match step.call {
                Call::Send => nexarSend(send, count, datatype, peer, comm, stream),
                Call::SendTag => nexarSendTag(send, count, datatype, peer, tag, comm, stream),
                Call::Recv => {
                    arena.may_write(step.recv, 0, count, datatype);
                    nexarRecv(recv, count, datatype, peer, comm, stream)
                }
                Call::RecvTag => {
                    arena.may_write(step.recv, 0, count, datatype);
                    nexarRecvTag(recv, count, datatype, peer, tag, comm, stream)
                }
                Call::RecvTagStatus => {
                    arena.may_write(step.recv, 0, count, datatype);
                    self.statuses.push(Box::new(self.status(other)));
                    let out = match self.statuses.last_mut() {
                        Some(status) if !step.nulls[0] => &raw mut **status,
                        _ => null_mut(),
                    };
                    nexarRecvTagStatus(recv, count, datatype, peer, tag, out, comm, stream)
                }
                _ => {
                    arena.may_write(step.recv, 0, other, datatype);
                    let source = self.number(step.tag);
                    nexarSendRecv(send, count, peer, recv, other, source, datatype, comm, stream)
                }
            }
        }
    }

    fn probe(&mut self, step: &Step) -> Code {
        let comm = self.comm(step.comm);
        let (peer, tag) = (self.number(step.peer), self.number(step.tag));
        let (mut flag, mut status) = (c_int::MIN, self.status(step.other_count.get()));
        let flag_out: *mut c_int = if step.nulls[0] { null_mut() } else { &raw mut flag };
        let out = if step.nulls[1] { null_mut() } else { &raw mut status };
        // SAFETY: both are NULL or valid for writes.
        let code = unsafe { nexarProbeTag(peer, tag, flag_out, out, comm) };
        let wrote = code == Code::Success && !step.nulls[0];
        assert_eq!(flag == 0 || flag == 1, wrote, "flag is {flag}");
        assert!(code == Code::Success || status.source == c_int::MIN, "written although it failed");
        code
    }

    /// A status of the right size if `size` is 0.
    fn status(&self, size: usize) -> nexarStatus_t {
        let size = if size == 0 { size_of::<nexarStatus_t>() } else { size };
        nexarStatus_t { size, source: c_int::MIN, tag: 0, count: 0, datatype: 0 }
    }

    fn communicator(&mut self, step: &Step) -> Code {
        let comm = self.comm(step.comm);
        let config = step.config.map(|settings| self.config(settings));
        let config = config.as_ref().map_or(null(), |config| &raw const *config);
        let mut handle = Box::new(null_mut());
        let out: *mut nexarComm_t = if step.nulls[0] { null_mut() } else { &raw mut *handle };
        let (nranks, rank) = (self.number(step.peer), self.number(step.tag));
        let mut internal = [0; NEXAR_UNIQUE_ID_BYTES];
        if let Call::InitRankConfig(bytes) = step.call {
            internal[..16].copy_from_slice(&bytes.map(|byte| byte as c_char));
        }
        let id = nexarUniqueId { internal };
        // SAFETY: results are NULL or valid until the end of the group; the array has one element.
        let code = unsafe {
            match step.call {
                // There is room for one handle and one device, so a valid count must be 1.
                Call::InitAll => {
                    let devices = [rank];
                    let count = if (2..=256).contains(&nranks) { 1 } else { nranks };
                    let list = if step.nulls[1] { null() } else { devices.as_ptr() };
                    nexarCommInitAll(out, count, list)
                }
                Call::InitRank => nexarCommInitRank(out, nranks, id, rank),
                Call::InitRankConfig(_) => nexarCommInitRankConfig(out, nranks, id, rank, config),
                Call::InitFromEnv => nexarCommInitFromEnv(out),
                Call::Split => nexarCommSplit(comm, nranks, rank, out, config),
                Call::Finalize => nexarCommFinalize(comm),
                Call::Destroy => nexarCommDestroy(comm),
                Call::Abort => nexarCommAbort(comm),
                _ => return self.query(comm, step.nulls[0]),
            }
        };
        if matches!(step.call, Call::Split) && self.depth > 0 {
            self.pending_splits.push(handle);
            return code;
        }
        let created = matches!(code, Code::Success | Code::InProgress);
        assert!(created || handle.is_null(), "written although it failed");
        self.comms.extend(Some(*handle).filter(|comm| !comm.is_null()));
        code
    }

    fn query(&self, comm: nexarComm_t, is_null: bool) -> Code {
        let (mut number, mut state) = (c_int::MIN, Code::Success);
        let out: *mut c_int = if is_null { null_mut() } else { &raw mut number };
        // SAFETY: `out` is NULL or valid for writes.
        let codes = unsafe {
            [nexarCommCount(comm, out), nexarCommUserRank(comm, out), nexarCommCuDevice(comm, out)]
        };
        let wrote = codes.contains(&Code::Success);
        assert!(wrote || number == c_int::MIN, "written although it failed");
        codes.iter().for_each(|code| _ = no_panic(*code));
        // SAFETY: the pointer is NULL or valid for writes.
        unsafe { nexarCommGetAsyncError(comm, if is_null { null_mut() } else { &raw mut state }) }
    }

    fn config(&self, settings: Settings) -> nexarConfig_t {
        nexarConfig_t {
            size: match settings.size {
                Count::Small(0) => size_of::<nexarConfig_t>(),
                other => other.get(),
            },
            magic: if settings.magic_is_right { NEXAR_API_MAGIC } else { 0 },
            version: 0,
            blocking: self.number(settings.blocking),
            initTimeoutMs: self.number(settings.timeout),
            opTimeoutMs: self.number(settings.timeout).min(OP_TIMEOUT_MS),
            peerTimeoutMs: self.number(settings.timeout),
            splitShare: self.number(settings.share),
            name: if settings.is_named { c"name".as_ptr() } else { null() },
        }
    }

    fn operator(&mut self, step: &Step, arena: &mut Arena) -> Code {
        let comm = self.comm(step.comm);
        let (datatype, which) = (self.number(step.datatype), self.number(step.op));
        let mut op = 0;
        let out: *mut c_int = if step.nulls[0] { null_mut() } else { &raw mut op };
        // SAFETY: a scalar that is read later is static; any other is in the arena.
        let code = unsafe {
            match step.call {
                Call::PreMulSum => {
                    static RESIDENT: [u8; 8] = [1; 8];
                    let resident = RESIDENT.as_ptr().cast_mut().cast();
                    let scalar = match (arena.pointer(step.send), which) {
                        (scalar, _) if scalar.is_null() => scalar,
                        (scalar, 1) => scalar,
                        _ => resident,
                    };
                    nexarRedOpCreatePreMulSum(out, scalar, datatype, which, comm)
                }
                Call::RedOpCreate => {
                    let fold = (!step.nulls[1]).then_some(keep_left as _);
                    nexarRedOpCreate(out, fold, null_mut(), which, comm)
                }
                _ => nexarRedOpDestroy(which, comm),
            }
        };
        assert!(code == Code::Success || op == 0, "written although it failed");
        self.operators.extend(Some(op).filter(|op| *op != 0));
        code
    }

    fn streaming(&mut self, step: &Step) -> Code {
        let stream = self.stream(step.stream);
        match step.call {
            // Each stream is a thread, so there are few.
            Call::StreamCreate if self.streams.len() < 3 => {
                let mut created = null_mut();
                let out: *mut nexarStream_t =
                    if step.nulls[0] { null_mut() } else { &raw mut created };
                // SAFETY: `out` is NULL or valid for writes.
                let code = unsafe { nexarStreamCreate(out) };
                self.streams.extend(Some(created).filter(|created| !created.is_null()));
                code
            }
            Call::StreamSynchronize => nexarStreamSynchronize(stream),
            Call::StreamDestroy => nexarStreamDestroy(stream),
            _ => nexarStreamQuery(stream),
        }
    }

    fn memory_and_registration(&mut self, step: &Step) -> Code {
        let comm = self.comm(step.comm);
        let mut created = null_mut();
        let out: *mut *mut c_void = if step.nulls[0] { null_mut() } else { &raw mut created };
        let of = |all: &[*mut c_void]| match step.stream {
            Handle::Created(which) => self::created(all, which).unwrap_or(null_mut()),
            Handle::Null => null_mut(),
            Handle::Foreign(number) => without_provenance_mut(number as usize),
        };
        let (memory, registration) = (of(&self.memory), of(&self.registrations));
        // SAFETY: `out` is NULL or valid for writes; nothing uses the memory.
        unsafe {
            match step.call {
                Call::MemAlloc => {
                    let code = nexarMemAlloc(out, step.count.get());
                    self.memory.extend(Some(created).filter(|created| !created.is_null()));
                    code
                }
                Call::MemFree => nexarMemFree(memory),
                Call::Register => {
                    let code = nexarCommRegister(comm, memory, step.count.get(), out);
                    self.registrations.extend(Some(created).filter(|created| !created.is_null()));
                    code
                }
                _ => nexarCommDeregister(comm, registration),
            }
        }
    }

    fn texts(&self, step: &Step) -> Code {
        text(nexarGetLastError(self.comm(step.comm)));
        text(nexarGetErrorString(self.number(step.peer)));
        let mut version = 0;
        // SAFETY: the pointer is NULL or valid for writes.
        unsafe { nexarGetVersion(if step.nulls[0] { null_mut() } else { &raw mut version }) }
    }
}
