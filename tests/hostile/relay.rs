//! A UDP relay between two processes that drops, duplicates, delays, corrupts or records datagrams.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// Network impairments: the first four are percentages of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairments {
    pub lost: u64,
    pub duplicated: u64,
    /// Delivered after the next two datagrams.
    pub reordered: u64,
    pub corrupted: u64,
    /// The bandwidth each way; 0 is unlimited.
    pub bytes_per_ms: u64,
    /// The latency each way.
    pub delay: Duration,
}

/// Forwards datagrams from `address` to a target, and its answers back. Ends when dropped.
pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    front: UdpSocket,
    target: OnceLock<SocketAddr>,
    impairments: Mutex<Impairments>,
    /// `None` unless the relay captures.
    captured: Option<Mutex<Captured>>,
    datagrams: AtomicUsize,
    ended: AtomicBool,
}

/// Datagrams in the order in which they arrived at the relay.
#[derive(Clone, Default)]
pub struct Captured {
    pub to_target: Vec<Vec<u8>>,
    pub from_target: Vec<Vec<u8>>,
}

impl Relay {
    pub fn start(impairments: Impairments, seed: u64) -> Self {
        Self::new(impairments, seed, None)
    }

    /// A relay without impairments that records all datagrams.
    pub fn capturing() -> Self {
        Self::new(Impairments::default(), 0, Some(Mutex::default()))
    }

