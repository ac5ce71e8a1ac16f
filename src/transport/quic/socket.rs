//! The UDP socket as quinn uses it, and the ICMP errors of hosts that refuse packets.
//!
//! A host whose process has died refuses packets to its port (ICMP "port unreachable"). The socket
//! asks for these errors. They are only hints, because anyone can forge one. Leaves to `suspicion`
//! the check of the peer itself. Invariants:
//! - a hint quotes a packet that was sent to that address, with its connection id, which an
//!   attacker off the path does not know;
//! - an error about one peer delays and loses no packet to another.
#![expect(unsafe_code, reason = "std can neither ask for errors of a socket nor read them")]

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::broadcast;
use tokio::time::{Sleep, sleep};

use super::beacon;
use super::mutex::lock;

/// Bytes of a connection id, as quinn creates them. In a packet after the handshake it follows the
/// first byte, whose highest bit is 0.
const ID_BYTES: usize = 8;
const IS_HANDSHAKE: u8 = 0x80;

type Id = [u8; ID_BYTES];

/// The most addresses whose connections are remembered, and the most connections of each: each
/// communicator that is not split off another has its own.
const MOST_ADDRESSES: usize = 1 << 16;
const MOST_IDS: usize = 16;

/// How often a packet is sent again if the pending error of another packet fails the send.
const TRIES: usize = 4;

/// The capacity of the channel of hints.
const HINTS: usize = 64;

pub struct Socket {
    /// For reading only: after an error, its write readiness would stay set for ever.
    io: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    /// The socket's buffer was full at the last send.
    is_full: AtomicBool,
    /// The connections to each address, the latest first.
    ids: Mutex<HashMap<(IpAddr, u16), Vec<Id>>>,
    /// Addresses where no process may be listening any more.
    hints: broadcast::Sender<SocketAddr>,
}

impl Socket {
    /// Must be called inside the runtime.
    pub fn new(socket: UdpSocket) -> io::Result<Arc<Self>> {
        let state = UdpSocketState::new((&socket).into())?;
        socket.set_nonblocking(true)?;
        enable_error_queue(&socket);
        let errors = register(socket.try_clone()?, Interest::ERROR)?;
        let io = register(socket, Interest::READABLE)?;
        let socket = Arc::new(Self {
            io,
            state,
            is_full: AtomicBool::new(false),
            ids: Mutex::default(),
            hints: broadcast::Sender::new(HINTS),
        });
        let weak = Arc::downgrade(&socket);
        tokio::spawn(async move {
            while let Ok(mut ready) = errors.ready(Interest::ERROR).await {
                let Some(socket) = weak.upgrade() else { return };
                while let Some(refusal) = next_refusal(errors.get_ref()) {
                    socket.report(&refusal);
                }
                // Clears the pending error, before a send or receive fails with it.
                let _ = errors.get_ref().take_error();
                ready.clear_ready();
            }
        });
        Ok(socket)
    }

    pub fn hints(&self) -> broadcast::Receiver<SocketAddr> {
        self.hints.subscribe()
    }

    /// Injects a hint about the address.
    #[cfg(feature = "testing")]
    pub fn pretend_hint(&self, address: SocketAddr) {
        let _ = self.hints.send(address);
    }

