//! A member of a communicator that opens any streams and sends any bytes on them, while the other
//! rank makes calls.
//!
//! Both are in this process, over real QUIC: rank 1 is a communicator, rank 0 is the fuzzer with
//! the key of rank 0. Every input has connections of its own. Findings are a panic, too much
//! memory, and a call that does not end although its peer is lost.
#![cfg_attr(fuzzing, no_main)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arbitrary::Arbitrary;
use nexar::blocks::Blocks;
use nexar::buffer::Buffers;
use nexar::comm::{ColorKey, Communicator, SplitRequest, create_on, split};
use nexar::config::Config;
use nexar::dtype::{DataType, ElementType};
use nexar::error::{Code, Result};
use nexar::message::{Envelope, Incoming, Outgoing, RecvCall, RecvCount, Tag, Wanted, WantedTag};
use nexar::op::{Call, Counts, Fold, Op, RedOp, Reducer, Reduction};
use nexar::rank::Rank;
use nexar::transport::key::{Identity, PublicKey, Secret};
use nexar::transport::quic::control::{EnteredCall, Frame};
use nexar::transport::quic::endpoint::Endpoint;
use nexar::transport::quic::preamble::Preamble;
use nexar::transport::quic::{ContextId, Member, Plan};
use nexar::transport::{CallHistory, ControlMessage, Header, LANES, Lane, Protocol, process};
use nexar_fuzz::{fuzz_target, is_failure};
use quinn::{Connection, SendStream, VarInt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

const DTYPE: ElementType = ElementType::Known(DataType::Int32);
/// Much longer than any wait may last after the peer is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// The tasks of an input end soon after it. More tasks than this are a leak.
const MOST_TASKS: usize = 20_000;
const MOST_CALLS: usize = 4;
const MOST_ACTIONS: usize = 24;
/// Not more than a peer may open without waiting.
const MOST_STREAMS: usize = 12;

/// The calls of rank 1, and the actions of rank 0 meanwhile.
#[derive(Arbitrary, Debug)]
struct Session {
    calls: Vec<ApiCall>,
    actions: Vec<Action>,
    close_code: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum ApiCall {
    Barrier,
    AllReduce { count: u16 },
    Broadcast { count: u16, from_peer: bool },
    AllGather { count: u8 },
    ReduceScatter { count: u8 },
    Split { color: u8 },
    Send { count: u16, tag: Option<u8>, synchronous: bool },
    Recv { count: u16, tag: Option<u8>, from_any: bool },
}

#[derive(Arbitrary, Debug)]
enum Action {
    Open(Opening),
    Write {
        stream: u8,
        data: Data,
    },
    Finish {
        stream: u8,
    },
    Reset {
        stream: u8,
    },
    /// Lets rank 1 work.
    Pause,
}

#[derive(Arbitrary, Debug)]
enum Opening {
    Control,
    Data { lane: u8, context: Named },
    ControlMessages { context: Named },
    Payload { context: Named, id: u8 },
    Anything(Vec<u8>),
}

/// The id of a context: the communicator's own, or any number.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Named {
    Ours,
    Other(u64),
}

#[derive(Arbitrary, Debug)]
enum Data {
    Bytes(Vec<u8>),
    Zeros(u16),
    /// A header for one of rank 1's calls, correct or not.
    Header {
        call: u8,
        seq: Option<u64>,
        step: u8,
        bytes: Option<u64>,
    },
    Heartbeat {
        context: Named,
        call: u8,
        seq: u64,
    },
    Fault {
        context: Named,
        text: String,
    },
    Leave {
        context: Named,
    },
    Bye,
    Welcome,
    Message {
        id: u8,
        tag: Option<u8>,
        count: u16,
        protocol: u8,
    },
    Rendezvous {
        id: u8,
        count: u64,
    },
    ClearToSend {
        id: u8,
    },
    Credit {
        bytes: u32,
    },
}

struct World {
    runtime: Runtime,
    /// The endpoints of rank 0 and rank 1.
    endpoints: [Arc<Endpoint>; 2],
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let endpoints = {
        let _inside = runtime.enter();
        [(); 2].map(|()| Endpoint::open(&(0..=0), "any port").unwrap())
    };
    World { runtime, endpoints }
});

