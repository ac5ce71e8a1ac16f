//! Handshakes under way: how many there may be, and which one is evicted when there are too many.
//!
//! Any stranger can begin a handshake and then stall it. A handshake is *opening* until its
//! ClientHello is complete, which for an honest dialler is its first datagram; from then on it is
//! *proceeding*. Leaves to `endpoint` the handshake itself. Invariant: when there are too many,
//! sources that hold many stalled handshakes lose slots to new ones, and a handshake that proceeds
//! at an honest pace keeps its slot.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::mutex::lock;

/// Handshakes under way, at most.
const MOST: usize = 128;
/// The most from one address. Loopback is not limited: all ranks of a host share it.
const MOST_OF_ADDRESS: usize = 16;
/// Handshakes of one socket that may be opening. A process has one socket, and its handshakes do
/// not stay in this state; further ones from such a socket are ignored.
const MOST_OF_SOCKET: usize = 4;
/// Handshakes that may be opening with an unvalidated address. Beyond that loopback must validate
/// its address too: that takes the dialler a round trip, and a stranger that does not answer gets
/// no slot.
const MOST_UNPROVED: usize = 16;
/// A handshake that proceeds this long may lose its slot.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Handshakes(Mutex<HandshakeSlots>);

/// The slots in use, the oldest first.
#[derive(Default)]
struct HandshakeSlots {
    under_way: VecDeque<Handshake>,
    next: u64,
}

struct Handshake {
    number: u64,
    from: Source,
    is_proved: bool,
    progress: Progress,
    /// Dropped to end the handshake.
    _end: oneshot::Sender<()>,
}

/// A socket, and the network that it is in.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Source {
    network: IpAddr,
    socket: SocketAddr,
}

enum Progress {
    Opening,
    Proceeding { since: Instant },
}

/// How to answer a new handshake.
pub enum Admission {
    /// Do not answer.
    Ignore,
    /// Send a QUIC Retry, which validates the address.
    Retry,
    /// Refuse it; it may be tried again. All slots are taken.
    Refuse,
    Take(HandshakeGuard),
}

/// A handshake's slot, freed when dropped.
pub struct HandshakeGuard {
    number: u64,
    handshakes: Arc<Handshakes>,
    end: oneshot::Receiver<()>,
}

impl Handshakes {
    pub fn admit(self: &Arc<Self>, socket: SocketAddr, is_proved: bool) -> Admission {
        let mut slots = lock(&self.0);
        let from = Source::of(socket);
        let is_loopback = from.network.is_loopback();
        let of_socket = slots.count(|one| one.from == from && one.is_opening());
        if of_socket >= MOST_OF_SOCKET {
            return Admission::Ignore;
        }
        let unproved = slots.count(|one| one.is_opening() && !one.is_proved);
        if !is_proved && (!is_loopback || unproved >= MOST_UNPROVED) {
            return Admission::Retry;
        }
        let of_network = slots.count(|one| one.from.network == from.network);
        let is_crowded = !is_loopback && of_network >= MOST_OF_ADDRESS;
        let is_full = slots.under_way.len() >= MOST;
        if (is_crowded || is_full) && !slots.evict_for(from, is_crowded) {
            return if of_socket == 0 { Admission::Refuse } else { Admission::Ignore };
        }
        let number = slots.next;
        slots.next += 1;
        let (sender, end) = oneshot::channel();
        let progress = Progress::Opening;
        slots.under_way.push_back(Handshake { number, from, is_proved, progress, _end: sender });
        Admission::Take(HandshakeGuard { number, handshakes: Arc::clone(self), end })
    }
}

impl HandshakeGuard {
    /// The ClientHello is complete.
    pub fn proceed(&self) {
        let mut slots = lock(&self.handshakes.0);
        let mine = slots.under_way.iter_mut().find(|one| one.number == self.number);
        if let Some(mine) = mine {
            mine.progress = Progress::Proceeding { since: Instant::now() };
        }
    }

    /// Returns when the slot was given to a new handshake.
    pub async fn lost(&mut self) {
        let _ = (&mut self.end).await;
    }
}

impl Drop for HandshakeGuard {
    fn drop(&mut self) {
        lock(&self.handshakes.0).under_way.retain(|one| one.number != self.number);
    }
}

impl HandshakeSlots {
    fn count(&self, is_meant: impl Fn(&Handshake) -> bool) -> usize {
        self.under_way.iter().filter(|one| is_meant(one)).count()
    }