    /// Sends one datagram that is no packet of QUIC, unless the socket's buffer is full.
    pub fn send_beside_quic(&self, address: SocketAddr, datagram: &[u8]) {
        // The pending error of an earlier packet may fail the send.
        (0..TRIES).any(|_| match self.io.get_ref().send_to(datagram, address) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
    }

    /// Remembers the connection that a packet belongs to.
    fn remember(&self, transmit: &Transmit<'_>) {
        let Some(id) = id_of(transmit.contents) else { return };
        let mut ids = lock(&self.ids);
        let address = canonical(transmit.destination);
        // Answers to strangers count too. After a clear, addresses in use are soon known again.
        if ids.len() >= MOST_ADDRESSES && !ids.contains_key(&address) {
            ids.clear();
        }
        let known = ids.entry(address).or_default();
        if known.first() != Some(&id) {
            known.retain(|other| *other != id);
            known.insert(0, id);
            known.truncate(MOST_IDS);
        }
    }

    /// Sends a hint if the refusal quotes a packet of ours and is by the host it was sent to.
    fn report(&self, refusal: &Refusal) {
        let Some(quoted) = id_of(&refusal.quote) else { return };
        let ids = lock(&self.ids);
        let is_ours =
            ids.get(&canonical(refusal.packet_to)).is_some_and(|ids| ids.contains(&quoted));
        drop(ids);
        if is_ours && canonical(refusal.packet_to).0 == refusal.by.to_canonical() {
            let _ = self.hints.send(refusal.packet_to);
        }
    }
}

/// Removes datagrams that are no packets of QUIC from a buffer. With GRO it holds several datagrams
/// of one sender, all as long as the first except the last.
fn take_beside_quic(buffer: &mut [u8], meta: &mut RecvMeta) {
    let (received, stride) = (&mut buffer[..meta.len], meta.stride.max(1));
    if beacon::is_beside_quic(received) {
        received.chunks_mut(stride).for_each(beacon::received);
        meta.len = 0;
    } else if let Some(last) = received.chunks_mut(stride).next_back()
        && beacon::is_beside_quic(last)
    {
        meta.len -= last.len();
        beacon::received(last);
    }
}

/// An address in one form: an IPv4 address may also be written as IPv6.
pub(super) fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

fn id_of(packet: &[u8]) -> Option<Id> {
    let (first, rest) = packet.split_first()?;
    if first & IS_HANDSHAKE != 0 {
        return None;
    }
    rest.first_chunk().copied()
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(WritablePoller { socket: self, waiting: None, pause: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.remember(transmit);
        for _ in 0..TRIES {
            match self.state.try_send(self.io.get_ref().into(), transmit) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_full.store(true, Ordering::Release);
                    return Err(error);
                }
                // A packet of MTU discovery.
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => return Ok(()),
                // Most often the pending error of an earlier packet: this one was not sent.
                Err(_) => {}
            }
        }
        // Counts as lost in the network.
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.io.poll_read_ready(context))?;
            match self.state.recv(self.io.get_ref().into(), buffers, meta) {
                Ok(count) => {
                    for (buffer, meta) in buffers.iter_mut().zip(meta).take(count) {
                        take_beside_quic(buffer, meta);
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                // The program has closed this descriptor: the error is permanent.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK)) =>
                {
                    return Poll::Ready(Err(error));
                }
                // The error of an earlier packet; reading it has cleared it.
                Err(_) => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Socket({})", self.io.as_raw_fd())
    }
}

/// Waits until the socket is writable: each time with a new registration, whose readiness no
/// earlier error has set.
struct WritablePoller {
    socket: Arc<Socket>,
    waiting: Option<AsyncFd<OwnedFd>>,
    /// Waits instead if no descriptor is left for a registration.
    pause: Option<Pin<Box<Sleep>>>,
}

/// How long `pause` takes.
const PAUSE: Duration = Duration::from_millis(5);

impl UdpPoller for WritablePoller {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.socket.is_full.load(Ordering::Acquire) {
            self.waiting = None;
            return Poll::Ready(Ok(()));
        }
        if self.waiting.is_none() {
            let socket = self.socket.io.get_ref().try_clone();
            let waiting = socket.and_then(|socket| register(socket.into(), Interest::WRITABLE));
            self.waiting = waiting.ok();
        }
        // An error returned here would end the connection's task without a report.
        match &self.waiting {
            Some(waiting) => drop(ready!(waiting.poll_write_ready(context))),
            None => {
                let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
                ready!(pause.as_mut().poll(context));
            }
        }
        (self.waiting, self.pause) = (None, None);
        self.socket.is_full.store(false, Ordering::Release);
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for WritablePoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WritablePoller of {:?}", self.socket)
    }
}

fn register<T: AsRawFd>(descriptor: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: `descriptor` owns its one descriptor and keeps it open until it is dropped.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(Into::into)
}

/// Enables the error queue for both address families. Where that fails, there are no hints.
fn enable_error_queue(socket: &UdpSocket) {
    for (level, option) in [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)]
    {
        let on: libc::c_int = 1;
        // SAFETY: the value is an int of the stated length.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
    }
}

/// A host's report that no socket has the port of a packet.
struct Refusal {
    packet_to: SocketAddr,
    by: IpAddr,
    /// The first bytes of the packet.
    quote: Vec<u8>,
}

/// Enough bytes of a packet to find its connection id.
const QUOTE: usize = 64;

/// The next "port unreachable" in the socket's error queue. Other errors are skipped.
fn next_refusal(socket: &UdpSocket) -> Option<Refusal> {
    loop {
        let (said, packet_to, quote) = next_error(socket)?;
        let Some((error, by)) = said else { continue };
        let is_refusal = matches!(
            (error.ee_origin, error.ee_type, error.ee_code),
            // Type and code of "port unreachable" in ICMP and in ICMPv6.
            (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4)
        );
        if let (true, Some(packet_to), Some(by)) = (is_refusal, packet_to, by) {
            return Some(Refusal { packet_to, by, quote });
        }
    }
}

type QueuedError = Option<(libc::sock_extended_err, Option<IpAddr>)>;

