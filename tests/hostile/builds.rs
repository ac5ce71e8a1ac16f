//! The test imitates ranks and roots byte by byte: of other builds, and with a forged table.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use nexar::bootstrap::fingerprint::{Build, Introduction};
use nexar::bootstrap::id::UniqueId;
use nexar::error::Code;
use nexar::transport::key::{Identity, Secret};
use nexar::transport::quic::endpoint::{Endpoint, Service};
use quinn::{Connection, RecvStream, SendStream};
use tokio::time::timeout;

use super::process::{Process, slowest};
use super::stranger::{Id, PATIENCE, open_endpoint, runtime};
use super::{Case, report};

pub const CASES: [Case; 4] = [
    ("all_ranks_report_a_rank_of_another_build", other_rank),
    ("all_ranks_report_a_rank_of_a_build_without_a_fingerprint", older_rank),
    ("a_rank_reports_a_root_of_a_build_that_cannot_parse_its_join", older_root),
    ("a_rank_rejects_a_table_that_has_another_key_for_it", foreign_table),
];

const HELLO: u8 = 1;
const JOIN: u8 = 2;
const REFUSED: u8 = 3;
const TABLE: u8 = 4;
/// The bytes of a rank's entry in its Join.
const ENTRY: std::ops::Range<usize> = 48..48 + 114;

/// A frame of the bootstrap; `src/bootstrap/message.rs` draws its layout.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0][..], &(body.len() as u32).to_le_bytes(), body].concat()
}

async fn read_frame(recv: &mut RecvStream) -> (u8, Vec<u8>) {
    let mut head = [0; 8];
    recv.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; u32::from_le_bytes(head[4..].try_into().unwrap()) as usize];
    recv.read_exact(&mut body).await.unwrap();
    (head[0], body)
}

/// Two ranks of three wait; the test sends `body` as the Join of the third. Checks that the two
/// ranks fail with `words`, and returns the text of the refusal that the third receives.
fn joined_by(body: &[u8], words: &[&str]) -> String {
    let mut ranks: Vec<_> = (0..2).map(|_| Process::start(&[])).collect();
    let hex = ranks[0].id();
    let (id, root) = (Id::parse(&hex), ranks[0].address());
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("join {hex} {number} 3"));
    }
    let joining = async {
        let endpoint = open_endpoint();
        let key = id.join_identity();
        let dialled = endpoint.dial(root, &id.service(), &key, id.root(), Some(PATIENCE)).await;
        let connection = dialled.expect("the root accepts the join key");
        let (mut send, mut recv) = connection.accept_bi().await.unwrap();
        assert_eq!(read_frame(&mut recv).await, (HELLO, vec![]));
        send.write_all(&frame(JOIN, body)).await.unwrap();
        read_frame(&mut recv).await
    };
    let (kind, refusal) =
        runtime().block_on(async { timeout(PATIENCE, joining).await.expect("in time") });
    let answers: Vec<_> = ranks.iter_mut().map(Process::answer).collect();
    report(format!("after {:.0} ms: {}", slowest(&answers), answers[0].text));
    for answer in answers {
        answer.failed(Code::InvalidUsage, words).within(1000.0);
    }
    assert_eq!((kind, refusal[0]), (REFUSED, Code::InvalidUsage as u8));
    String::from_utf8(refusal[1..].to_vec()).unwrap()
}

fn other_rank() {
    let build = Build { fingerprint: 0xab12_cd34_0000_0001, version: "9.8.7".to_owned() };
    let body = [&Introduction { rank: 2, build }.encode()[..], &[0xee; 333]].concat();
    let ours = Build::of_this().to_string();
    let words = ["rank 2 at 127.0.0.1 runs nexar 9.8.7/ab12cd3400000001", &ours, "one build"];
    let refusal = joined_by(&body, &words);
    assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
}

/// The Join of an older build began with the rank and the number of ranks.
fn older_rank() {
    let body = [&[2, 0, 0, 0, 3, 0, 0, 0][..], &[0xee; 190]].concat();
    let ours = Build::of_this().to_string();
    let words = ["a rank at 127.0.0.1 runs an older nexar", &ours, "one build"];
    let refusal = joined_by(&body, &words);
    assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
}

/// A root that the test serves, for one rank.
struct Root {
    service: Service,
    hex: String,
    _endpoint: Arc<Endpoint>,
}

impl Root {
    /// Must be called inside the runtime.
    fn new() -> Self {
        let (endpoint, key) = (open_endpoint(), Identity::random().unwrap());
        let id = UniqueId {
            nonce: 77,
            secret: Secret::random().unwrap(),
            root: key.public(),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], endpoint.port()))],
            with_secret: false,
            served_by_rank_0: false,
        };
        let expected = HashSet::from([id.join_identity(None).unwrap().public()]);
        let service = endpoint.serve(id.service(), &key, expected);
        let hex = id.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { service, hex, _endpoint: endpoint }
    }

    /// Accepts a rank and reads its Join, which is the last field of the result.
    async fn joined(&mut self) -> (Connection, SendStream, RecvStream, Vec<u8>) {
        let connection = self.service.arrivals.recv().await.unwrap().connection;
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(&frame(HELLO, &[])).await.unwrap();
        let (kind, join) = read_frame(&mut recv).await;
        assert_eq!(kind, JOIN);
        (connection, send, recv, join)
    }
}

fn older_root() {
    let mut rank = Process::start(&[]);
    let join = runtime().block_on(async {
        let mut root = Root::new();
        rank.tell(&format!("join {} 1 2", root.hex));
        let (connection, _send, _recv, join) = root.joined().await;
        connection.close(0_u8.into(), b"");
        let ours = Build::of_this().to_string();
        let words = ["the root at 127.0.0.1", "an older nexar", &ours, "one build"];
        let answer = rank.answer().failed(Code::InvalidUsage, &words).within(1000.0);
        report(format!("after {:.0} ms: {}", answer.ms, answer.text));
        join
    });
    // Every build expects the fingerprint at the beginning of a Join.
    let introduction = Introduction { rank: 1, build: Build::of_this() };
    assert!(join.starts_with(&introduction.encode()));
}

fn foreign_table() {
    let mut rank = Process::start(&[]);
    runtime().block_on(async {
        let mut root = Root::new();
        rank.tell(&format!("join {} 1 2", root.hex));
        let (_connection, mut send, _recv, join) = root.joined().await;
        // The rank's own entry twice, but with keys whose private halves the root knows.
        let mut table = join[ENTRY].repeat(2);
        for at in [0, ENTRY.len()] {
            let key = Identity::random().unwrap().public();
            table[at..at + 32].copy_from_slice(key.bytes());
        }
        send.write_all(&frame(TABLE, &table)).await.unwrap();
        let answer =
            rank.answer().failed(Code::RemoteError, &["does not contain this process as rank 1"]);
        report(format!("after {:.0} ms: {}", answer.ms, answer.text));
    });
}
