//! The process's one UDP socket: it serves every root and every communicator, and dials from the
//! same port.
//!
//! A *service* is what a dialler names and authenticates to: the root of a unique id, or a rank of
//! a communicator. Leaves to `handshakes` which handshakes may proceed. Invariant: a connection is
//! handed to a service only after its peer has proved to own one of the keys that the service
//! expects. Before that, nothing of nexar parses a byte of the peer.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use quinn::{Connecting, Connection, ConnectionError, TransportConfig, VarInt};
use rustls::sign::CertifiedKey;
use tokio::sync::{broadcast, mpsc};
use tokio::task::yield_now;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::error::{Error, Result};

use super::super::LANES;
use super::beacon::BesideQuic;
use super::handshakes::{Admission, HandshakeGuard, Handshakes};
use super::payload_streams::MOST_PAYLOADS;
use super::socket::Socket;
use super::tls;
use crate::transport::key::{Identity, PublicKey};

/// How often a connection that has nothing to send sends a ping.
const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// Time for the first flight of a dialler, which is one datagram.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for the rest of a handshake, and for all of it where this process dials.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The receive window of a stream. A connection has for each context one stream per lane, some for
/// payloads and one for control messages; and one control stream. Its own window is the sum of
/// theirs, so none can starve another. Control messages and frames are read at once.
const STREAM_WINDOW: u32 = 4 << 20;
const CONTROL_MESSAGES_WINDOW: u64 = 64 << 10;
const CONTROL_WINDOW: u64 = 64 << 10;
/// The receive window of a connection until it is a link: for one stream.
const FIRST_WINDOW: u32 = 64 << 10;
/// Written data that the peer has not acknowledged yet, per connection.
const SEND_WINDOW: u64 = 6 << 20;
/// quinn sends up to 10 packets in one call, which must stay below 64 KiB.
const LARGEST_PACKET: u16 = 6500;

pub struct Endpoint {
    quinn: quinn::Endpoint,
    socket: Arc<Socket>,
    services: Arc<ServiceTable>,
    port: u16,
    dual_stack: bool,
}

impl BesideQuic for Endpoint {
    fn send_beside_quic(&self, address: SocketAddr, datagram: &[u8]) {
        self.socket.send_beside_quic(address, datagram);
    }
}

/// A peer that proved to own `key`.
pub struct ArrivedConnection {
    pub key: PublicKey,
    pub connection: Connection,
}

/// Keeps a service registered; dropping it ends the service.
pub struct Service {
    name: String,
    number: u64,
    services: Arc<ServiceTable>,
    pub arrivals: mpsc::UnboundedReceiver<ArrivedConnection>,
}

#[derive(Default)]
struct ServiceTable {
    by_name: RwLock<HashMap<String, ServiceEntry>>,
}

struct ServiceEntry {
    /// Distinguishes successive services of the same name.
    number: u64,
    certified: Arc<CertifiedKey>,
    expected: HashSet<PublicKey>,
    arrivals: mpsc::UnboundedSender<ArrivedConnection>,
}

impl Endpoint {
    /// Binds the socket and begins to accept. `settings`: where the ports come from, for the text
    /// of an error. Must be called inside the runtime.
    pub fn open(ports: &RangeInclusive<u16>, settings: &str) -> Result<Arc<Self>> {
        let (socket, dual_stack) = bind(ports, settings)?;
        let system = |error: std::io::Error| {
            Error::System(format!("the UDP socket cannot be used: {error}"))
        };
        let port = socket.local_addr().map_err(system)?.port();
        let services = Arc::new(ServiceTable::default());
        let crypto = tls::server(Arc::clone(&services) as _)
            .map_err(|error| Error::System(format!("TLS cannot be set up: {error}")))?;
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        // QUIC applies the shorter idle timeout of both ends. Ranks that dial a root set one; links
        // are watched by `silence`.
        server.transport_config(transport(None));
        server.migration(false);
        server.max_incoming(256);
        server.incoming_buffer_size(64 << 10);
        server.incoming_buffer_size_total(4 << 20);
        let runtime = Arc::new(quinn::TokioRuntime);
        let mut config = quinn::EndpointConfig::default();
        // Peers may send packets as large as ours; the default limit is Ethernet's.
        config.max_udp_payload_size(LARGEST_PACKET).map_err(|e| Error::System(e.to_string()))?;
        // Then bit 0x40 of the first byte distinguishes QUIC's packets from beacons.
        config.grease_quic_bit(false);
        let socket = Socket::new(socket).map_err(system)?;
        let abstracted = Arc::clone(&socket) as Arc<dyn quinn::AsyncUdpSocket>;
        let quinn =
            quinn::Endpoint::new_with_abstract_socket(config, Some(server), abstracted, runtime)
                .map_err(system)?;
        info!("UDP port {port}");
        tokio::spawn(accept(quinn.clone(), Arc::clone(&services)));
        Ok(Arc::new(Self { quinn, socket, services, port, dual_stack }))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Addresses of peers whose hosts report that they may be gone.
    pub fn hints(&self) -> broadcast::Receiver<SocketAddr> {
        self.socket.hints()
    }

    /// Injects such a hint, for tests.
    #[cfg(feature = "testing")]
    pub fn pretend_hint(&self, address: SocketAddr) {
        self.socket.pretend_hint(address);
    }

    /// Registers a service under a name that diallers will use.
    pub fn serve(&self, name: String, me: &Identity, expected: HashSet<PublicKey>) -> Service {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (sender, arrivals) = mpsc::unbounded_channel();
        let certified = Arc::clone(&me.certified);
        let entry = ServiceEntry { number, certified, expected, arrivals: sender };
        self.services.write().insert(name.clone(), entry);
        Service { name, number, services: Arc::clone(&self.services), arrivals }
    }

    /// Ends the service of this name, if this process has one.
    pub fn end_service(&self, name: &str) {
        self.services.write().remove(name);
    }

    /// Connects to a service as `me`; accepts only the process that owns `pinned`. Both sides end a
    /// connection that is idle for `idle`, if that is given. The peer may still refuse this rank's
    /// key: only its first byte proves that it has not.
    pub async fn dial(
        &self,
        address: SocketAddr,
        service: &str,
        me: &Identity,
        pinned: PublicKey,
        idle: Option<Duration>,
    ) -> std::result::Result<Connection, DialError> {
        let crypto =
            tls::client(me, pinned).map_err(|error| DialError::Other(error.to_string()))?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport(idle));
        let connecting = self
            .quinn
            .connect_with(config, self.reachable(address), service)
            .map_err(|error| DialError::Other(error.to_string()))?;
        match timeout(HANDSHAKE_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(DialError::from(error)),
            Err(_) => Err(DialError::NoAnswer),
        }
    }

