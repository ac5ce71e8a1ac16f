//! A relay between two processes that loses, doubles, delays, changes and writes down datagrams.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// What happens to datagrams, in percent.
#[derive(Clone, Copy, Default)]
pub struct Trouble {
    pub lost: u64,
    pub doubled: u64,
    /// Let overtake by the next three.
    pub late: u64,
    pub changed: u64,
    /// How many bytes come through in a millisecond each way; 0 for all.
    pub bytes_per_ms: u64,
}

/// Forwards what comes to `address` to a target, and its answers back. Ends when dropped.
pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    front: UdpSocket,
    target: OnceLock<SocketAddr>,
    trouble: Trouble,
    captured: Mutex<Vec<u8>>,
    datagrams: AtomicUsize,
    ended: AtomicBool,
}

impl Relay {
    pub fn start(trouble: Trouble, seed: u64) -> Self {
        let front = socket();
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared {
            front,
            target: OnceLock::new(),
            trouble,
            captured: Mutex::default(),
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

    /// Every byte that came by, both ways.
    pub fn captured(&self) -> Vec<u8> {
        self.shared.captured.lock().unwrap().clone()
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

/// A socket with room for bursts, whose reads give up now and then.
fn socket() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    socket.into()
}

/// From those who dial the relay to its target; a way back is opened for each of them.
fn forward(shared: &Arc<Shared>, seed: u64) {
    let mut ways: HashMap<SocketAddr, (Arc<UdpSocket>, Fate)> = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    while !shared.ended.load(Ordering::Relaxed) {
        let Ok((length, from)) = shared.front.recv_from(&mut buffer) else {
            ways.values_mut().for_each(|(back, fate)| fate.release(|late| drop(back.send(late))));
            continue;
        };
        let Some(target) = shared.target.get() else { continue };
        let number = ways.len() as u64;
        let (back, fate) = ways.entry(from).or_insert_with(|| {
            let back = Arc::new(socket());
            back.connect(target).unwrap();
            let (answers, shared) = (Arc::clone(&back), Arc::clone(shared));
            thread::spawn(move || answer(&shared, &answers, from, seed + 1000 + number));
            (back, Fate::new(seed + number))
        });
        shared.note(&buffer[..length]);
        shared.trouble.hold_up(length);
        fate.meet(shared.trouble, &buffer[..length], |datagram| drop(back.send(datagram)));
    }
}

fn answer(shared: &Shared, back: &UdpSocket, to: SocketAddr, seed: u64) {
    let mut fate = Fate::new(seed);
    let mut buffer = vec![0; 1 << 16];
    let send = |datagram: &[u8]| drop(shared.front.send_to(datagram, to));
    while !shared.ended.load(Ordering::Relaxed) {
        match back.recv(&mut buffer) {
            Ok(length) => {
                shared.note(&buffer[..length]);
                shared.trouble.hold_up(length);
                fate.meet(shared.trouble, &buffer[..length], send);
            }
            Err(_) => fate.release(send),
        }
    }
}

impl Trouble {
    /// Takes the time that a slow line takes.
    fn hold_up(&self, bytes: usize) {
        if let Some(us) = (1000 * bytes as u64).checked_div(self.bytes_per_ms) {
            thread::sleep(Duration::from_micros(us));
        }
    }
}

impl Shared {
    fn note(&self, datagram: &[u8]) {
        self.captured.lock().unwrap().extend_from_slice(datagram);
        self.datagrams.fetch_add(1, Ordering::Relaxed);
    }
}

/// What becomes of the datagrams of one direction.
struct Fate {
    dice: Dice,
    /// Datagrams held back, and how many may overtake them.
    late: Vec<(usize, Vec<u8>)>,
}

impl Fate {
    fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), late: Vec::new() }
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

    /// Nothing comes that could overtake.
    fn release(&mut self, mut send: impl FnMut(&[u8])) {
        self.late.drain(..).for_each(|(_, datagram)| send(&datagram));
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
