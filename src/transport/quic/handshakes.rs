//! Handshakes under way: how many there may be, and which one ends when there are too many.
//!
//! Any stranger can begin a handshake, and need not go on with it. A handshake is *opening* until
//! its ClientHello is complete, which for an honest dialler is its first datagram; from then on it
//! is *proceeding*. Invariant: when there are too many, sources that hold many stalled handshakes
//! lose them to newcomers, and a handshake that proceeds at an honest pace goes on.

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
/// not stay in this state; what else comes from such a socket is not worth an answer.
const MOST_OF_SOCKET: usize = 4;
/// Handshakes that may be opening without a proof of their address. Beyond that loopback must prove
/// its address too: that costs the dialler a round trip, and a stranger who does not answer gets no
/// place.
const MOST_UNPROVED: usize = 16;
/// A handshake that proceeds this long may lose its place.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Handshakes(Mutex<Places>);

/// The oldest first.
#[derive(Default)]
struct Places {
    under_way: VecDeque<Handshake>,
    next: u64,
}

struct Handshake {
    number: u64,
    from: Source,
    is_proved: bool,
    progress: Progress,
    /// Dropping it ends the handshake.
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

/// What becomes of a newcomer.
pub enum Admission {
    /// It gets no answer.
    Ignore,
    /// It must prove its address first.
    Retry,
    /// There is no place; it may come again.
    Refuse,
    Take(HandshakeGuard),
}

/// A place among the handshakes, until it is dropped.
pub struct HandshakeGuard {
    number: u64,
    handshakes: Arc<Handshakes>,
    end: oneshot::Receiver<()>,
}

impl Handshakes {
    pub fn admit(self: &Arc<Self>, socket: SocketAddr, is_proved: bool) -> Admission {
        let mut places = lock(&self.0);
        let from = Source::of(socket);
        let is_near = from.network.is_loopback();
        let of_socket = places.count(|one| one.from == from && one.is_opening());
        if of_socket >= MOST_OF_SOCKET {
            return Admission::Ignore;
        }
        let unproved = places.count(|one| one.is_opening() && !one.is_proved);
        if !is_proved && (!is_near || unproved >= MOST_UNPROVED) {
            return Admission::Retry;
        }
        let of_network = places.count(|one| one.from.network == from.network);
        let is_crowded = !is_near && of_network >= MOST_OF_ADDRESS;
        let is_full = places.under_way.len() >= MOST;
        if (is_crowded || is_full) && !places.make_room(from, is_crowded) {
            return if of_socket == 0 { Admission::Refuse } else { Admission::Ignore };
        }
        let number = places.next;
        places.next += 1;
        let (sender, end) = oneshot::channel();
        let progress = Progress::Opening;
        places.under_way.push_back(Handshake { number, from, is_proved, progress, _end: sender });
        Admission::Take(HandshakeGuard { number, handshakes: Arc::clone(self), end })
    }
}

impl HandshakeGuard {
    /// The ClientHello is complete.
    pub fn proceed(&self) {
        let mut places = lock(&self.handshakes.0);
        let mine = places.under_way.iter_mut().find(|one| one.number == self.number);
        if let Some(mine) = mine {
            mine.progress = Progress::Proceeding { since: Instant::now() };
        }
    }

    /// Returns when a newcomer got the place.
    pub async fn lost(&mut self) {
        let _ = (&mut self.end).await;
    }
}

impl Drop for HandshakeGuard {
    fn drop(&mut self) {
        lock(&self.handshakes.0).under_way.retain(|one| one.number != self.number);
    }
}

impl Places {
    fn count(&self, is_meant: impl Fn(&Handshake) -> bool) -> usize {
        self.under_way.iter().filter(|one| is_meant(one)).count()
    }

    /// Ends a handshake that does not go on, for a newcomer: the oldest of the network that holds
    /// the most of them, or of the newcomer's own, and there of the socket that holds the most.
    /// False if the newcomer would then hold no fewer: strangers do not take places from each other
    /// without end.
    fn make_room(&mut self, newcomer: Source, in_its_network: bool) -> bool {
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

    /// Whether it may lose its place.
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
            Admission::Take(place) => place,
            _ => panic!("{from} got no place"),
        }
    }

    fn has_lost(place: &mut HandshakeGuard) -> bool {
        place.end.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_that_has_not_gone_on_loses_its_place() {
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
    fn addresses_with_many_handshakes_lose_places_to_those_with_few() {
        let handshakes: Arc<Handshakes> = Arc::default();
        let mut honest = taken(&handshakes, socket(200, 1));
        let strangers: Vec<_> = (0..10 * MOST)
            .map(|number| handshakes.admit(socket((number % 12) as u8, number as u16), true))
            .collect();
        assert!(!has_lost(&mut honest));
        let mut newcomers: Vec<_> =
            (0..3).map(|port| taken(&handshakes, socket(201, port))).collect();
        assert!(!has_lost(&mut honest) && newcomers.iter_mut().all(|place| !has_lost(place)));
        drop(strangers);
    }

    #[test]
    fn handshakes_that_proceed_stay_and_newcomers_come_again() {
        let handshakes: Arc<Handshakes> = Arc::default();
        let proceeding = || {
            let place = taken(&handshakes, near(1));
            place.proceed();
            place
        };
        let mut places: Vec<_> = (0..MOST).map(|_| proceeding()).collect();
        assert!(matches!(handshakes.admit(socket(1, 1), true), Admission::Refuse));
        assert!(places.iter_mut().all(|place| !has_lost(place)));
        places.pop();
        let _taken = taken(&handshakes, socket(1, 1));
    }

    #[test]
    fn a_socket_that_goes_on_with_nothing_gets_no_answer() {
        let handshakes: Arc<Handshakes> = Arc::default();
        let opening: Vec<_> = (0..MOST_OF_SOCKET).map(|_| taken(&handshakes, near(1))).collect();
        assert!(matches!(handshakes.admit(near(1), false), Admission::Ignore));
        assert!(matches!(handshakes.admit(near(2), false), Admission::Take(_)));
        opening[0].proceed();
        assert!(matches!(handshakes.admit(near(1), false), Admission::Take(_)));
    }

    #[test]
    fn an_address_is_proved_unless_it_is_loopback_and_few_are_opening() {
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