fuzz_target!(
    // Allocates the large buffers of sockets before the first input, so that they do not count.
    init: { LazyLock::force(&WORLD); },
    |session: Session| {
        WORLD.runtime.block_on(run(session));
        let tasks = WORLD.runtime.metrics().num_alive_tasks();
        assert!(tasks < MOST_TASKS, "{tasks} tasks were left behind");
    }
);

async fn run(mut session: Session) {
    session.calls.truncate(MOST_CALLS);
    session.actions.truncate(MOST_ACTIONS);
    let calls = session.calls.iter().filter_map(ApiCall::call).collect::<Vec<_>>();
    let (honest, peer) = connect().await;
    let context = peer.context;
    let calling = execute_calls(honest, session.calls);
    let attacking = async {
        let Peer { connection, .. } = peer;
        let mut attack = Attack { connection: &connection, context, calls, streams: Vec::new() };
        for action in session.actions {
            attack.execute(action).await;
        }
        // Lets the written bytes be sent.
        sleep(Duration::from_millis(1)).await;
        connection.close(VarInt::from_u32(session.close_code.into()), b"");
    };
    let both = async { tokio::join!(calling, attacking) };
    timeout(PATIENCE, both).await.expect("a call waits for a lost peer");
}

/// The fuzzer's side of the connection.
struct Peer {
    connection: Connection,
    context: ContextId,
}

/// Creates the communicator of rank 1 and connects the fuzzer to it as rank 0.
async fn connect() -> (Arc<Communicator>, Peer) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let nonce = NEXT.fetch_add(1, Ordering::Relaxed);
    let identity = |rank: u8| Identity::from_seed(&Secret::from_bytes([rank + 1; 32])).unwrap();
    let member = |rank: u8| Member {
        key: identity(rank).public(),
        addresses: vec![address(rank)],
        process: None,
        host: None,
        cuda: false,
    };
    let mesh = process::open(Plan {
        endpoint: Arc::clone(&WORLD.endpoints[1]),
        me: identity(1),
        rank: Rank(1),
        roster: vec![member(0), member(1)],
        nonce,
        secret: Secret::from_bytes([0; 32]),
        peer_timeout: PATIENCE,
        dial_timeout: PATIENCE,
    });
    let key: PublicKey = identity(1).public();
    let name = format!("r1.{nonce:016x}.nexar");
    let me = identity(0);
    let dialled = WORLD.endpoints[0].dial(address(1), &name, &me, key, Some(PATIENCE));
    let (connection, connected) = tokio::join!(dialled, mesh.connect_neighbours());
    let connection = connection.unwrap();
    connected.unwrap();
    // Reads all that rank 1 sends, so that its sends do not block.
    let draining = connection.clone();
    tokio::spawn(async move {
        while let Ok(mut stream) = draining.accept_uni().await {
            tokio::spawn(async move {
                while let Ok(Some(_)) = stream.read_chunk(1 << 16, false).await {}
            });
        }
    });
    let config = Config { op_timeout: PATIENCE, ..Config::default() };
    let honest = create_on(mesh, &config).unwrap();
    (honest, Peer { connection, context: ContextId(nonce) })
}

fn address(rank: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], WORLD.endpoints[usize::from(rank)].port()))
}

/// Executes the calls of rank 1 until one fails.
async fn execute_calls(honest: Arc<Communicator>, calls: Vec<ApiCall>) {
    for call in calls {
        if let Err(error) = call.execute(&honest).await {
            assert!(is_failure(error.code()), "{error}");
            return;
        }
    }
}

fn sum() -> Fold {
    Fold::new(DataType::Int32, RedOp::Sum).unwrap()
}

fn tagged(tag: Option<u8>) -> Tag {
    tag.map_or(Tag::None, |tag| Tag::Number(tag.into()))
}

