//! A relay between two processes that loses, doubles, delays, changes and writes down datagrams.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// What happens to datagrams, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    pub lost: u64,
    pub doubled: u64,
    /// Overtaken by the next two.
    pub late: u64,
    pub changed: u64,
    /// How many bytes come through in a millisecond each way; 0 for all.
    pub bytes_per_ms: u64,
    /// How long each is under way.
    pub delay: Duration,
}

/// Forwards what comes to `address` to a target, and its answers back. Ends when dropped.
pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    front: UdpSocket,
    target: OnceLock<SocketAddr>,
    trouble: Mutex<Trouble>,
    /// For tests that inspect it.
    captured: Option<Mutex<Captured>>,
    datagrams: AtomicUsize,
    ended: AtomicBool,
}

/// Datagrams in the order they came by.
#[derive(Clone, Default)]
pub struct Captured {
    pub to_target: Vec<Vec<u8>>,
    pub from_target: Vec<Vec<u8>>,
}

impl Relay {
    pub fn start(trouble: Trouble, seed: u64) -> Self {
        Self::new(trouble, seed, None)
    }

    /// One that changes nothing and writes down what it sees.
    pub fn watching() -> Self {
        Self::new(Trouble::default(), 0, Some(Mutex::default()))
    }

    fn new(trouble: Trouble, seed: u64, captured: Option<Mutex<Captured>>) -> Self {
        let front = socket();
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared {
            front,
            target: OnceLock::new(),
            trouble: Mutex::new(trouble),
            captured,
            datagrams: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let forwarding = Arc::clone(&shared);
        thread::spawn(move || forward(&forwarding, seed));
        Self { address, shared }
    }

    pub fn lead_to(&self, target: SocketAddr) {
        self.shared.target.set(target).unwrap();
    }

    /// From now on another trouble.
    pub fn change(&self, trouble: Trouble) {
        *self.shared.trouble.lock().unwrap() = trouble;
    }

    pub fn captured(&self) -> Captured {
        let captured = self.shared.captured.as_ref().expect("it watches");
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

/// Relays with ever changing trouble to the addresses among the arguments, which a seed precedes.
/// Says where they are, and goes on until nobody listens any more.
pub fn serve(mut arguments: impl Iterator<Item = String>) {
    let seed: u64 = arguments.next().and_then(|seed| seed.parse().ok()).expect("a seed");
    let lead = |(number, target): (u64, String)| {
        let relay = Relay::start(Trouble::default(), seed + 100 * number);
        relay.lead_to(target.parse().expect("an address"));
        relay
    };
    let relays: Vec<_> = (0..).zip(arguments).map(lead).collect();
    let addresses: Vec<_> = relays.iter().map(|relay| relay.address.to_string()).collect();
    println!("{}", addresses.join(" "));
    let ended = Arc::new(AtomicBool::new(false));
    let listening = Arc::clone(&ended);
    thread::spawn(move || {
        let _ = std::io::stdin().lines().count();
        listening.store(true, Ordering::Relaxed);
    });
    let mut dice = Dice::new(seed);
    while !ended.load(Ordering::Relaxed) {
        relays[dice.below(relays.len() as u64) as usize].change(Trouble::drawn(&mut dice));
        thread::sleep(Duration::from_millis(50 + dice.below(200)));
    }
    println!("{} datagrams relayed", relays.iter().map(Relay::datagrams).sum::<usize>());
}

impl Trouble {
    /// Half of the time none; now and then a moment in which nothing comes through.
    fn drawn(dice: &mut Dice) -> Self {
        match dice.below(20) {
            0..10 => Self::default(),
            10 => Self { lost: 100, ..Self::default() },
            _ => Self {
                lost: dice.below(6),
                doubled: dice.below(6),
                late: dice.below(11),
                changed: dice.below(2),
                bytes_per_ms: 0,
                delay: Duration::from_millis(dice.below(6)),
            },
        }
    }
}

/// A socket with room for bursts, whose reads give up now and then.
fn socket() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    socket.into()
}

/// From those who dial the relay to its target; a way back is opened for each of them.
fn forward(shared: &Arc<Shared>, seed: u64) {
    let mut ways: HashMap<SocketAddr, (Arc<UdpSocket>, Fate)> = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    while !shared.ended.load(Ordering::Relaxed) {
        let received = shared.front.recv_from(&mut buffer);
        for (back, fate) in ways.values_mut() {
            fate.pass(received.is_err(), |datagram| drop(back.send(datagram)));
        }
        let (Ok((length, from)), Some(target)) = (received, shared.target.get()) else { continue };
        let number = ways.len() as u64;
        let (back, fate) = ways.entry(from).or_insert_with(|| {
            let back = Arc::new(socket());
            back.connect(target).unwrap();
            let (answers, shared) = (Arc::clone(&back), Arc::clone(shared));
            thread::spawn(move || answer(&shared, &answers, from, seed + 1000 + number));
            (back, Fate::new(seed + number))
        });
        let trouble = shared.note(&buffer[..length], |captured| &mut captured.to_target);
        fate.meet(trouble, &buffer[..length], |datagram| drop(back.send(datagram)));
    }
}

fn answer(shared: &Shared, back: &UdpSocket, to: SocketAddr, seed: u64) {
    let mut fate = Fate::new(seed);
    let mut buffer = vec![0; 1 << 16];
    let send = |datagram: &[u8]| drop(shared.front.send_to(datagram, to));
    while !shared.ended.load(Ordering::Relaxed) {
        let received = back.recv(&mut buffer);
        fate.pass(received.is_err(), send);
        if let Ok(length) = received {
            let trouble = shared.note(&buffer[..length], |captured| &mut captured.from_target);
            fate.meet(trouble, &buffer[..length], send);
        }
    }
}

impl Shared {
    /// Takes the time that a slow line takes, and says what happens to the datagram.
    fn note(
        &self,
        datagram: &[u8],
        direction: impl Fn(&mut Captured) -> &mut Vec<Vec<u8>>,
    ) -> Trouble {
        self.datagrams.fetch_add(1, Ordering::Relaxed);
        if let Some(captured) = &self.captured {
            direction(&mut captured.lock().unwrap()).push(datagram.to_vec());
        }
        let trouble = *self.trouble.lock().unwrap();
        if let Some(us) = (1000 * datagram.len() as u64).checked_div(trouble.bytes_per_ms) {
            thread::sleep(Duration::from_micros(us));
        }
        trouble
    }
}

/// What becomes of the datagrams of one direction.
struct Fate {
    dice: Dice,
    /// Datagrams held back, and how many may overtake them.
    late: Vec<(usize, Vec<u8>)>,
    /// Those under way, and when they arrive.
    delayed: VecDeque<(Instant, Vec<u8>)>,
}

impl Fate {
    fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), late: Vec::new(), delayed: VecDeque::new() }
    }

    fn meet(&mut self, trouble: Trouble, datagram: &[u8], mut send: impl FnMut(&[u8])) {
        let mut happens = |percent: u64| self.dice.below(100) < percent;
        let (lost, doubled) = (happens(trouble.lost), happens(trouble.doubled));
        let (late, changed) = (happens(trouble.late), happens(trouble.changed));
        let mut datagram = datagram.to_vec();
        if changed && !datagram.is_empty() {
            let at = self.dice.below(datagram.len() as u64) as usize;
            datagram[at] ^= 1 << self.dice.below(8);
        }
        match (lost, late) {
            (true, _) => {}
            (_, true) => self.late.push((3, datagram)),
            _ if !trouble.delay.is_zero() => {
                let copies = if doubled { 2 } else { 1 };
                let arrives = (Instant::now() + trouble.delay, datagram);
                self.delayed.extend(std::iter::repeat_n(arrives, copies));
            }
            _ => {
                send(&datagram);
                if doubled {
                    send(&datagram);
                }
            }
        }
        self.late.iter_mut().for_each(|(overtaken, _)| *overtaken -= 1);
        self.late.retain(|(overtaken, datagram)| {
            if *overtaken == 0 {
                send(datagram);
            }
            *overtaken > 0
        });
    }

    /// Time passes. If nothing comes that could overtake, the late ones arrive.
    fn pass(&mut self, nothing_comes: bool, mut send: impl FnMut(&[u8])) {
        while self.delayed.front().is_some_and(|(arrives, _)| *arrives <= Instant::now()) {
            self.delayed.pop_front().into_iter().for_each(|(_, datagram)| send(&datagram));
        }
        if nothing_comes {
            self.late.drain(..).for_each(|(_, datagram)| send(&datagram));
        }
    }
}

/// The same numbers in every run: xorshift64*.
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
