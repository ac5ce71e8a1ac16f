//! A rank's way in: to the root, through its checks, to a mesh.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::Config;
use crate::error::{Code, Error, Result};
use crate::transport::quic::endpoint::{DialError, Endpoint};
use crate::transport::quic::key::{Identity, random};
use crate::transport::quic::process::Process;
use crate::transport::quic::{Member, Plan, QuicMesh, host_of_this};

use super::address;
use super::id::UniqueId;
use super::message::{Join, Message, encode_table};
use super::{Settings, World};

/// A root that was not heard of for this long is lost.
const ROOT_SILENCE: Duration = Duration::from_secs(5);
/// The root tells the reason of a missed deadline; this is how long it is waited for.
const GRACE: Duration = Duration::from_millis(500);

pub async fn join(
    endpoint: Arc<Endpoint>,
    id: UniqueId,
    world: World,
    settings: Settings,
) -> Result<QuicMesh> {
    let deadline = Instant::now() + settings.config.init_timeout;
    let secret = settings.config.comm_secret.as_ref().map(|secret| secret.bytes());
    if id.with_secret && secret.is_none() {
        return Err(Error::Usage(
            "this unique id needs NEXAR_COMM_SECRET, which is not set".to_owned(),
        ));
    }
    let credentials = id.join_identity(secret)?;
    let secret = id.derive(secret, b"nexar/1 members");
    let mut root = reach(&endpoint, &id, &credentials, &settings, deadline).await?;

    let me = Identity::random()?;
    let member = Member {
        key: me.public(),
        addresses: address::of_rank(&settings.config, endpoint.port(), root.address)?,
        process: Process::of_this(),
        host: host(&settings.config),
        cuda: settings.cuda,
    };
    let mut join = Join {
        rank: world.rank.0,
        nranks: world.size,
        patience_ms: u32::try_from(settings.config.init_timeout.as_millis()).unwrap_or(u32::MAX),
        settings: settings.hash,
        member,
        signature: [0; 64],
    };
    let binding = super::binding(&root.connection, id.nonce)
        .ok_or_else(|| Error::System("TLS gives no keying material".to_owned()))?;
    join.signature = me.sign(&join.signed(&binding));

    let forming = async {
        Message::Join(join).write(&mut root.send).await?;
        let roster = match Message::read(&mut root.recv, world.size).await? {
            Message::Table(roster) if roster.len() == world.size => roster,
            other => return Err(unexpected(other)),
        };
        let hash = super::sha256(&encode_table(&roster));
        // Peers may dial as soon as the root lets them go, so this rank listens before it confirms.
        let mesh = QuicMesh::open(Plan {
            endpoint,
            me,
            rank: world.rank,
            roster,
            // Of the table, not of the id: two communicators may be made at one address.
            nonce: u64::from_le_bytes(hash[..8].try_into().expect("8 of 32 bytes")),
            secret,
            peer_timeout: settings.config.peer_timeout,
            dial_timeout: settings.config.init_timeout,
        });
        Message::Seen(hash).write(&mut root.send).await?;
        match Message::read(&mut root.recv, 0).await? {
            Message::Go => Ok(mesh),
            other => Err(unexpected(other)),
        }
    };
    let formed = timeout_at(deadline + GRACE, forming).await;
    root.connection.close(super::CLOSE_CODE, b"");
    let mesh = formed.map_err(|_| silent(&settings, root.address, "has gone silent"))??;
    match timeout_at(deadline + GRACE, mesh.connect_neighbours()).await {
        Ok(connected) => connected.map(|()| mesh),
        Err(_) => Err(Error::Timeout {
            limit_ms: settings.config.init_timeout.as_millis(),
            blame: "a neighbour could not be reached".to_owned(),
        }),
    }
}

/// What this rank says of where it shares memory.
fn host(config: &Config) -> Option<[u8; 16]> {
    if config.shm_disable {
        None
    } else {
        host_of_this(config.host_id.as_deref().unwrap_or_default())
    }
}

/// The root, after its first word.
struct Root {
    address: SocketAddr,
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
}

async fn reach(
    endpoint: &Endpoint,
    id: &UniqueId,
    credentials: &Identity,
    settings: &Settings,
    deadline: Instant,
) -> Result<Root> {
    let mut last = Error::Usage("the unique id has no address".to_owned());
    let service = id.service();
    loop {
        let mut verdict = None;
        for address in &id.addresses {
            let dialled = endpoint.dial(*address, &service, credentials, id.root, ROOT_SILENCE);
            let error = match timeout_at(deadline, dialled).await {
                Ok(Ok(connection)) => {
                    match timeout_at(deadline, greeted(*address, connection)).await {
                        Ok(Ok(root)) => return Ok(root),
                        Ok(Err(error)) => error,
                        Err(_) => silent(settings, *address, "does not answer"),
                    }
                }
                Ok(Err(DialError::NoAnswer | DialError::Busy)) | Err(_) => {
                    last = silent(settings, *address, "does not answer");
                    continue;
                }
                Ok(Err(DialError::Refused)) => Error::Usage(format!(
                    "the process at {address} does not serve this unique id: it was used before, \
                     has expired, or is of another job"
                )),
                Ok(Err(DialError::Impostor)) if settings.patient => {
                    let text = format!("the process at {address} has another NEXAR_COMM_SECRET");
                    return Err(Error::Usage(text));
                }
                Ok(Err(DialError::Impostor)) => Error::Told {
                    code: Code::RemoteError,
                    text: format!("the process at {address} is not the root of this unique id"),
                },
                // As of an address family this host does not have.
                Ok(Err(DialError::Other(why))) => {
                    last = silent(settings, *address, &format!("cannot be reached: {why}"));
                    continue;
                }
            };
            verdict = Some(error);
        }
        // Every address of the root was tried before one's refusal counts.
        if let Some(error) = verdict {
            if !settings.patient {
                return Err(error);
            }
            last = error;
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        sleep(jitter()).await;
    }
}

/// Waits for the root's first word: until then it may still refuse our key.
async fn greeted(address: SocketAddr, connection: Connection) -> Result<Root> {
    let (send, mut recv) = connection.accept_bi().await.map_err(|error| match error {
        ConnectionError::ConnectionClosed(_) => Error::Usage(format!(
            "the root at {address} rejected our credentials: unique id or NEXAR_COMM_SECRET differs"
        )),
        other => Error::Told {
            code: Code::RemoteError,
            text: format!("the root at {address} was lost: {other}"),
        },
    })?;
    match Message::read(&mut recv, 0).await? {
        Message::Hello => Ok(Root { address, connection, send, recv }),
        other => Err(unexpected(other)),
    }
}

/// The root's refusal in its own words; anything else is not the protocol.
fn unexpected(message: Message) -> Error {
    match message {
        Message::Refused { code, text } => Error::Told { code, text },
        _ => Error::Told {
            code: Code::RemoteError,
            text: "the root does not speak the protocol".to_owned(),
        },
    }
}

fn silent(settings: &Settings, address: SocketAddr, how: &str) -> Error {
    Error::Timeout {
        limit_ms: settings.config.init_timeout.as_millis(),
        blame: format!("the root at {address} {how}"),
    }
}

/// 20 to 84 ms: ranks that were refused together do not come back together.
fn jitter() -> Duration {
    let spread = random::<1>().map_or(0, |[byte]| u64::from(byte % 64));
    Duration::from_millis(20 + spread)
}