/// The next entry of the error queue: the error and its sender, the destination and the first bytes
/// of the packet.
fn next_error(socket: &UdpSocket) -> Option<(QueuedError, Option<SocketAddr>, Vec<u8>)> {
    // Large enough for an error and the address of its sender, and aligned as the system requires.
    let mut control = [0_u64; 32];
    let mut quote = vec![0; QUOTE];
    // SAFETY: all fields are integers, for which 0 is valid.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut part = libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() };
    // SAFETY: all fields are integers and pointers, for which 0 is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message points to buffers of the stated lengths, which outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    quote.truncate(usize::try_from(length).ok()?);
    let mut said = None;
    // SAFETY: the system has filled in the message, and control data up to its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: a header inside the control data.
        let libc::cmsghdr { cmsg_level: level, cmsg_type: kind, .. } = unsafe { header.read() };
        if matches!(
            (level, kind),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        ) {
            // SAFETY: the data of such a header is an error, and behind it an address.
            let error = unsafe { libc::CMSG_DATA(header) }.cast::<libc::sock_extended_err>();
            // SAFETY: as above.
            let by = unsafe { address(error.add(1).cast()) };
            // SAFETY: as above. The read is unaligned.
            said = Some((unsafe { error.read_unaligned() }, by));
        }
        // SAFETY: a header of this message's control data.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    let said = said.map(|(error, by)| (error, by.map(|by| by.ip())));
    // SAFETY: the system has written an address, or left zeros.
    Some((said, unsafe { address((&raw const name).cast()) }, quote))
}

/// # Safety
/// `at` points to an address of the family in its first field, or to that field of another family.
unsafe fn address(at: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: every address begins with its family.
    let family = unsafe { at.read_unaligned() }.sa_family;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says so.
            let v4 = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says so.
            let v6 = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some((ip, u16::from_be(v6.sin6_port)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const ID: Id = [1, 2, 3, 4, 5, 6, 7, 8];

    fn packet(first: u8) -> Vec<u8> {
        [&[first], &ID[..], b"the rest"].concat()
    }

    fn transmit(contents: &[u8], destination: SocketAddr) -> Transmit<'_> {
        Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None }
    }

    fn socket(ip: &str) -> Arc<Socket> {
        Socket::new(UdpSocket::bind((ip, 0)).unwrap()).unwrap()
    }

    /// A port without a listener.
    fn dead_port(ip: &str) -> SocketAddr {
        UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn a_port_without_a_listener_causes_a_hint() {
        for ip in ["127.0.0.1", "::1"] {
            let (socket, dead) = (socket(ip), dead_port(ip));
            let mut hints = socket.hints();
            socket.try_send(&transmit(&packet(0x40), dead)).unwrap();
            let hint = timeout(Duration::from_secs(10), hints.recv()).await.unwrap().unwrap();
            assert_eq!(canonical(hint), canonical(dead));
        }
    }

    #[tokio::test]
    async fn a_dead_port_loses_no_packet_to_a_living_one() {
        let socket = socket("127.0.0.1");
        let living = UdpSocket::bind("127.0.0.1:0").unwrap();
        living.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (dead, address) = (dead_port("127.0.0.1"), living.local_addr().unwrap());
        for number in 0..100_u8 {
            socket.try_send(&transmit(&packet(0x40), dead)).unwrap();
            socket.try_send(&transmit(&[number], address)).unwrap();
            let mut received = [0; 9];
            assert_eq!(living.recv(&mut received).unwrap(), 1);
            assert_eq!(received[0], number);
        }
    }

    #[tokio::test]
    async fn a_refusal_that_quotes_no_packet_of_ours_or_is_by_another_host_is_no_hint() {
        let socket = socket("127.0.0.1");
        let (peer, here) = (SocketAddr::from(([192, 0, 2, 1], 7)), IpAddr::from([192, 0, 2, 1]));
        let mapped = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 7));
        socket.remember(&transmit(&packet(0x40), peer));
        let mut hints = socket.hints();
        let mut hinted = |packet_to, by, quote: &[u8]| {
            socket.report(&Refusal { packet_to, by, quote: quote.to_vec() });
            hints.try_recv().is_ok()
        };
        let good = packet(0x40);
        assert!(hinted(peer, here, &good));
        assert!(hinted(mapped, here, &good), "the same address, mapped to IPv6");
        assert!(hinted(peer, here, &good[..1 + ID_BYTES]), "no further byte is read");
        assert!(!hinted(peer, here, &good[..ID_BYTES]), "too short");
        assert!(!hinted(peer, here, &packet(0xc0)), "a packet of the handshake");
        assert!(!hinted(peer, IpAddr::from([192, 0, 2, 9]), &good), "another host");
        assert!(!hinted(SocketAddr::from(([192, 0, 2, 1], 8)), here, &good), "another port");
        let mut other = good.clone();
        other[4] ^= 1;
        assert!(!hinted(peer, here, &other), "another connection");
        // Earlier connections count too, as packets of all may be in flight.
        for count in 1..=MOST_IDS {
            socket.remember(&transmit(&[&[0x40], &[count as u8; ID_BYTES][..]].concat(), peer));
            assert_eq!(hinted(peer, here, &good), count < MOST_IDS);
        }
    }
}
