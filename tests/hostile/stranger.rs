//! Unauthenticated peers and impersonation: wrong keys in bulk, false roots, a member that poses as
//! another rank, a replayed join.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nexar::error::Code;
use nexar::rank::Rank;
use nexar::transport::key::{Identity, PublicKey, Secret};
use nexar::transport::quic::endpoint::{DialError, Endpoint};
use nexar::transport::quic::{Member, Plan};
use nexar::transport::{Mesh, process};
use tokio::runtime::Runtime;

use super::Case;
use super::process::{Process, ask_all, slowest};
use super::relay::Relay;
use super::{forger, report, row, times};

pub const CASES: [Case; 6] = [
    ("strangers_in_bulk_are_not_admitted_and_harm_nobody", strangers),
    ("false_roots_are_not_believed", false_roots),
    ("a_member_cannot_dial_as_another_rank", forged_dialler),
    ("a_member_cannot_be_dialled_as_another_rank", forged_acceptor),
    ("a_join_that_is_sent_again_admits_nobody", replayed_join),
    ("a_peer_that_is_said_to_be_gone_but_answers_stays", false_hints),
];

/// The peer timeout of the meshes, and the limit of each wait.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The 128 bytes of a unique id; `src/bootstrap/id.rs` draws their layout.
pub struct Id(Vec<u8>);

impl Id {
    pub fn parse(hex: &str) -> Self {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        Self((0..hex.len()).step_by(2).map(byte).collect())
    }

    pub fn secret(&self) -> [u8; 32] {
        self.0[16..48].try_into().unwrap()
    }

    pub fn nonce(&self) -> [u8; 8] {
        self.0[8..16].try_into().unwrap()
    }

    pub fn service(&self) -> String {
        format!("root.{:016x}.nexar", u64::from_le_bytes(self.nonce()))
    }

    pub fn root(&self) -> PublicKey {
        PublicKey::parse(self.0[48..80].try_into().unwrap()).unwrap()
    }

    /// The key that all ranks of the id share until they present their own.
    pub fn join_identity(&self) -> Identity {
        let purpose: [&[u8]; 3] = [b"nexar/1 join ed25519", &self.nonce(), &self.0[48..80]];
        Identity::from_seed(&Secret::from_bytes(self.secret()).derive(&[], &purpose)).unwrap()
    }

    /// The same id in hexadecimal, with another port of the root.
    fn moved_to(&self, port: u16) -> String {
        let mut bytes = self.0.clone();
        bytes[96..98].copy_from_slice(&port.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&checksum.to_le_bytes());
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub fn open_endpoint() -> Arc<Endpoint> {
    Endpoint::open(&(0..=0), "any port").unwrap()
}

fn strangers() {
    let mut ranks: Vec<_> = (0..3).map(|_| Process::start(&[])).collect();
    let hex = ranks[0].id();
    let (id, root) = (Id::parse(&hex), ranks[0].address());
    ranks[0].tell(&format!("join {hex} 0 3"));
    ranks[1].tell(&format!("join {hex} 1 3"));

    let tries = times(300, 10_000);
    let (admitted, began) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let runtime = runtime();
    let control = runtime.block_on(async {
        let endpoint = open_endpoint();
        let service = id.service();
        // Control: the key of the id itself is admitted.
        let control = admits(&endpoint, root, &service, &id.join_identity(), id.root()).await;
        let batches = (0..16).map(|_| {
            let (endpoint, service, admitted) =
                (Arc::clone(&endpoint), service.clone(), Arc::clone(&admitted));
            let (pinned, tries) = (id.root(), tries.div_ceil(16));
            tokio::spawn(async move {
                for _ in 0..tries {
                    let me = Identity::random().unwrap();
                    if admits(&endpoint, root, &service, &me, pinned).await {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        });
        for batch in batches.collect::<Vec<_>>() {
            batch.await.unwrap();
        }
        control
    });
    let admitted = admitted.load(Ordering::Relaxed);
    report(format!("{tries} strangers in {:.1?}: {admitted} admitted", began.elapsed()));
    row_admitted("strangers with a key of their own", tries, admitted);
    assert!(control, "not even the right key is admitted");
    assert_eq!(admitted, 0);
    ranks[2].tell(&format!("join {hex} 2 3"));
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
    for answer in ask_all(&mut ranks, "allreduce 1000") {
        assert_eq!(answer.succeeded().text, "exact");
    }
    report(format!("the root's memory: {} KiB at most", ranks[0].measure()["peak"]));
}

/// Reports a row for tries none of which may be admitted.
fn row_admitted(name: &str, tries: usize, admitted: usize) {
    let mut values = vec![0.0; tries];
    values[0] = admitted as f64;
    row(name, tries, 0.0, "admitted", &values);
}

/// Whether a service admits us: then it opens a stream.
async fn admits(
    endpoint: &Endpoint,
    address: SocketAddr,
    service: &str,
    me: &Identity,
    pinned: PublicKey,
) -> bool {
    match endpoint.dial(address, service, me, pinned, Some(PATIENCE)).await {
        Ok(connection) => connection.accept_bi().await.is_ok(),
        Err(_) => false,
    }
}

fn false_roots() {
    let mut ranks: Vec<_> = (0..2).map(|_| Process::start(&[])).collect();
    let hex = ranks[0].id();
    let id = Id::parse(&hex);
    let runtime = runtime();
    let _inside = runtime.enter();
    let endpoint = open_endpoint();
    let moved = id.moved_to(endpoint.port());
    let expected = HashSet::from([id.join_identity().public()]);
    let tries = times(100, 1000);
    let mut answers = Vec::new();
    for _ in 0..tries {
        // The false root knows all but the true root's private key.
        let liar = Identity::random().unwrap();
        let _service = endpoint.serve(id.service(), &liar, expected.clone());
        let answer = ranks[1].ask(&format!("join {moved} 1 2"));
        answers.push(answer.failed(Code::RemoteError, &["is not the root"]).within(1000.0));
    }
    report(format!("at most {:.0} ms: {}", slowest(&answers), answers[0].text));
    row_admitted("false roots", tries, 0);
    // The same rank then joins the true root.
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("join {hex} {number} 2"));
    }
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
}

/// A mesh of three ranks whose private keys the test knows.
struct Trio {
    endpoints: Vec<Arc<Endpoint>>,
    roster: Vec<Member>,
    identities: Vec<Option<Identity>>,
}

const NONCE: u64 = 0x0123_4567_89ab_cdef;
const FORMING: Duration = Duration::from_secs(60);

impl Trio {
    /// Must be called inside the runtime.
    fn new() -> Self {
        let endpoints: Vec<_> = (0..3).map(|_| open_endpoint()).collect();
        let identities: Vec<_> = (0..3).map(|_| Identity::random().unwrap()).collect();
        let member = |(identity, endpoint): (&Identity, &Arc<Endpoint>)| Member {
            key: identity.public(),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], endpoint.port()))],
            process: None,
            host: None,
            cuda: false,
        };
        let roster = identities.iter().zip(&endpoints).map(member).collect();
        Self { endpoints, roster, identities: identities.into_iter().map(Some).collect() }
    }