    /// Closes all open connections, so that peers need not wait for their timeout, and sends the
    /// last packets, for a moment at most.
    pub async fn close(&self) {
        self.quinn.close(VarInt::from_u32(0), b"");
        let _ = timeout(Duration::from_millis(100), self.quinn.wait_idle()).await;
    }

    /// A dual-stack socket writes IPv4 addresses as IPv6.
    fn reachable(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(ip) if self.dual_stack => (ip.to_ipv6_mapped(), address.port()).into(),
            _ => address,
        }
    }
}

/// Why a dial failed.
#[derive(Debug)]
pub enum DialError {
    /// No process answers at the address, or not yet.
    NoAnswer,
    /// The process at the address has too many handshakes under way; try again.
    Busy,
    /// The process at the address does not own the pinned key.
    Impostor,
    /// The process at the address does not know the service, or does not expect this rank's key.
    Refused,
    Other(String),
}

/// The QUIC error code of a failed key check: TLS alert 49, access denied.
const ACCESS_DENIED: u64 = 0x100 + 49;

impl From<ConnectionError> for DialError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::TransportError(e) if u64::from(e.code) == ACCESS_DENIED => {
                Self::Impostor
            }
            ConnectionError::ConnectionClosed(e) if u64::from(e.error_code) == ACCESS_DENIED => {
                Self::Refused
            }
            ConnectionError::ConnectionClosed(e)
                if e.error_code == quinn::TransportErrorCode::CONNECTION_REFUSED =>
            {
                Self::Busy
            }
            ConnectionError::TimedOut | ConnectionError::Reset => Self::NoAnswer,
            other => Self::Other(other.to_string()),
        }
    }
}

async fn accept(endpoint: quinn::Endpoint, services: Arc<ServiceTable>) {
    let handshakes: Arc<Handshakes> = Arc::default();
    while let Some(incoming) = endpoint.accept().await {
        let from = incoming.remote_address();
        let slot = match handshakes.admit(from, incoming.remote_address_validated()) {
            Admission::Ignore => {
                incoming.ignore();
                continue;
            }
            // A forged source address costs a token here, not memory.
            Admission::Retry => {
                let _ = incoming.retry();
                continue;
            }
            Admission::Refuse => {
                incoming.refuse();
                continue;
            }
            Admission::Take(slot) => slot,
        };
        let services = Arc::clone(&services);
        let connecting = incoming.accept();
        tokio::spawn(async move {
            if let Err(why) = handshake(connecting, slot, &services).await {
                debug!("connection from {} refused: {why}", from.ip().to_canonical());
            }
        });
        // An honest dialler's ClientHello is read before the next one is counted.
        yield_now().await;
    }
}

