//! A member that joins normally and then breaks the protocol on its own connections.
//!
//! The member is rank 0 and dials all others; this file writes every byte that it sends.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future;
use nexar::bootstrap::fingerprint::{Build, Introduction};
use nexar::dtype::{DataType, ElementType};
use nexar::error::Code;
use nexar::op::Call;
use nexar::rank::Rank;
use nexar::transport::key::{Identity, PublicKey};
use nexar::transport::quic::endpoint::Endpoint;
use nexar::transport::{CallHistory, ControlMessage, Header};
use quinn::{Connection, RecvStream, SendStream};
use tokio::time::timeout;

use super::process::{Process, ask_all, join_all};
use super::relay::Dice;
use super::stranger::{Id, PATIENCE, open_endpoint, runtime};
use super::{Case, row, times};

pub const CASES: [Case; 3] = [
    ("a_member_that_breaks_the_protocol_is_named_at_once", expelled),
    ("a_member_takes_no_more_memory_of_the_others_than_its_window", memory),
    ("a_member_that_reads_nothing_times_out_and_takes_little_memory", never_reads),
];

/// Ranks besides the member. Each of them is its neighbour.
pub const OTHERS: usize = 3;
/// The entry of a rank in the table: its key, the number of its addresses, two addresses, its
/// process, its host, and whether it has CUDA.
pub const ENTRY_BYTES: usize = 32 + 1 + 2 * 18 + 28 + 16 + 1;
/// How much a member may send that the others have not read: 8 streams of 4 MiB each, 64 KiB of
/// control messages, 64 KiB of control frames, and a sixth more.
const WINDOW_KIB: f64 = ((8 * 4096 + 2 * 64) * 7 / 6) as f64;
/// The maximum memory of another rank that a member may use, whatever it sends.
const MEMORY_KIB: f64 = WINDOW_KIB + 1024.0;

pub struct Member {
    /// By rank, beginning with rank 1.
    links: Vec<Link>,
    context: u64,
    dice: Dice,
    _endpoint: std::sync::Arc<Endpoint>,
}

struct Link {
    connection: Connection,
    control: SendStream,
    /// The control stream of the peer, open but not read.
    _control_of_peer: RecvStream,
}

impl Member {
    /// Joins as rank 0, and connects to all others.
    pub async fn join(id: &Id, root: SocketAddr) -> Self {
        let (endpoint, me) = (open_endpoint(), Identity::random().unwrap());
        let (connection, mut send, mut recv) =
            present(&endpoint, &me, id, root, 0, 1 + OTHERS).await;
        let (kind, table) = message(&mut recv).await;
        assert_eq!((kind, table.len()), (4, ENTRY_BYTES * (1 + OTHERS)), "Table");
        let hash = sha256(&table);
        send.write_all(&[&[5, 0, 0, 0, 32, 0, 0, 0], &hash[..]].concat()).await.unwrap();
        assert_eq!(message(&mut recv).await.0, 6, "Go");
        connection.close(0_u8.into(), b"");

        let context = u64::from_le_bytes(hash[..8].try_into().unwrap());
        let mut links = Vec::new();
        for (rank, entry) in table.chunks(ENTRY_BYTES).enumerate().skip(1) {
            let ip: [u8; 16] = entry[33..49].try_into().unwrap();
            let port = u16::from_le_bytes([entry[49], entry[50]]);
            let address = SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port);
            let key = PublicKey::parse(entry[..32].try_into().unwrap()).unwrap();
            let service = format!("r{rank}.{context:016x}.nexar");
            let connection =
                endpoint.dial(address, &service, &me, key, Some(PATIENCE)).await.unwrap();
            // The peer's first stream is its control stream, whose first frame is Welcome.
            let mut control_of_peer = connection.accept_uni().await.unwrap();
            control_of_peer.read_exact(&mut [0; 20]).await.unwrap();
            let control = connection.open_uni().await.unwrap();
            let mut link = Link { connection, control, _control_of_peer: control_of_peer };
            link.control.write_all(&preamble(CONTROL, 0, 0)).await.unwrap();
            links.push(link);
        }
        Self { links, context, dice: Dice::new(context), _endpoint: endpoint }
    }

    /// The link to a random other rank.
    fn victim(&mut self) -> &mut Link {
        let one = self.dice.below(OTHERS as u64) as usize;
        &mut self.links[one]
    }

    fn garbage(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.dice.below(256) as u8).collect()
    }

    /// Opens a stream to every other rank, writes `bytes` to it and leaves it open.
    async fn open(&mut self, bytes: &[u8]) {
        for link in &self.links {
            let Ok(mut stream) = link.connection.open_uni().await else { continue };
            let _ = stream.write_all(bytes).await;
            // Dropping the stream would finish it.
            std::mem::forget(stream);
        }
    }

    /// Writes to the control stream of a random other rank.
    async fn send_frame(&mut self, frame: &[u8]) {
        let _ = self.victim().control.write_all(frame).await;
    }

    /// Sends `header` in the place of the header of the barrier's message.
    async fn barrier(&mut self, header: Header) {
        let lane = (header.seq % 4) as u8;
        let bytes = [&preamble(DATA, lane, self.context)[..], &header.encode()].concat();
        self.open(&bytes).await;
    }

    async fn message(&mut self, head: &[u8]) {
        let bytes = [&preamble(MESSAGES, 0, self.context)[..], head].concat();
        self.open(&bytes).await;
    }
}