    fn open(&mut self, rank: usize, dial_timeout: Duration) -> Mesh {
        process::open(Plan {
            endpoint: Arc::clone(&self.endpoints[rank]),
            me: self.identities[rank].take().unwrap(),
            rank: Rank(rank),
            roster: self.roster.clone(),
            nonce: NONCE,
            secret: Secret::from_bytes([0; 32]),
            peer_timeout: PATIENCE,
            dial_timeout,
        })
    }
}

fn forged_dialler() {
    let tries = times(50, 1000);
    let name = |rank: usize| format!("r{rank}.{NONCE:016x}.nexar");
    // The forger knows the private key of rank 2.
    let (seed, other) = ([7; 32], [8; 32]);
    let from = |seed| Identity::from_seed(&Secret::from_bytes(seed)).unwrap();
    let trio = || {
        let mut trio = Trio::new();
        trio.roster[2].key = from(seed).public();
        trio.identities[2] = Some(from(seed));
        trio
    };
    runtime().block_on(async {
        let mut trio = trio();
        let mut meshes: Vec<_> = [0, 1].map(|rank| trio.open(rank, FORMING)).into();
        let (zero, key_of_1) = (trio.roster[0].addresses[0], trio.roster[1].key);
        let mut admitted = 0;
        for _ in 0..tries {
            // The public key of rank 1, signed with the forger's own key.
            admitted += usize::from(forger::is_accepted(zero, &name(0), seed, key_of_1).await);
            // A key that no rank has.
            let nobody = from(other).public();
            admitted += usize::from(forger::is_accepted(zero, &name(0), other, nobody).await);
            // The forger's own key, at the service of rank 1 on rank 0's port.
            let own = from(seed).public();
            admitted += usize::from(forger::is_accepted(zero, &name(1), seed, own).await);
        }
        row_admitted(
            "a member that dials as another, as nobody, or where nobody is",
            3 * tries,
            admitted,
        );
        assert_eq!(admitted, 0);
        // All three ranks can still connect as themselves.
        meshes.push(trio.open(2, FORMING));
        let formed = async {
            let [a, b, c] = [0, 1, 2].map(|rank| meshes[rank].connect_neighbours());
            tokio::try_join!(a, b, c)
        };
        tokio::time::timeout(FORMING, formed).await.expect("in time").unwrap();
    });
    // Control: in another such world the forger's own key is accepted.
    runtime().block_on(async {
        let mut trio = trio();
        let _zero = trio.open(0, FORMING);
        let (zero, own) = (trio.roster[0].addresses[0], from(seed).public());
        let taken = forger::is_accepted(zero, &name(0), seed, own).await;
        assert!(taken, "the service refuses the right key");
    });
}

