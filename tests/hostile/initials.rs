//! Floods of half-open handshakes: an unauthenticated host sends well-formed QUIC Initials, each
//! with the first bytes of a long ClientHello, and never completes them. They need no key, and each
//! occupies one of the limited number of pending handshakes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::Side;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::Version;

use super::garbage::{join_and_reduce, median};
use super::process::Process;
use super::relay::Dice;
use super::{Case, report, row, times};

pub const CASES: [Case; 2] = [
    ("handshakes_that_do_not_go_on_do_not_delay_joins", one_address),
    ("handshakes_of_many_addresses_that_do_not_go_on_do_not_delay_joins", many_addresses),
];

/// Initials per second, all to the port of the root.
const FLOOD: f64 = 10_000.0;
/// Set in the process inside the network namespace that has the addresses of the senders.
const SOURCES: &str = "HOSTILE_SOURCES";

fn one_address() {
    flooded("Initials from the same host", &[Ipv4Addr::LOCALHOST.into()]);
}

/// Needs root: starts this program again in a network namespace with 13 addresses, one for the
/// ranks and the others for the senders of Initials.
fn many_addresses() {
    const NAME: &str = "handshakes_of_many_addresses";
    if std::env::var_os(SOURCES).is_some() {
        let sources: Vec<IpAddr> = (2..=13).map(|last| [10, 79, 0, last].into()).collect();
        return flooded("Initials from 12 addresses", &sources);
    }
    let network = "ip link set lo up && for i in $(seq 13); do ip addr add 10.79.0.$i/32 dev lo \
                   || exit; done; exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", network]).arg(std::env::current_exe().unwrap()).arg(NAME);
    let Some(ran) = command.env(SOURCES, "1").output().ok().filter(|ran| !ran.stdout.is_empty())
    else {
        return report("skipped: only root can create a network".to_owned());
    };
    let text = String::from_utf8_lossy(&ran.stdout);
    text.lines()
        .filter(|line| line.starts_with(' '))
        .for_each(|line| report(line.trim().to_owned()));
    assert!(ran.status.success(), "{text}");
}

/// Alternates rounds without and with a flood, and measures how long three ranks take to join and
/// to reduce.
fn flooded(name: &str, sources: &[IpAddr]) {
    let mut ranks: Vec<_> = (0..3).map(|_| Process::start(&[])).collect();
    // Creating an id opens the socket.
    ranks.iter_mut().for_each(|rank| drop(rank.id()));
    let target = ranks[0].address();
    let mut joins: [Vec<f64>; 2] = Default::default();
    let mut reductions: [Vec<f64>; 2] = Default::default();
    let mut sent = 0;
    for _ in 0..times(3, 80) {
        for is_flooded in [false, true] {
            let flood = is_flooded.then(|| Flood::start(target, sources));
            let (joined, reduced) = join_and_reduce(&mut ranks);
            sent += flood.map_or(0, Flood::end);
            joins[usize::from(is_flooded)].push(joined);
            reductions[usize::from(is_flooded)].push(reduced);
        }
    }
    let rounds = joins[0].len();
    let longest = joins[1].iter().copied().fold(0.0, f64::max);
    report(format!("{sent} Initials sent"));
    report(format!("to join, quiet, flooded: {:.1?} ms", joins.clone().map(median)));
    report(format!("to join, flooded, at most: {longest:.1} ms"));
    report(format!("4 MB all-reduce, quiet, flooded: {:.1?} ms", reductions.map(median)));
    let ratio =
        median(joins[1].iter().zip(&joins[0]).map(|(flooded, quiet)| flooded / quiet).collect());
    row(&format!("{name}, 10,000 a second: time to join"), rounds, 200.0, "%", &[100.0 * ratio]);
    row(&format!("{name}, 10,000 a second: longest time to join"), rounds, 1000.0, "ms", &joins[1]);
    // Generous, because the machine may be busy. Without a limit of handshakes it was 20 s.
    assert!(longest < 5000.0, "{longest} ms to join");
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
}

/// Initials for two seconds, created in advance so that their encryption takes no CPU time from the
/// ranks. The target has discarded each handshake before its Initial is sent again.
static INITIALS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut dice = Dice::new(7);
    (0..2 * FLOOD as usize).map(|_| initial(&mut dice, None)).collect()
});