    /// Evicts a stalled handshake for a newcomer: the oldest of the network that holds the most of
    /// them, or of the newcomer's own network, and there of the socket that holds the most. False
    /// if the newcomer would then hold no fewer: strangers must not evict each other without end.
    fn evict_for(&mut self, newcomer: Source, in_its_network: bool) -> bool {
        let idle = || self.under_way.iter().enumerate().filter(|(_, one)| one.may_end());
        let mut networks: HashMap<IpAddr, usize> = HashMap::new();
        let mut sockets: HashMap<SocketAddr, usize> = HashMap::new();
        for (_, one) in idle() {
            *networks.entry(one.from.network).or_default() += 1;
            *sockets.entry(one.from.socket).or_default() += 1;
        }
        let of_network = |from: Source| networks.get(&from.network).copied().unwrap_or(0);
        let of_socket = |from: Source| sockets.get(&from.socket).copied().unwrap_or(0);
        let has_less = |victim: Source| {
            let shares_network = victim.network == newcomer.network;
            let less = |mine: usize, its: usize| mine == 0 || mine + 1 < its;
            if shares_network {
                less(of_socket(newcomer), of_socket(victim))
            } else {
                !in_its_network && less(of_network(newcomer), of_network(victim))
            }
        };
        let (mut chosen, mut most) = (None, (0, 0));
        for (index, one) in idle() {
            let held = (of_network(one.from), of_socket(one.from));
            if held > most && has_less(one.from) {
                (chosen, most) = (Some(index), held);
            }
        }
        chosen.and_then(|index| self.under_way.remove(index)).is_some()
    }
}

impl Handshake {
    fn is_opening(&self) -> bool {
        matches!(self.progress, Progress::Opening)
    }

    /// Whether it may lose its slot.
    fn may_end(&self) -> bool {
        match self.progress {
            Progress::Opening => true,
            Progress::Proceeding { since } => since.elapsed() > SLOW,
        }
    }
}

impl Source {
    fn of(socket: SocketAddr) -> Self {
        let network = match socket.ip().to_canonical() {
            // One subscriber has a whole /64 of IPv6 addresses.
            IpAddr::V6(ip) if !ip.is_loopback() => {
                Ipv6Addr::from(u128::from(ip) >> 64 << 64).into()
            }
            ip => ip,
        };
        Self { network, socket }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn socket(last: u8, port: u16) -> SocketAddr {
        ([10, 0, 0, last], port).into()
    }

    fn near(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn taken(handshakes: &Arc<Handshakes>, from: SocketAddr) -> HandshakeGuard {
        match handshakes.admit(from, true) {
            Admission::Take(slot) => slot,
            _ => panic!("{from} got no slot"),
        }
    }

    fn has_lost(slot: &mut HandshakeGuard) -> bool {
        slot.end.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_stalled_handshake_loses_its_slot() {
        let handshakes: Arc<Handshakes> = Arc::default();
        let mut honest = taken(&handshakes, near(1));
        honest.proceed();
        let mut strangers: Vec<_> =
            (1..MOST).map(|number| taken(&handshakes, near(100 + number as u16))).collect();
        assert!(!has_lost(&mut strangers[0]));
        let _newcomer = taken(&handshakes, near(2));
        assert!(has_lost(&mut strangers[0]), "the oldest stranger");
        assert!(!has_lost(&mut strangers[1]) && !has_lost(&mut honest));
    }

    #[test]
    fn addresses_with_many_handshakes_lose_slots_to_those_with_few() {
        let handshakes: Arc<Handshakes> = Arc::default();
        let mut honest = taken(&handshakes, socket(200, 1));
        let strangers: Vec<_> = (0..10 * MOST)
            .map(|number| handshakes.admit(socket((number % 12) as u8, number as u16), true))
            .collect();
        assert!(!has_lost(&mut honest));
        let mut newcomers: Vec<_> =
            (0..3).map(|port| taken(&handshakes, socket(201, port))).collect();
        assert!(!has_lost(&mut honest) && newcomers.iter_mut().all(|slot| !has_lost(slot)));
        drop(strangers);
    }

    #[test]
    fn handshakes_that_proceed_keep_their_slots_and_new_ones_are_refused() {
        let handshakes: Arc<Handshakes> = Arc::default();
        let proceeding = || {
            let slot = taken(&handshakes, near(1));
            slot.proceed();
            slot
        };
        let mut slots: Vec<_> = (0..MOST).map(|_| proceeding()).collect();
        assert!(matches!(handshakes.admit(socket(1, 1), true), Admission::Refuse));
        assert!(slots.iter_mut().all(|slot| !has_lost(slot)));
        slots.pop();
        let _taken = taken(&handshakes, socket(1, 1));
    }

    #[test]
    fn a_socket_with_several_stalled_handshakes_gets_no_answer() {
        let handshakes: Arc<Handshakes> = Arc::default();
        let opening: Vec<_> = (0..MOST_OF_SOCKET).map(|_| taken(&handshakes, near(1))).collect();
        assert!(matches!(handshakes.admit(near(1), false), Admission::Ignore));
        assert!(matches!(handshakes.admit(near(2), false), Admission::Take(_)));
        opening[0].proceed();
        assert!(matches!(handshakes.admit(near(1), false), Admission::Take(_)));
    }

    #[test]
    fn an_address_is_validated_unless_it_is_loopback_and_few_are_opening() {
        let handshakes: Arc<Handshakes> = Arc::default();
        assert!(matches!(handshakes.admit(socket(1, 1), false), Admission::Retry));
        let opening: Vec<_> =
            (0..MOST_UNPROVED as u16).map(|port| handshakes.admit(near(port), false)).collect();
        assert!(opening.iter().all(|one| matches!(one, Admission::Take(_))));
        assert!(matches!(handshakes.admit(near(99), false), Admission::Retry));
        drop(opening);
        assert!(matches!(handshakes.admit(near(99), false), Admission::Take(_)));
    }
}