impl ApiCall {
    /// The call as the headers of rank 1 name it. `None` for a message.
    fn call(&self) -> Option<Call> {
        let reduction = Reduction::from(sum());
        Some(match *self {
            Self::Barrier => Call::barrier(),
            Self::AllReduce { count } => Call::all_reduce(count.into(), reduction),
            Self::Broadcast { count, from_peer } => {
                Call::broadcast(count.into(), DTYPE, Rank(usize::from(!from_peer)))
            }
            Self::AllGather { count } => Call::all_gather(Counts::Each(count.into()), DTYPE),
            Self::ReduceScatter { count } => {
                Call::reduce_scatter(Counts::Each(count.into()), reduction)
            }
            Self::Split { .. } => Call::split(),
            Self::Send { .. } | Self::Recv { .. } => return None,
        })
    }

    async fn execute(self, honest: &Arc<Communicator>) -> Result<()> {
        let bytes = |count: usize| vec![1_u8; count * DTYPE.size()];
        let reducer = Reducer::Known(sum());
        match self {
            Self::Barrier => honest.run_async(Op::barrier()).await,
            Self::AllReduce { count } => {
                let count = count.into();
                let buffers = Buffers::Shared { both: &mut bytes(count) };
                honest.run_async(Op::all_reduce(count, reducer, buffers)).await
            }
            Self::Broadcast { count, from_peer } => {
                let (count, root) = (count.into(), Rank(usize::from(!from_peer)));
                let buffers = Buffers::Shared { both: &mut bytes(count) };
                honest.run_async(Op::broadcast(count, DTYPE, root, buffers)).await
            }
            Self::AllGather { count } => {
                let (counts, count) = (Counts::Each(count.into()), usize::from(count));
                let blocks = Blocks::equal(count * DTYPE.size(), 2);
                let buffers = Buffers::Shared { both: &mut bytes(2 * count) };
                let op = Op::all_gather(counts, DTYPE, blocks, buffers);
                honest.run_async(op).await
            }
            Self::ReduceScatter { count } => {
                let (counts, count) = (Counts::Each(count.into()), usize::from(count));
                let blocks = Blocks::equal(count * DTYPE.size(), 2);
                let buffers = Buffers::Shared { both: &mut bytes(2 * count) };
                honest.run_async(Op::reduce_scatter(counts, reducer, blocks, buffers)).await
            }
            Self::Split { color } => {
                let color_key = ColorKey { color: Some(color.into()), key: 0 };
                let config = honest.config().clone();
                let request = SplitRequest { communicator: Arc::clone(honest), color_key, config };
                let mut results =
                    tokio::task::spawn_blocking(move || split(&[request])).await.unwrap();
                results.remove(0).map(drop)
            }
            Self::Send { count, tag, synchronous } => {
                let count = count.into();
                let envelope = Envelope { tag: tagged(tag), dtype: DTYPE, count };
                let bytes = &bytes(count)[..];
                honest.run_async(Outgoing { to: Rank(0), envelope, bytes, synchronous }).await
            }
            Self::Recv { count, tag, from_any } => {
                let count = count.into();
                let tag = match tag {
                    Some(u8::MAX) => WantedTag::AnyNumber,
                    tag => WantedTag::This(tagged(tag)),
                };
                let wanted = Wanted { source: (!from_any).then_some(Rank(0)), tag };
                let into = &mut bytes(count)[..];
                let call = RecvCall { wanted, dtype: DTYPE, count: RecvCount::Exactly(count) };
                honest.run_async(Incoming { call, into, report: None }).await
            }
        }
    }
}

/// The actions of rank 0 on its connection.
struct Attack<'a> {
    connection: &'a Connection,
    context: ContextId,
    /// The calls of rank 1, by sequence number.
    calls: Vec<Call>,
    streams: Vec<SendStream>,
}