fn forged_acceptor() {
    let runtime = runtime();
    runtime.block_on(async {
        let mut trio = Trio::new();
        // Rank 1's packets are routed to rank 2, which serves under rank 1's name.
        trio.roster[1].addresses = trio.roster[2].addresses.clone();
        let liar = trio.identities[2].take().unwrap();
        let expected: HashSet<_> = trio.roster.iter().map(|member| member.key).collect();
        let serve = |rank: usize| {
            let name = format!("r{rank}.{NONCE:016x}.nexar");
            trio.endpoints[2].serve(name, &liar, expected.clone())
        };
        let (mut as_1, _as_2) = (serve(1), serve(2));
        let (tries, name) = (times(20, 1000), format!("r1.{NONCE:016x}.nexar"));
        let (address, key) = (trio.roster[1].addresses[0], trio.roster[1].key);
        for _ in 0..tries {
            let me = trio.identities[0].as_ref().unwrap();
            let dialled = trio.endpoints[0].dial(address, &name, me, key, Some(PATIENCE)).await;
            assert!(matches!(dialled, Err(DialError::Impostor)), "{:?}", dialled.err());
        }
        row_admitted("a member that is dialled as another rank", tries, 0);
        let zero = trio.open(0, Duration::from_secs(1));
        let error = zero.connect_neighbours().await.unwrap_err();
        report(format!("{error}"));
        assert_eq!(error.code(), Code::RemoteError);
        assert!(error.to_string().starts_with("rank 1 is not the process at"), "{error}");
        assert!(as_1.arrivals.try_recv().is_err(), "rank 0 completed the handshake");
    });
}

/// Forged ICMP hints that quote real packets, as an attacker who reads the network could send.
fn false_hints() {
    runtime().block_on(async {
        let mut trio = Trio::new();
        let meshes = [0, 1, 2].map(|rank| trio.open(rank, FORMING));
        let [a, b, c] = [0, 1, 2].map(|rank| meshes[rank].connect_neighbours());
        tokio::time::timeout(FORMING, async { tokio::try_join!(a, b, c) })
            .await
            .expect("in time")
            .unwrap();
        let end = Instant::now() + Duration::from_secs(times(2, 20) as u64);
        let mut hints = 0;
        while Instant::now() < end {
            for member in &trio.roster[1..] {
                trio.endpoints[0].pretend_hint(member.addresses[0]);
                hints += 1;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        report(format!("{hints} false hints, no rank reported dead"));
        for mesh in &meshes {
            assert!(mesh.membership.fault().is_none(), "{}", mesh.membership.fault().unwrap());
        }
    });
}

/// Replays the captured datagrams of a rank's join: while that rank waits, and when all ranks have
/// joined.
fn replayed_join() {
    let relay = Relay::capturing();
    let address = relay.address.to_string();
    // The root's log on stdout reports each rank that joins.
    let log = [("NEXAR_DEBUG", "TRACE"), ("NEXAR_DEBUG_FILE", "/dev/stdout")];
    let mut root = Process::start(&[&log[..], &[("NEXAR_ADVERTISE_ADDR", &address)]].concat());
    root.tell("id\nmeasure");
    let word = |line: String, beginning: &str| {
        let found = line.split(' ').find(|word| word.starts_with(beginning));
        found.unwrap().to_owned()
    };
    let hex = word(root.line_with(" 4e585231"), "4e585231"); // an id begins with NXR1
    let port = word(root.line_with(" port="), "port=")["port=".len()..].parse().unwrap();
    let target = SocketAddr::from(([127, 0, 0, 1], port));
    relay.set_target(target);
    let mut ranks: Vec<_> = (0..3).map(|_| Process::start(&[])).collect();
    ranks[1].tell(&format!("join {hex} 1 3"));
    root.line_with("rank 1 has joined");
    let seen = relay.captured().to_target;
    let tries = times(100, 1000);
    let replay = || {
        for _ in 0..tries / 2 {
            let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
            attacker.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            for datagram in &seen {
                attacker.send_to(datagram, target).unwrap();
            }
            // Ignores the answer, but waits for it: sent faster, some datagrams would be dropped.
            let _ = attacker.recv(&mut [0; 2048]);
        }
    };
    replay();
    for rank in [0, 2] {
        ranks[rank].tell(&format!("join {hex} {rank} 3"));
    }
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
    replay();
    for answer in ask_all(&mut ranks, "allreduce 1000") {
        assert_eq!(answer.succeeded().text, "exact");
    }
    root.tell("exit");
    let arrivals = root.last_lines().filter(|line| line.ends_with(" has joined")).count();
    report(format!("{} datagrams each time", seen.len()));
    // Two ranks joined after the captured one.
    row_admitted("a join that is sent again", tries, arrivals - 2);
    assert_eq!((arrivals, seen.len() > 3), (2, true));
}
