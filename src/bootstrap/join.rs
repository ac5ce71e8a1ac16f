//! The joining rank: connects to the root, sends its Join, checks the table, opens the mesh.
//!
//! Leaves the root's part to `root`. Invariant: a mesh is returned only after all ranks have
//! confirmed the same table.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::{Config, Job};
use crate::error::{Code, Error, Result};
use crate::rank::Rank;
use crate::transport::key::{Identity, random};
use crate::transport::quic::endpoint::{DialError, Endpoint};
use crate::transport::quic::process::Process;
use crate::transport::quic::{Member, Plan};
use crate::transport::{Mesh, process};

use super::address;
use super::fingerprint::Build;
use super::id::UniqueId;
use super::message::{Join, Message, encode_table};
use super::session::{CLOSE_CODE, Settings, World, binding, sha256};

/// A root that sends nothing for this long is lost.
const ROOT_SILENCE: Duration = Duration::from_secs(5);
/// How long a rank waits after its deadline for the root's report of the missing ranks.
pub const GRACE: Duration = Duration::from_millis(500);

pub async fn join(
    endpoint: Arc<Endpoint>,
    id: UniqueId,
    world: World,
    settings: Settings,
) -> Result<Mesh> {
    let deadline = Instant::from_std(settings.deadline);
    let mut root = connect_to_root(&endpoint, &id, &settings, deadline).await?;

    let me = Identity::random()?;
    let member = Member {
        key: me.public(),
        addresses: address::of_rank(
            &settings.config,
            settings.advertised,
            endpoint.port(),
            root.address,
        )?,
        process: Process::of_this(),
        host: host(&settings.config),
        cuda: settings.cuda,
    };
    let mut join = Join {
        rank: world.rank.0,
        nranks: world.size,
        init_timeout_ms: u32::try_from(settings.config.init_timeout.as_millis())
            .unwrap_or(u32::MAX),
        settings: settings.hash,
        member,
        signature: [0; 64],
    };
    let binding = binding(&root.connection, id.nonce)
        .ok_or_else(|| Error::System("TLS exports no keying material".to_owned()))?;
    join.signature = me.sign(&join.signed(&binding));

    let forming = async {
        Message::Join(join).write(&mut root.send).await?;
        let answer = Message::read(&mut root.recv, world.size).await;
        let roster = match answer.map_err(|error| root.why_closed(error))? {
            Message::Table(roster) if contains_me(&roster, world, &me) => roster,
            Message::Table(_) => return Err(not_in_table(world.rank)),
            other => return Err(unexpected(other)),
        };
        let hash = sha256(&encode_table(&roster));
        // Peers may dial as soon as they receive Go, so this rank listens before it confirms.
        let mesh = process::open(Plan {
            endpoint,
            me,
            rank: world.rank,
            roster,
            // From the table, not from the id: an address may serve one communicator after another.
            nonce: u64::from_le_bytes(hash[..8].try_into().expect("8 of 32 bytes")),
            secret: settings.member_secret.clone(),
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
    root.connection.close(CLOSE_CODE, b"");
    let mesh =
        formed.map_err(|_| root_timeout(&settings, root.address, "stopped responding"))??;
    match timeout_at(deadline + GRACE, mesh.connect_neighbours()).await {
        Ok(connected) => connected.map(|()| mesh),
        Err(_) => Err(Error::Timeout {
            limit_ms: settings.config.init_timeout.as_millis(),
            blame: mesh.why_incomplete(),
        }),
    }
}

/// The name of the host, equal on ranks that can share memory. `None` if this rank shares none.
fn host(config: &Config) -> Option<[u8; 16]> {
    if config.shm_disable {
        None
    } else {
        process::host_of_this(config.host_id.as_deref().unwrap_or_default())
    }
}

/// Whether a table has this rank's key in its entry. Each rank checks its own entry, so a table in
/// which two ranks are exchanged is detected too.
fn contains_me(roster: &[Member], world: World, me: &Identity) -> bool {
    roster.len() == world.size && roster[world.rank.0].key == me.public()
}

fn not_in_table(rank: Rank) -> Error {
    let text = format!("the root's table of ranks does not contain this process as {rank}");
    Error::Reported { code: Code::RemoteError, text }
}

/// A connection to the root, which has accepted this rank's key.
struct RootConnection {
    address: SocketAddr,
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
}

impl RootConnection {
    /// The error after a Join was sent. A root that closes the connection then cannot decode a
    /// Join: its build is older than introductions, or it would have sent Refused.
    fn why_closed(&self, error: Error) -> Error {
        let Some(ConnectionError::ApplicationClosed(_)) = self.connection.close_reason() else {
            return error;
        };
        let (address, ours) = (self.address, Build::of_this());
        Error::Usage(format!(
            "the root at {address} cannot decode the message of this rank: it runs an older nexar, \
             this rank runs {ours}: install one build on all hosts"
        ))
    }
}

async fn connect_to_root(
    endpoint: &Endpoint,
    id: &UniqueId,
    settings: &Settings,
    deadline: Instant,
) -> Result<RootConnection> {
    let mut last = Error::Usage("the unique id contains no address".to_owned());
    let service = id.service();
    loop {
        let mut refusal = None;
        for address in &id.addresses {
            let dialled = endpoint.dial(
                *address,
                &service,
                &settings.credentials,
                id.root,
                Some(ROOT_SILENCE),
            );
            let error = match timeout_at(deadline, dialled).await {
                Ok(Ok(connection)) => {
                    match timeout_at(deadline, wait_for_hello(*address, connection)).await {
                        Ok(Ok(root)) => return Ok(root),
                        Ok(Err(error)) => error,
                        Err(_) => root_timeout(settings, *address, "does not answer"),
                    }
                }
                Ok(Err(DialError::NoAnswer | DialError::Busy)) | Err(_) => {
                    last = root_timeout(settings, *address, "does not answer");
                    continue;
                }
                Ok(Err(DialError::Refused)) => Error::Usage(format!(
                    "the process at {address} does not serve this unique id: the id was used \
                     before, its initialisation failed, or it is of another job; call \
                     nexarGetUniqueId for each communicator"
                )),
                Ok(Err(DialError::Impostor)) if settings.retry => {
                    return Err(another_job(*address, settings.config.job.as_ref()));
                }
                Ok(Err(DialError::Impostor)) => Error::Reported {
                    code: Code::RemoteError,
                    text: format!("the process at {address} is not the root of this unique id"),
                },
                // For example, this host does not have the address family.
                Ok(Err(DialError::Other(why))) => {
                    last = root_timeout(settings, *address, &format!("cannot be reached: {why}"));
                    continue;
                }
            };
            refusal = Some(error);
        }
        // A refusal at one address counts only after all addresses of the root were tried.
        if let Some(error) = refusal {
            if !settings.retry {
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

/// Waits for Hello. Until then the root may still reject this rank's key.
async fn wait_for_hello(address: SocketAddr, connection: Connection) -> Result<RootConnection> {
    let (send, mut recv) = connection.accept_bi().await.map_err(|error| match error {
        ConnectionError::ConnectionClosed(_) => Error::Usage(format!(
            "the root at {address} rejected this rank's credentials: use the same unique id and \
             NEXAR_COMM_SECRET on all ranks"
        )),
        other => Error::Reported {
            code: Code::RemoteError,
            text: format!("the root at {address} was lost: {other}"),
        },
    })?;
    match Message::read(&mut recv, 0).await? {
        Message::Hello => Ok(RootConnection { address, connection, send, recv }),
        other => Err(unexpected(other)),
    }
}

/// The error of a message that is not the expected one: the root's text if it is a refusal.
fn unexpected(message: Message) -> Error {
    match message {
        Message::Refused { code, text } => Error::Reported { code, text },
        _ => Error::Reported {
            code: Code::RemoteError,
            text: "the root sent an unexpected message of the join protocol".to_owned(),
        },
    }
}

fn another_job(address: SocketAddr, job: Option<&Job>) -> Error {
    let mine = match job {
        Some(Job { id, source }) => format!("this rank's job is {id} by {source}"),
        None => "this rank has no job id".to_owned(),
    };
    Error::Usage(format!(
        "the process at {address} has another NEXAR_COMM_SECRET, is of another job, or runs an \
         older nexar: {mine}; set the same NEXAR_COMM_SECRET and NEXAR_JOB_ID on all ranks"
    ))
}

fn root_timeout(settings: &Settings, address: SocketAddr, how: &str) -> Error {
    Error::Timeout {
        limit_ms: settings.config.init_timeout.as_millis(),
        blame: format!("the root at {address} {how}"),
    }
}

/// 20 to 84 ms, so that ranks that were refused at the same time do not retry at the same time.
fn jitter() -> Duration {
    let spread = random::<1>().map_or(0, |[byte]| u64::from(byte % 64));
    Duration::from_millis(20 + spread)
}