/// Dials the root and sends the Join, whose layout `src/bootstrap/message.rs` draws. The root
/// answers with the table.
pub async fn present(
    endpoint: &Endpoint,
    me: &Identity,
    id: &Id,
    root: SocketAddr,
    rank: usize,
    size: usize,
) -> (Connection, SendStream, RecvStream) {
    let key = id.join_identity();
    let dialled = endpoint.dial(root, &id.service(), &key, id.root(), Some(PATIENCE)).await;
    let connection = dialled.expect("the root accepts the join key");
    let (mut send, mut recv) = connection.accept_bi().await.unwrap();
    assert_eq!(message(&mut recv).await.0, 1, "Hello");
    let mut fields = Introduction { rank, build: Build::of_this() }.encode().to_vec();
    fields.extend((size as u32).to_le_bytes());
    fields.extend(30_000_u32.to_le_bytes());
    fields.extend(&sha256(b"algo ")[..8]);
    let mut entry = [0; ENTRY_BYTES];
    entry[..32].copy_from_slice(me.public().bytes());
    entry[32] = 1;
    entry[33..49].copy_from_slice(&std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
    entry[49..51].copy_from_slice(&endpoint.port().to_le_bytes());
    fields.extend(entry);
    let mut binding = [0; 32];
    let label = b"EXPORTER-nexar-join-1";
    connection.export_keying_material(&mut binding, label, &id.nonce()).unwrap();
    let signature = me.sign(&[&b"nexar/1 join"[..], &binding, &fields].concat());
    let body = [&fields[..], &signature].concat();
    send.write_all(&[&[2, 0, 0, 0][..], &length(&body), &body].concat()).await.unwrap();
    (connection, send, recv)
}

const CONTROL: u8 = 1;
const DATA: u8 = 2;
const MESSAGES: u8 = 3;
const PAYLOAD: u8 = 4;

fn preamble(kind: u8, lane: u8, context: u64) -> Vec<u8> {
    [&[kind, lane, 0, 0, 0, 0, 0, 0][..], &context.to_le_bytes()].concat()
}

fn leave(context: u64) -> [u8; 12] {
    let mut frame = [5, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    frame[4..].copy_from_slice(&context.to_le_bytes());
    frame
}

fn length(body: &[u8]) -> [u8; 4] {
    (body.len() as u32).to_le_bytes()
}

pub async fn message(recv: &mut RecvStream) -> (u8, Vec<u8>) {
    let mut head = [0; 8];
    recv.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; u32::from_le_bytes(head[4..].try_into().unwrap()) as usize];
    recv.read_exact(&mut body).await.unwrap();
    (head[0], body)
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

/// The others' call before the one under attack. It sends no message.
const FIRST: Call = Call::broadcast(0, ElementType::Known(DataType::Uint8), Rank(0));

/// A violation of the protocol by the member.
#[derive(Clone, Copy, Debug)]
enum Violation {
    WrongLength,
    WrongStep,
    SequenceNumberOfThePast,
    SequenceNumberOfTheFuture,
    GarbledHeader,
    GarbledFrame,
    LongFrame,
    ReservedBitOfAFrame,
    SecondWelcome,
    ReservedBitOfAStream,
    StreamOfUnknownKind,
    LaneOutOfRange,
    LaneTwice,
    ControlTwice,
    GarbledControlMessage,
    ReservedBitOfAControlMessage,
    MessageOutOfOrder,
    MessagesBeyondCredit,
    UnexpectedClearToSend,
    UnexpectedCredit,
    UnexpectedPayload,
    LeavesOfManyCommunicators,
    LeavesBehindATruncatedPreamble,
}

use Violation::*;

const KINDS: [(&str, &[Violation]); 4] = [
    (
        "wrong lengths and numbers",
        &[WrongLength, WrongStep, SequenceNumberOfThePast, SequenceNumberOfTheFuture],
    ),
    (
        "garbage and reserved bits",
        &[
            GarbledHeader,
            GarbledFrame,
            LongFrame,
            ReservedBitOfAFrame,
            SecondWelcome,
            ReservedBitOfAStream,
            StreamOfUnknownKind,
            LaneOutOfRange,
            GarbledControlMessage,
            ReservedBitOfAControlMessage,
        ],
    ),
    (
        "messages nobody asked for",
        &[MessageOutOfOrder, UnexpectedClearToSend, UnexpectedCredit, UnexpectedPayload],
    ),
    (
        "streams opened twice, floods of control messages and frames",
        &[
            LaneTwice,
            ControlTwice,
            MessagesBeyondCredit,
            LeavesOfManyCommunicators,
            LeavesBehindATruncatedPreamble,
        ],
    ),
];

impl Violation {
    /// Commits the violation. The others are in a barrier, which is their second call.
    async fn commit(self, member: &mut Member) {
        let context = member.context;
        let history = CallHistory::default().then(&FIRST);
        let right = Header { seq: 1, call: Call::barrier(), history, step: 0, bytes: 0 };
        match self {
            WrongLength => member.barrier(Header { bytes: 1 << 40, ..right }).await,
            WrongStep => member.barrier(Header { step: 7, ..right }).await,
            SequenceNumberOfThePast => {
                let first =
                    Header { seq: 0, history: CallHistory::default(), call: FIRST, ..right };
                let lane = preamble(DATA, 1, context);
                member.open(&[&lane[..], &first.encode()].concat()).await;
            }
            SequenceNumberOfTheFuture => {
                member.barrier(Header { seq: 1 + (4 << 20), ..right }).await
            }
            GarbledHeader => {
                let garbage = member.garbage(200);
                let lane = preamble(DATA, 1, context);
                member.open(&[&lane[..], &garbage].concat()).await;
            }
            GarbledFrame => {
                let garbage = member.garbage(5000);
                member.send_frame(&garbage).await;
            }
            LongFrame => member.send_frame(&[2, 0, 0xff, 0xff]).await,
            ReservedBitOfAFrame => member.send_frame(&[2, 1, 0, 0]).await,
            SecondWelcome => member.send_frame(&[1, 0, 0, 0]).await,
            ReservedBitOfAStream => {
                let mut lane = preamble(DATA, 1, context);
                lane[5] = 0x40;
                member.open(&lane).await;
            }
            StreamOfUnknownKind => member.open(&preamble(77, 0, context)).await,
            LaneOutOfRange => member.open(&preamble(DATA, 4, context)).await,
            LaneTwice => {
                member.open(&preamble(DATA, 2, context)).await;
                member.open(&preamble(DATA, 2, context)).await;
            }
            ControlTwice => member.open(&preamble(CONTROL, 0, 0)).await,
            GarbledControlMessage => {
                let garbage = member.garbage(24);
                member.message(&garbage).await;
            }
            ReservedBitOfAControlMessage => {
                let mut head = ControlMessage::ClearToSend { id: 0 }.encode();
                head[3] = 1;
                member.message(&head).await;
            }
            MessageOutOfOrder => member.message(&eager(5)).await,
            MessagesBeyondCredit => {
                let messages: Vec<_> = (0..20).flat_map(eager).collect();
                member.message(&messages).await;
            }
            UnexpectedClearToSend => {
                member.message(&ControlMessage::ClearToSend { id: 0 }.encode()).await
            }
            UnexpectedCredit => member.message(&ControlMessage::Credit { bytes: 1 }.encode()).await,
            UnexpectedPayload => {
                let bytes = [preamble(PAYLOAD, 0, context), vec![0; 8 + 4096]].concat();
                member.open(&bytes).await;
            }
            LeavesOfManyCommunicators => {
                let leaves: Vec<_> = (1..1 << 17).flat_map(|one| leave(context ^ one)).collect();
                member.send_frame(&leaves).await;
            }
            LeavesBehindATruncatedPreamble => {
                member.open(&preamble(DATA, 2, context)[..7]).await;
                let leaves: Vec<_> = (1..1 << 20).flat_map(|one| leave(context ^ one)).collect();
                member.send_frame(&leaves).await;
            }
        }
    }
}

/// An eager message of 16 KiB with its envelope.
fn eager(id: u64) -> Vec<u8> {
    let mut head = [0; 24];
    (head[0], head[1]) = (1, DataType::Uint8 as u8);
    head[8..16].copy_from_slice(&id.to_le_bytes());
    head[16..].copy_from_slice(&(16_u64 << 10).to_le_bytes());
    [&head[..], &[7; 16 << 10]].concat()
}

/// Creates a communicator of the other ranks and a new member, which is returned.
async fn world(ranks: &mut [Process]) -> Member {
    let hex = ranks[0].id();
    let root = ranks[0].address();
    for (rank, process) in ranks.iter_mut().enumerate() {
        process.tell(&format!("join {hex} {} {}", rank + 1, OTHERS + 1));
    }
    let member = timeout(PATIENCE, Member::join(&Id::parse(&hex), root)).await.expect("in time");
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
    member
}

fn others(environment: &[(&str, &str)]) -> Vec<Process> {
    (0..OTHERS).map(|_| Process::start(environment)).collect()
}

fn most_resident(ranks: &[Process]) -> Vec<f64> {
    ranks.iter().map(|rank| rank.most_resident() as f64).collect()
}

fn expelled() {
    let mut ranks = others(&[]);
    runtime().block_on(async {
        // A first violation allocates the memory that a rank needs in any case.
        let _ = violate(&mut ranks, WrongLength).await;
        for (kind, violations) in KINDS {
            let tries = violations.len() * times(1, 100_usize.div_ceil(violations.len()));
            ranks.iter().for_each(Process::forget_most_resident);
            let (mut spans, before) = (Vec::new(), most_resident(&ranks));
            for violation in violations.iter().cycle().take(tries) {
                spans.extend(violate(&mut ranks, *violation).await);
            }
            row(&format!("malicious member: {kind}"), tries, 100.0, "ms", &spans);
            let grown = most_resident(&ranks).into_iter().zip(before);
            let grown: Vec<_> = grown.map(|(now, before)| now - before).collect();
            row(&format!("malicious member: memory, {kind}"), tries, MEMORY_KIB, "KiB", &grown);
        }
    });
}

/// Lets a new member commit the violation. Returns after how many ms each other rank named it.
async fn violate(ranks: &mut [Process], violation: Violation) -> Vec<f64> {
    let mut member = world(ranks).await;
    ask_all(ranks, "broadcast 0 0");
    ranks.iter_mut().for_each(|rank| rank.tell("barrier"));
    let began = Instant::now();
    timeout(PATIENCE, violation.commit(&mut member)).await.expect("in time");
    let mut spans = Vec::new();
    for answer in ranks.iter_mut().map(Process::answer) {
        spans.push(began.elapsed().as_secs_f64() * 1e3);
        let named = answer.text.contains("rank 0 broke the protocol");
        assert!(named && answer.code == Code::RemoteError, "{violation:?}: {answer:?}");
    }
    ask_all(ranks, "destroy");
    spans
}

/// The member fills all streams that it may open. The other ranks do not read them.
fn memory() {
    let tries = times(1, 5);
    let mut grown = Vec::new();
    for _ in 0..tries {
        let mut ranks = others(&[]);
        runtime().block_on(async {
            // A first communicator allocates the memory that a rank needs in any case.
            join_all(&mut ranks);
            ask_all(&mut ranks, "allreduce 4000000");
            let member = world(&mut ranks).await;
            ranks.iter().for_each(Process::forget_most_resident);
            let before = most_resident(&ranks);
            ranks.iter_mut().for_each(|rank| rank.tell("barrier"));
            let filling = member.links.iter().map(|link| fill(link, member.context));
            let _open = future::join_all(filling).await;
            let now = most_resident(&ranks).into_iter();
            grown.extend(now.zip(before).map(|(now, before)| now - before));
        });
        // The end of the runtime has dropped the member and its endpoint.
        for rank in &mut ranks {
            rank.answer().failed(Code::RemoteError, &["rank 0 "]);
        }
    }
    row("malicious member: memory that its unread data takes", tries, MEMORY_KIB, "KiB", &grown);
}

/// Opens data streams up to the peer's limit, and writes to each up to its window.
async fn fill(link: &Link, context: u64) -> Vec<SendStream> {
    let mut open = Vec::new();
    for number in 0_u8.. {
        let opened = timeout(FULL, link.connection.open_uni()).await;
        let Ok(Ok(mut stream)) = opened else { break };
        let another = context + u64::from(number / 4);
        stream.write_all(&preamble(DATA, number % 4, another)).await.unwrap();
        // The peer reads the barrier's lane, so this one stays empty.
        let is_read = number == 0;
        while !is_read && timeout(FULL, stream.write(&[0; 1 << 16])).await.is_ok() {}
        open.push(stream);
    }
    open
}

/// A stream counts as full if a write has not completed after this time.
const FULL: Duration = Duration::from_millis(100);
/// The send window of a connection, and some margin.
const SEND_WINDOW_KIB: f64 = (6 << 10) as f64;

fn never_reads() {
    const BYTES: usize = 32 << 20;
    let tries = times(1, 5);
    let mut grown = Vec::new();
    for _ in 0..tries {
        let mut ranks = others(&[("NEXAR_OP_TIMEOUT_MS", "5000")]);
        runtime().block_on(async {
            let _member = world(&mut ranks).await;
            let before = ranks[0].most_resident();
            ranks.iter_mut().for_each(|rank| rank.tell(&format!("broadcast {BYTES} 1")));
            let answers: Vec<_> = ranks.iter_mut().map(Process::answer).collect();
            let blamed = answers.iter().filter(|answer| answer.code == Code::Timeout);
            assert!(blamed.clone().all(|answer| answer.text.contains("rank 0 ")), "{answers:?}");
            assert!(blamed.count() > 0, "{answers:?}");
            // The rank's own memory: the payload, and the copy that the result is compared with.
            let own = 2 * (BYTES as i64 >> 10);
            grown.push((ranks[0].most_resident() - before - own) as f64);
        });
    }
    let bound = SEND_WINDOW_KIB + 1024.0;
    row("malicious member: memory for what it does not read", tries, bound, "KiB", &grown);
}
