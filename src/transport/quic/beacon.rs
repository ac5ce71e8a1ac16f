//! Beacons: datagrams that carry heartbeats and faults while the thread that drives the network is
//! stalled.
//!
//! A call drives the network on the program's own thread, and the program can stall that thread: in
//! a signal handler, or on a slow page fault. QUIC then sends nothing. A beacon is one datagram
//! beside QUIC, over the same socket to the same peer, sealed with a key of the link. The io thread
//! sends it, which executes nothing of the program. It carries a control frame: a heartbeat, or a
//! fault of this process.
//!
//! ```text
//! beacon   0     1        9        17
//!          zero  id u64   number   sealed frame, and 16 bytes of its tag
//! ```
//!
//! QUIC's packets have bit 0x40 of the first byte set. Leaves to `links` which faults a peer must
//! learn of, and to `endpoint` the socket. Invariants: a beacon is accepted only if the peer of the
//! link has sealed it, and none is accepted twice.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use quinn::Connection;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::error::Error;
use crate::rank::Rank;
use crate::transport::wire::Reader;

use super::context_id::ContextId;
use super::control::Frame;
use super::mutex::lock;

const FIRST_BYTE: u8 = 0;
const QUIC_BIT: u8 = 0x40;
const HEAD_BYTES: usize = 17;
const LABEL: &[u8] = b"EXPORTER-nexar-beacon-1";
const KEY_BYTES: usize = 32;
/// Each direction has an id and a key.
const SECRET_BYTES: usize = 8 + KEY_BYTES;

/// The interval of heartbeats while the network is stalled.
const INTERVAL: Duration = Duration::from_millis(250);

/// The number of faults that this process has learned of.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// The beacons of all links, by the id that the peer's datagrams carry.
static BEACONS: OnceLock<Mutex<HashMap<u64, Weak<Beacon>>>> = OnceLock::new();

/// Sends datagrams over the socket of QUIC that are no packets of QUIC.
pub(super) trait BesideQuic: Send + Sync {
    /// Sends one datagram, unless the socket's buffer is full.
    fn send_beside_quic(&self, address: SocketAddr, datagram: &[u8]);
}

/// The faults that beacons carry for the links of a communicator. Peers are ranks of the roster.
pub(super) trait FaultsOfLinks: Send + Sync {
    /// The faults to report to a peer, each short enough for one packet.
    fn short_faults_for(&self, peer: Rank) -> Vec<Frame>;

    /// `peer` reports that a communicator has failed.
    fn report_fault(&self, peer: Rank, context: ContextId, fault: Error);
}

pub(super) struct Beacon {
    links: Weak<dyn FaultsOfLinks>,
    peer: Rank,
    socket: Arc<dyn BesideQuic>,
    address: SocketAddr,
    out: Direction,
    inward: Direction,
    /// The number of the last one that was sent.
    sent: AtomicU64,
    /// The number of the last one that was accepted.
    accepted: AtomicU64,
}

struct Direction {
    id: u64,
    key: LessSafeKey,
}

impl Direction {
    fn new(secret: &[u8; SECRET_BYTES]) -> Option<Self> {
        let mut reader = Reader(secret);
        let id = reader.u64()?;
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, reader.0).ok()?);
        Some(Self { id, key })
    }
}

impl Beacon {
    /// The beacon of a new link from rank `me` of the roster to `peer`. `None` if TLS gives no
    /// keys.
    pub fn new(
        links: Weak<dyn FaultsOfLinks>,
        socket: Arc<dyn BesideQuic>,
        me: Rank,
        peer: Rank,
        connection: &Connection,
    ) -> Option<Arc<Self>> {
        let mut secrets = [[0; SECRET_BYTES]; 2];
        connection.export_keying_material(secrets.as_flattened_mut(), LABEL, b"").ok()?;
        let [lower, higher] = secrets.each_ref().map(Direction::new);
        let (out, inward) = if me < peer { (lower?, higher?) } else { (higher?, lower?) };
        let beacon = Arc::new(Self {
            links,
            peer,
            socket,
            address: connection.remote_address(),
            out,
            inward,
            sent: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
        });
        beacons().insert(beacon.inward.id, Arc::downgrade(&beacon));
        Some(beacon)
    }

    /// The number of the newest accepted beacon; it grows with each.
    pub fn heard(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    fn send(&self, frame: &Frame) {
        let packet = seal(&self.out, self.sent.fetch_add(1, Ordering::Relaxed) + 1, frame);
        if let Some(packet) = packet {
            self.socket.send_beside_quic(self.address, &packet);
        }
    }

    /// Opens a beacon of the peer. Each is accepted once.
    fn accept(&self, number: u64, sealed: &mut [u8]) -> Option<Frame> {
        let frame = open(&self.inward, number, sealed)?;
        (self.accepted.fetch_max(number, Ordering::Relaxed) < number).then_some(frame)
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        beacons().remove(&self.inward.id);
    }
}

fn beacons() -> MutexGuard<'static, HashMap<u64, Weak<Beacon>>> {
    lock(BEACONS.get_or_init(Mutex::default))
}