/// Sends Initials at a constant rate until `end`.
struct Flood {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Flood {
    /// Returns when 2,000 Initials were sent: more than the limit of pending handshakes.
    fn start(target: SocketAddr, sources: &[IpAddr]) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let socket = |ip: &IpAddr| {
            let socket = UdpSocket::bind((*ip, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let sockets: Vec<_> = sources.iter().map(socket).collect();
        let (limit, limit_reached) = channel();
        let initials = &*INITIALS;
        let thread = std::thread::spawn(move || {
            let (began, mut sent, mut dice) = (Instant::now(), 0, Dice::new(8));
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let due = (began.elapsed().as_secs_f64() * FLOOD) as usize;
                for number in sent..due {
                    let socket = &sockets[number % sockets.len()];
                    let _ = socket.send_to(&initials[number % initials.len()], target);
                }
                sent = due;
                if sent >= 2000 {
                    let _ = limit.send(());
                }
                for socket in &sockets {
                    prove_address(socket, target, &mut dice);
                }
            }
            sent
        });
        limit_reached.recv().unwrap();
        Self { ended, thread }
    }

    fn end(self) -> usize {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Answers the Retry packets of the target: returns each token from the same address.
fn prove_address(socket: &UdpSocket, target: SocketAddr, dice: &mut Dice) {
    let mut datagram = [0; 2048];
    while let Ok(length) = socket.recv(&mut datagram) {
        if let Some(retry) = Retry::parse(&datagram[..length]) {
            let _ = socket.send_to(&initial(dice, Some(retry)), target);
        }
    }
}

/// A Retry packet (RFC 9000, 17.2.5): the server's connection id, and the token to return.
struct Retry<'a> {
    server: &'a [u8],
    token: &'a [u8],
}

impl<'a> Retry<'a> {
    fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (head, rest) = datagram.split_at_checked(5)?;
        (head[0] & 0xf0 == 0xf0).then_some(())?;
        let (length, rest) = rest.split_first()?;
        let (length, rest) = rest.get(usize::from(*length)..)?.split_first()?;
        let (server, rest) = rest.split_at_checked(usize::from(*length))?;
        Some(Self { server, token: rest.get(..rest.len().checked_sub(16)?)? })
    }
}

/// A datagram of 1,200 bytes that begins a handshake, as in RFC 9000, 17.2.2 and RFC 9001, 5.
fn initial(dice: &mut Dice, retry: Option<Retry<'_>>) -> Vec<u8> {
    const NUMBER_BYTES: usize = 4;
    const TAG_BYTES: usize = 16;
    let mut random = |count: usize| (0..count).map(|_| dice.below(256) as u8).collect::<Vec<_>>();
    let (own, first) = (random(8), random(8));
    let (server, token) = retry.map_or((&first[..], &[][..]), |retry| (retry.server, retry.token));
    let mut packet = vec![0xc3, 0, 0, 0, 1, server.len() as u8];
    packet.extend(server);
    packet.push(own.len() as u8);
    packet.extend(own);
    packet.extend((0x4000 | token.len() as u16).to_be_bytes());
    packet.extend(token);
    let rest = 1200 - packet.len() - 2;
    packet.extend((0x4000 | rest as u16).to_be_bytes());
    let number = packet.len();
    packet.extend([0; NUMBER_BYTES]);
    // A CRYPTO frame of 38 bytes: the header of a ClientHello of 1,024 bytes, its version and its
    // random number.
    let mut payload = vec![6, 0, 38, 1, 0, 4, 0, 3, 3];
    payload.extend(random(32));
    payload.resize(rest - NUMBER_BYTES - TAG_BYTES, 0);

    let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap().quic_suite().unwrap();
    let keys = suite.keys(server, Side::Client, Version::V1).local;
    let tag = keys.packet.encrypt_in_place(0, &packet, &mut payload).unwrap();
    packet.extend(payload);
    packet.extend(tag.as_ref());
    let (head, body) = packet.split_at_mut(number + NUMBER_BYTES);
    let (first, head) = head.split_first_mut().unwrap();
    let number = &mut head[number - 1..];
    keys.header.encrypt_in_place(&body[..16], first, number).unwrap();
    packet
}