    fn new(impairments: Impairments, seed: u64, captured: Option<Mutex<Captured>>) -> Self {
        let front = socket();
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared {
            front,
            target: OnceLock::new(),
            impairments: Mutex::new(impairments),
            captured,
            datagrams: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let forwarding = Arc::clone(&shared);
        thread::spawn(move || forward(&forwarding, seed));
        Self { address, shared }
    }

    pub fn set_target(&self, target: SocketAddr) {
        self.shared.target.set(target).unwrap();
    }

    pub fn set_impairments(&self, impairments: Impairments) {
        *self.shared.impairments.lock().unwrap() = impairments;
    }

    pub fn captured(&self) -> Captured {
        let captured = self.shared.captured.as_ref().expect("a capturing relay");
        captured.lock().unwrap().clone()
    }

    pub fn datagrams(&self) -> usize {
        self.shared.datagrams.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

/// Starts a relay to each address in the arguments, which follow a seed, and changes impairments at
/// random. Prints the addresses of the relays and runs until stdin is closed.
pub fn serve(mut arguments: impl Iterator<Item = String>) {
    let seed: u64 = arguments.next().and_then(|seed| seed.parse().ok()).expect("a seed");
    let start = |(number, target): (u64, String)| {
        let relay = Relay::start(Impairments::default(), seed + 100 * number);
        relay.set_target(target.parse().expect("an address"));
        relay
    };
    let relays: Vec<_> = (0..).zip(arguments).map(start).collect();
    let addresses: Vec<_> = relays.iter().map(|relay| relay.address.to_string()).collect();
    println!("{}", addresses.join(" "));
    let ended = Arc::new(AtomicBool::new(false));
    let stdin_closed = Arc::clone(&ended);
    thread::spawn(move || {
        let _ = std::io::stdin().lines().count();
        stdin_closed.store(true, Ordering::Relaxed);
    });
    let mut dice = Dice::new(seed);
    while !ended.load(Ordering::Relaxed) {
        let relay = &relays[dice.below(relays.len() as u64) as usize];
        relay.set_impairments(Impairments::random(&mut dice));
        thread::sleep(Duration::from_millis(50 + dice.below(200)));
    }
    println!("{} datagrams relayed", relays.iter().map(Relay::datagrams).sum::<usize>());
}

impl Impairments {
    /// None in half of the cases, a black hole in 1 of 20.
    fn random(dice: &mut Dice) -> Self {
        match dice.below(20) {
            0..10 => Self::default(),
            10 => Self { lost: 100, ..Self::default() },
            _ => Self {
                lost: dice.below(6),
                duplicated: dice.below(6),
                reordered: dice.below(11),
                corrupted: dice.below(2),
                bytes_per_ms: 0,
                delay: Duration::from_millis(dice.below(6)),
            },
        }
    }
}

/// A socket with a large receive buffer, whose reads time out after 2 ms.
fn socket() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    socket.into()
}

/// Forwards datagrams from clients to the target. Each client gets a socket and a thread for the
/// answers.
fn forward(shared: &Arc<Shared>, seed: u64) {
    let mut clients: HashMap<SocketAddr, (Arc<UdpSocket>, Impairer)> = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    while !shared.ended.load(Ordering::Relaxed) {
        let received = shared.front.recv_from(&mut buffer);
        for (socket, impairer) in clients.values_mut() {
            impairer.release(received.is_err(), |datagram| drop(socket.send(datagram)));
        }
        let (Ok((length, from)), Some(target)) = (received, shared.target.get()) else { continue };
        let number = clients.len() as u64;
        let (to_target, impairer) = clients.entry(from).or_insert_with(|| {
            let to_target = Arc::new(socket());
            to_target.connect(target).unwrap();
            let (answers, shared) = (Arc::clone(&to_target), Arc::clone(shared));
            thread::spawn(move || forward_answers(&shared, &answers, from, seed + 1000 + number));
            (to_target, Impairer::new(seed + number))
        });
        let impairments = shared.record(&buffer[..length], |captured| &mut captured.to_target);
        let send = |datagram: &[u8]| drop(to_target.send(datagram));
        impairer.impair(impairments, &buffer[..length], send);
    }
}

fn forward_answers(shared: &Shared, target: &UdpSocket, to: SocketAddr, seed: u64) {
    let mut impairer = Impairer::new(seed);
    let mut buffer = vec![0; 1 << 16];
    let send = |datagram: &[u8]| drop(shared.front.send_to(datagram, to));
    while !shared.ended.load(Ordering::Relaxed) {
        let received = target.recv(&mut buffer);
        impairer.release(received.is_err(), send);
        if let Ok(length) = received {
            let impairments =
                shared.record(&buffer[..length], |captured| &mut captured.from_target);
            impairer.impair(impairments, &buffer[..length], send);
        }
    }
}

impl Shared {
    /// Counts and captures a datagram, and sleeps for its transmission time. Returns the
    /// impairments.
    fn record(
        &self,
        datagram: &[u8],
        direction: impl Fn(&mut Captured) -> &mut Vec<Vec<u8>>,
    ) -> Impairments {
        self.datagrams.fetch_add(1, Ordering::Relaxed);
        if let Some(captured) = &self.captured {
            direction(&mut captured.lock().unwrap()).push(datagram.to_vec());
        }
        let impairments = *self.impairments.lock().unwrap();
        if let Some(us) = (1000 * datagram.len() as u64).checked_div(impairments.bytes_per_ms) {
            thread::sleep(Duration::from_micros(us));
        }
        impairments
    }
}

/// Impairs the datagrams of one direction.
struct Impairer {
    dice: Dice,
    /// Datagrams held back, each with the number of datagrams that are still sent before it.
    reordered: Vec<(usize, Vec<u8>)>,
    /// Datagrams in flight, each with its time of arrival.
    delayed: VecDeque<(Instant, Vec<u8>)>,
}

impl Impairer {
    fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), reordered: Vec::new(), delayed: VecDeque::new() }
    }

    fn impair(&mut self, impairments: Impairments, datagram: &[u8], mut send: impl FnMut(&[u8])) {
        let mut happens = |percent: u64| self.dice.below(100) < percent;
        let (lost, duplicated) = (happens(impairments.lost), happens(impairments.duplicated));
        let (reordered, corrupted) =
            (happens(impairments.reordered), happens(impairments.corrupted));
        let mut datagram = datagram.to_vec();
        if corrupted && !datagram.is_empty() {
            let at = self.dice.below(datagram.len() as u64) as usize;
            datagram[at] ^= 1 << self.dice.below(8);
        }
        match (lost, reordered) {
            (true, _) => {}
            (_, true) => self.reordered.push((3, datagram)),
            _ if !impairments.delay.is_zero() => {
                let copies = if duplicated { 2 } else { 1 };
                let arrives = (Instant::now() + impairments.delay, datagram);
                self.delayed.extend(std::iter::repeat_n(arrives, copies));
            }
            _ => {
                send(&datagram);
                if duplicated {
                    send(&datagram);
                }
            }
        }
        self.reordered.iter_mut().for_each(|(before, _)| *before -= 1);
        self.reordered.retain(|(before, datagram)| {
            if *before == 0 {
                send(datagram);
            }
            *before > 0
        });
    }

    /// Sends the delayed datagrams that are due, and on an idle line also those held back.
    fn release(&mut self, is_idle: bool, mut send: impl FnMut(&[u8])) {
        while self.delayed.front().is_some_and(|(arrives, _)| *arrives <= Instant::now()) {
            self.delayed.pop_front().into_iter().for_each(|(_, datagram)| send(&datagram));
        }
        if is_idle {
            self.reordered.drain(..).for_each(|(_, datagram)| send(&datagram));
        }
    }
}

/// A deterministic generator of random numbers: xorshift64*.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}