/// Executes a handshake, for as long as it has its slot.
async fn handshake(
    connecting: std::result::Result<Connecting, ConnectionError>,
    mut slot: HandshakeGuard,
    services: &ServiceTable,
) -> std::result::Result<(), String> {
    let mut connecting = connecting.map_err(|error| error.to_string())?;
    let hello = async { connecting.handshake_data().await.map(drop) };
    tokio::select! {
        () = slot.lost() => {
            return Err("evicted for a new handshake: its ClientHello is incomplete".to_owned());
        }
        said = timeout(HELLO_TIMEOUT, hello) => match said {
            Ok(said) => said.map_err(|error| error.to_string())?,
            Err(_) => return Err("no complete ClientHello in time".to_owned()),
        },
    }
    slot.proceed();
    tokio::select! {
        () = slot.lost() => Err("evicted for a new handshake: too slow".to_owned()),
        finished = timeout(HANDSHAKE_TIMEOUT, finish(connecting, services)) => {
            finished.unwrap_or_else(|_| Err("handshake too slow".to_owned()))
        }
    }
}

/// Completes a handshake and hands the connection to the service it is for.
async fn finish(
    connecting: Connecting,
    services: &ServiceTable,
) -> std::result::Result<(), String> {
    let connection = connecting.await.map_err(|error| error.to_string())?;
    let refuse = |why: &str| {
        connection.close(VarInt::from_u32(0), b"");
        Err(why.to_owned())
    };
    let Some(key) = tls::peer_key(&connection) else { return refuse("no key") };
    let Some(name) = tls::service_name(&connection) else { return refuse("no service named") };
    let arrivals = match services.read().get(&name) {
        Some(entry) if entry.expected.contains(&key) => entry.arrivals.clone(),
        _ => return refuse("this service does not expect the key"),
    };
    let gone = arrivals.send(ArrivedConnection { key, connection: connection.clone() }).is_err();
    if gone { refuse("the service has ended") } else { Ok(()) }
}

/// The limits of a connection until it is a link.
fn transport(idle: Option<Duration>) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.max_concurrent_uni_streams(1_u8.into());
    config.max_concurrent_bidi_streams(1_u8.into());
    config.stream_receive_window(STREAM_WINDOW.into());
    config.receive_window(FIRST_WINDOW.into());
    config.send_window(SEND_WINDOW);
    config.datagram_receive_buffer_size(None);
    config.initial_rtt(Duration::from_millis(50));
    config.max_idle_timeout(idle.and_then(|idle| idle.try_into().ok()));
    config.keep_alive_interval(Some(KEEP_ALIVE));
    let mut mtu = quinn::MtuDiscoveryConfig::default();
    mtu.upper_bound(LARGEST_PACKET);
    config.mtu_discovery_config(Some(mtu));
    Arc::new(config)
}

/// Sets the limits of a link to a peer that is a member of this many contexts.
///
/// quinn announces a limit only once it has grown by an eighth: each is a sixth larger than needed.
pub fn set_limits(connection: &Connection, contexts: usize) {
    let (contexts, data_streams) = (contexts as u64, (LANES + MOST_PAYLOADS) as u64);
    let of_context = data_streams * u64::from(STREAM_WINDOW) + CONTROL_MESSAGES_WINDOW;
    let enough = |needed: u64| VarInt::from_u64(needed + needed / 6 + 1).unwrap_or(VarInt::MAX);
    connection.set_max_concurrent_uni_streams(enough(contexts * (data_streams + 1) + 1));
    connection.set_receive_window(enough(contexts * of_context + CONTROL_WINDOW));
}

/// A UDP socket on the first free port of the range, for both address families if the host has
/// them. True if it is for both.
fn bind(ports: &RangeInclusive<u16>, settings: &str) -> Result<(std::net::UdpSocket, bool)> {
    use socket2::{Domain, Protocol, Socket, Type};
    let open = |domain: Domain, ip: IpAddr, port: u16| -> std::io::Result<std::net::UdpSocket> {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        // As much as the host allows; less only costs speed.
        let _ = socket.set_recv_buffer_size(8 << 20);
        let _ = socket.set_send_buffer_size(8 << 20);
        socket.bind(&SocketAddr::new(ip, port).into())?;
        Ok(socket.into())
    };
    let mut last = None;
    for port in ports.clone() {
        match open(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into(), port) {
            Ok(socket) => return Ok((socket, true)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                last = Some(error);
                continue;
            }
            Err(_) => {}
        }
        match open(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into(), port) {
            Ok(socket) => return Ok((socket, false)),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(|| "the range is empty".to_owned(), |error| error.to_string());
    let (first, last) = (ports.start(), ports.end());
    Err(Error::System(format!(
        "no UDP port from {first} to {last} can be used: {why}; change {settings}"
    )))
}

impl ServiceTable {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<String, ServiceEntry>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<String, ServiceEntry>> {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ServiceTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} services", self.read().len())
    }
}

impl tls::Services for ServiceTable {
    fn identity(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.read().get(name).map(|entry| Arc::clone(&entry.certified))
    }

    fn expects(&self, key: &PublicKey) -> bool {
        self.read().values().any(|entry| entry.expected.contains(key))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let mut services = self.services.write();
        if services.get(&self.name).is_some_and(|entry| entry.number == self.number) {
            services.remove(&self.name);
        }
    }
}