fn seal(direction: &Direction, number: u64, frame: &Frame) -> Option<Vec<u8>> {
    let mut head = vec![FIRST_BYTE];
    head.extend(direction.id.to_le_bytes());
    head.extend(number.to_le_bytes());
    let mut sealed = frame.encode();
    let aad = Aad::from(&head[..]);
    direction.key.seal_in_place_append_tag(nonce(number), aad, &mut sealed).ok()?;
    head.extend(sealed);
    Some(head)
}

fn open(direction: &Direction, number: u64, sealed: &mut [u8]) -> Option<Frame> {
    let mut head = vec![FIRST_BYTE];
    head.extend(direction.id.to_le_bytes());
    head.extend(number.to_le_bytes());
    let opened = direction.key.open_in_place(nonce(number), Aad::from(&head[..]), sealed).ok()?;
    match Frame::first_of(opened)? {
        (frame, []) => Some(frame),
        _ => None,
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Whether a datagram is no packet of QUIC.
pub(super) fn is_beside_quic(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & QUIC_BIT == 0)
}

/// Processes a datagram that is no packet of QUIC, from any sender.
pub(super) fn received(datagram: &mut [u8]) {
    let Some((head, sealed)) = datagram.split_at_mut_checked(HEAD_BYTES) else { return };
    let mut reader = Reader(head);
    let (Some(FIRST_BYTE), Some(id), Some(number)) = (reader.u8(), reader.u64(), reader.u64())
    else {
        return;
    };
    let beacon = beacons().get(&id).and_then(Weak::upgrade);
    let Some(beacon) = beacon else { return };
    if let (Some(Frame::Fault { context, code, text }), Some(links)) =
        (beacon.accept(number, sealed), beacon.links.upgrade())
    {
        links.report_fault(beacon.peer, context, Error::Reported { code, text });
    }
}

/// Counts a fault of a communicator of this process.
pub(super) fn count_fault() {
    FAULTS.fetch_add(1, Ordering::Release);
}

/// The io thread calls this every few milliseconds while the network is stalled. Sends all linked
/// peers a heartbeat from time to time, and new faults at once.
pub fn on_stall() {
    static LAST: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
    let now = (Instant::now(), FAULTS.load(Ordering::Acquire));
    let mut last = lock(&LAST);
    let is_new = last.is_none_or(|(_, faults)| faults != now.1);
    if !is_new && last.is_some_and(|(at, _)| now.0 - at < INTERVAL) {
        return;
    }
    *last = Some(now);
    drop(last);
    send_all();
}

/// Sends all linked peers a heartbeat and the faults of this process.
pub(super) fn send_all() {
    let all: Vec<_> = beacons().values().filter_map(Weak::upgrade).collect();
    for beacon in all {
        beacon.send(&Frame::Heartbeat(Vec::new()));
        let Some(links) = beacon.links.upgrade() else { continue };
        links.short_faults_for(beacon.peer).iter().for_each(|fault| beacon.send(fault));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn direction(byte: u8) -> Direction {
        Direction::new(&[byte; SECRET_BYTES]).unwrap()
    }

    fn fault() -> Frame {
        Frame::Fault { context: ContextId(7), code: Code::RemoteError, text: "gone".to_owned() }
    }

    #[test]
    fn a_beacon_is_opened_only_by_its_link_and_only_unchanged() {
        let packet = seal(&direction(1), 5, &fault()).unwrap();
        assert!(is_beside_quic(&packet));
        let sealed = || packet[HEAD_BYTES..].to_vec();
        assert_eq!(open(&direction(1), 5, &mut sealed()), Some(fault()));
        assert_eq!(open(&direction(1), 6, &mut sealed()), None, "another number");
        assert_eq!(open(&direction(2), 5, &mut sealed()), None, "another link");
        for at in 0..sealed().len() {
            let mut changed = sealed();
            changed[at] ^= 1;
            assert_eq!(open(&direction(1), 5, &mut changed), None, "byte {at}");
        }
    }

    #[test]
    fn garbage_beside_quic_is_ignored() {
        for length in 0..64 {
            received(&mut vec![0; length]);
        }
        assert!(!is_beside_quic(&[]) && !is_beside_quic(&[0x40]) && !is_beside_quic(&[0xc3]));
    }
}