impl Attack<'_> {
    async fn execute(&mut self, action: Action) {
        match action {
            Action::Open(opening) if self.streams.len() < MOST_STREAMS => {
                let bytes = self.opening(opening);
                if let Ok(mut stream) = self.connection.open_uni().await {
                    let _ = stream.write_all(&bytes).await;
                    self.streams.push(stream);
                }
            }
            Action::Open(_) => {}
            Action::Write { stream, data } => {
                let bytes = self.bytes(data);
                if let Some(stream) = self.stream(stream) {
                    // Does not block: an input's bytes fit the window of a stream.
                    let _ = stream.write_all(&bytes).await;
                }
            }
            Action::Finish { stream } => {
                self.stream(stream).map(SendStream::finish);
            }
            Action::Reset { stream } => {
                self.stream(stream).map(|stream| stream.reset(VarInt::from_u32(0)));
            }
            Action::Pause => sleep(Duration::from_millis(1)).await,
        }
    }

    fn stream(&mut self, number: u8) -> Option<&mut SendStream> {
        let count = self.streams.len().max(1);
        self.streams.get_mut(usize::from(number) % count)
    }

    fn named(&self, named: Named) -> ContextId {
        match named {
            Named::Ours => self.context,
            Named::Other(number) => ContextId(number),
        }
    }

    fn opening(&self, opening: Opening) -> Vec<u8> {
        let preamble = match opening {
            Opening::Control => Preamble::Control,
            Opening::Data { lane, context } => {
                Preamble::Data(self.named(context), Lane(usize::from(lane) % LANES))
            }
            Opening::ControlMessages { context } => Preamble::ControlMessages(self.named(context)),
            Opening::Payload { context, id } => {
                let preamble = Preamble::Payload(self.named(context)).encode();
                return [&preamble[..], &u64::from(id).to_le_bytes()].concat();
            }
            Opening::Anything(bytes) => return bytes,
        };
        preamble.encode().to_vec()
    }

    fn bytes(&self, data: Data) -> Vec<u8> {
        let message = |id: u8, tag, count, protocol| {
            let envelope = Envelope { tag, dtype: DTYPE, count };
            ControlMessage::Message { id: id.into(), envelope, protocol }.encode()
        };
        match data {
            Data::Bytes(bytes) => bytes,
            Data::Zeros(count) => vec![0; count.into()],
            Data::Header { call, seq, step, bytes } => self.header(call, seq, step, bytes),
            Data::Heartbeat { context, call, seq } => {
                let (_, call) = self.call(call);
                let context = self.named(context);
                Frame::Heartbeat(vec![EnteredCall { context, seq, call }]).encode()
            }
            Data::Fault { context, text } => {
                let context = self.named(context);
                Frame::Fault { context, code: Code::RemoteError, text }.encode()
            }
            Data::Leave { context } => Frame::Leave(self.named(context)).encode(),
            Data::Bye => Frame::Bye.encode(),
            Data::Welcome => Frame::Welcome.encode(),
            Data::Message { id, tag, count, protocol } => {
                let count = usize::from(count) % 4096;
                let payload = vec![0; count * DTYPE.size()];
                let protocol = match protocol % 3 {
                    0 => Protocol::Rendezvous { location: None },
                    eager => Protocol::Eager { payload, wants_cts: eager == 1 },
                };
                message(id, tagged(tag), count, protocol)
            }
            Data::Rendezvous { id, count } => {
                message(id, Tag::None, count as usize, Protocol::Rendezvous { location: None })
            }
            Data::ClearToSend { id } => ControlMessage::ClearToSend { id: id.into() }.encode(),
            Data::Credit { bytes } => ControlMessage::Credit { bytes: bytes as usize }.encode(),
        }
    }

    /// A call of rank 1 by its sequence number, and the history of the calls before it.
    fn call(&self, number: u8) -> (CallHistory, Call) {
        let number = usize::from(number) % self.calls.len().max(1);
        let history =
            self.calls.iter().take(number).fold(CallHistory::default(), CallHistory::then);
        (history, self.calls.get(number).copied().unwrap_or_else(Call::barrier))
    }

    fn header(&self, call: u8, seq: Option<u64>, step: u8, bytes: Option<u64>) -> Vec<u8> {
        let number = usize::from(call) % self.calls.len().max(1);
        let (history, call) = self.call(call);
        let seq = seq.unwrap_or(number as u64);
        let bytes = bytes.map_or_else(|| call.bytes(), |bytes| bytes as usize);
        Header { seq, call, history, step: step.into(), bytes }.encode().to_vec()
    }
}
