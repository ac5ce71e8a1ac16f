//! Floods every port with garbage datagrams: how much they slow down initialisation and all-reduce.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::process::{Process, ask_all, slowest};
use super::relay::{Dice, Relay};
use super::wire::behind;
use super::{Case, report, row, times};

pub const CASES: [Case; 1] = [("garbage_at_every_port_does_not_slow_ranks_down", garbage)];

/// The target of the garbage.
#[derive(Clone, Copy, PartialEq)]
enum Flood {
    None,
    /// A socket that no process reads: shows the cost of sending alone.
    Elsewhere,
    AtRanks,
}

/// Datagrams per second, to all ports in turn.
const FLOOD: f64 = 10_000.0;

/// Alternates rounds without and with a flood, and measures joining and reducing.
fn garbage() {
    let mut ranks: Vec<_> = (0..3).map(|_| Process::start(&[])).collect();
    // Creating an id opens the socket.
    ranks.iter_mut().for_each(|rank| drop(rank.id()));
    let ports: Vec<_> = ranks.iter_mut().map(Process::address).collect();
    let unread = UdpSocket::bind("127.0.0.1:0").unwrap();
    let elsewhere = [unread.local_addr().unwrap()];
    let garbage = Arc::new(garbage_of_all_kinds());
    let mut joins: [Vec<f64>; 3] = Default::default();
    let mut reductions: [Vec<f64>; 3] = Default::default();
    let (mut before, mut sent) = (Vec::new(), 0);
    for round in 0..=times(1, 80) {
        for flood in [Flood::None, Flood::Elsewhere, Flood::AtRanks] {
            let flooder = match flood {
                Flood::None => None,
                Flood::Elsewhere => Some(Flooder::start(&elsewhere, &garbage)),
                Flood::AtRanks => Some(Flooder::start(&ports, &garbage)),
            };
            let (joined, reduced) = join_and_reduce(&mut ranks);
            sent += flooder.map_or(0, Flooder::end);
            // The first round only allocates the memory that a rank needs without a flood.
            if round > 0 {
                joins[flood as usize].push(joined);
                reductions[flood as usize].push(reduced);
            }
        }
        if round == 0 {
            before = ranks.iter().map(Process::most_resident).collect();
        }
    }
    let grown = ranks.iter().zip(&before).map(|(rank, before)| rank.most_resident() - before);
    let grown: Vec<_> = grown.map(|kib| kib as f64).collect();
    let rounds = joins[0].len();
    let medians = |values: &[Vec<f64>; 3]| values.clone().map(median);
    report(format!("{sent} datagrams sent"));
    report(format!("to join, quiet, flooded elsewhere, flooded: {:.1?} ms", medians(&joins)));
    report(format!("4 MB all-reduce, as well: {:.1?} ms", medians(&reductions)));
    for (name, against) in [("the same flood elsewhere", 1), ("quiet", 0)] {
        // The ratio is taken within each round, because other load on the machine changes slowly.
        let ratio = |values: &[Vec<f64>; 3]| {
            let pairs = values[2].iter().zip(&values[against]);
            median(pairs.map(|(flooded, other)| flooded / other).collect())
        };
        let longer =
            format!("garbage at every port, 10,000 a second in all: time to join, against {name}");
        row(&longer, rounds, 200.0, "%", &[100.0 * ratio(&joins)]);
        let lost = format!(
            "garbage at every port, 10,000 a second in all: throughput lost, against {name}"
        );
        row(&lost, rounds, 10.0, "%", &[100.0 * (1.0 - 1.0 / ratio(&reductions)).max(0.0)]);
    }
    row("garbage at every port, 10,000 a second in all: memory", rounds, 16384.0, "KiB", &grown);
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
}

/// Three ranks create a communicator, reduce 4 MB four times, and destroy it. Returns, in ms, the
/// slowest rank's time to join and the median of the slowest rank's times to reduce.
pub fn join_and_reduce(ranks: &mut [Process]) -> (f64, f64) {
    let hex = ranks[0].id();
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("join {hex} {number} 3"));
    }
    let joined: Vec<_> = ranks.iter_mut().map(|rank| rank.answer().succeeded()).collect();
    let mut spans = Vec::new();
    for _ in 0..4 {
        let answers = ask_all(ranks, "allreduce 1000000");
        assert!(answers.iter().all(|answer| answer.text == "exact"), "{answers:?}");
        spans.push(slowest(&answers));
    }
    ask_all(ranks, "destroy");
    (slowest(&joined), median(spans))
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Sends garbage at a constant rate until `end`.
struct Flooder {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Flooder {
    fn start(targets: &[SocketAddr], garbage: &Arc<Vec<Vec<u8>>>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (targets, garbage, stop) = (targets.to_vec(), Arc::clone(garbage), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let (began, mut sent) = (Instant::now(), 0);
            let mut datagrams = garbage.iter().cycle().zip(targets.iter().cycle());
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let due = (began.elapsed().as_secs_f64() * FLOOD) as usize;
                for (datagram, target) in datagrams.by_ref().take(due - sent) {
                    let _ = socket.send_to(datagram, target);
                }
                sent = due;
            }
            sent
        });
        Self { ended, thread }
    }

    fn end(self) -> usize {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Random bytes, real packets of another communicator, and truncated packets of it.
fn garbage_of_all_kinds() -> Vec<Vec<u8>> {
    let relays = [(); 2].map(|()| Relay::capturing());
    let (mut ranks, _) = behind(&relays);
    ask_all(&mut ranks, "allreduce 10000").into_iter().for_each(|answer| drop(answer.succeeded()));
    let mut dice = Dice::new(3);
    let mut garbage: Vec<_> = (0..1000).map(|_| random_datagram(&mut dice)).collect();
    for packet in relays.iter().flat_map(|relay| relay.captured().to_target) {
        let cut = packet[..dice.below(packet.len() as u64) as usize].to_vec();
        garbage.extend([cut, packet]);
    }
    garbage
}

/// Random bytes. Five of six datagrams begin like a QUIC packet.
fn random_datagram(dice: &mut Dice) -> Vec<u8> {
    let length = dice.below(1500) as usize;
    let mut bytes: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
    let begin: &[u8] = match dice.below(6) {
        0 => &[0xc3, 0, 0, 0, 1, 8],          // Initial
        1 => &[0xe3, 0, 0, 0, 1, 20],         // Handshake
        2 => &[0xf0, 0, 0, 0, 1, 8],          // Retry
        3 => &[0x80, 0, 0, 0, 0, 8],          // version negotiation
        4 => &[0xc0, 0xfa, 0xce, 0xb0, 0x0c], // an unknown version
        _ => &[],
    };
    let shared = begin.len().min(length);
    bytes[..shared].copy_from_slice(&begin[..shared]);
    bytes
}
