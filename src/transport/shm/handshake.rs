//! The shared-memory handshake of the ranks of one host: each rank sends the first of them the
//! descriptors of its memory, and receives those of all others.
//!
//! The first rank listens at an abstract Unix socket. Its name is derived from a secret of the
//! communicator's members, so that no stranger can bind it first. Any process of the host may
//! connect to it, so each side proves its key of the roster, for this one handshake. The arrival of
//! the descriptors is the proof that memory can be shared: no host name is trusted. Leaves to the
//! caller what follows if it fails.
//!
//! Invariants: no call here blocks its thread, so that the caller's deadline ends every wait; a
//! stranger delays no rank; few descriptors are in flight. The kernel counts the descriptors in
//! flight of all processes of a user against one limit, RLIMIT_NOFILE of the sender.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::time::Duration;

use futures_util::stream::{self, FuturesUnordered, StreamExt};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

use crate::transport::key::{Identity, PublicKey, Secret, random};

/// The descriptors of a rank: segment, doorbell and arena.
pub const DESCRIPTORS: usize = 3;
pub type Descriptors = [OwnedFd; DESCRIPTORS];

/// Pause before the next attempt to connect to a first rank that does not listen yet or is busy,
/// and to send descriptors while too many are in flight.
const RETRY: Duration = Duration::from_millis(2);
/// Ranks to which the first rank sends descriptors concurrently.
const RANKS_SERVED_AT_ONCE: usize = 8;
/// Ranks whose descriptors one message carries. The receiver acknowledges each message.
const RANKS_AT_ONCE: usize = 8;
const MOST_DESCRIPTORS: usize = RANKS_AT_ONCE * DESCRIPTORS;
/// The most connections that have not proved a key yet.
const MOST_STRANGERS: usize = 1024;

const CHALLENGE: usize = 32;
const SIGNATURE: usize = 64;
/// The answer of a rank: its index, its own challenge and its signature.
const ANSWER: usize = 4 + CHALLENGE + SIGNATURE;

/// The ranks of the handshake.
pub struct HostGroup<'a> {
    /// The id of the communicator's context.
    pub name: u64,
    /// Known only to the members of the communicator.
    pub secret: &'a Secret,
    pub me: &'a Identity,
    pub index: usize,
    /// The keys of all ranks, by index.
    pub keys: Vec<PublicKey>,
}

/// Sends `own`, if this rank could create it, and returns the descriptors of all ranks by index,
/// `None` for this rank. Must be called inside the runtime.
pub async fn exchange_descriptors(
    group: &HostGroup<'_>,
    own: Option<&Descriptors>,
) -> Result<Vec<Option<Descriptors>>> {
    match group.index {
        0 => serve(group, own).await,
        _ => join(group, own).await,
    }
}

/// The first rank: accepts the others, and sends each the descriptors of all.
async fn serve(
    group: &HostGroup<'_>,
    own: Option<&Descriptors>,
) -> Result<Vec<Option<Descriptors>>> {
    let address = SocketAddr::from_abstract_name(group.socket_name())?;
    let listener = StdListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let mut joined: Vec<Option<JoinedRank>> = group.keys.iter().map(|_| None).collect();
    let mut arriving = FuturesUnordered::new();
    while joined.iter().skip(1).any(Option::is_none) {
        tokio::select! {
            Some(arrived) = arriving.next(), if !arriving.is_empty() => {
                // A stranger is not an error: the rank may still connect.
                let Ok(rank): Result<JoinedRank> = arrived else { continue };
                let index = rank.index;
                joined[index] = Some(rank);
            }
            accepted = listener.accept(), if arriving.len() < MOST_STRANGERS => {
                arriving.push(receive(group, accepted?.0));
            }
        }
    }
    let cannot = || Error::new(ErrorKind::Unsupported, "a rank has no memory to share");
    let own = own.ok_or_else(cannot)?;
    if joined.iter().flatten().any(|rank| rank.brought.is_none()) {
        return Err(cannot());
    }
    let brought = joined.iter().map(|rank| rank.as_ref().and_then(|one| one.brought.as_ref()));
    let all: Vec<_> = brought.map(|brought| brought.unwrap_or(own)).collect();
    let sending: Vec<_> = joined.iter().flatten().map(|rank| distribute(rank, &all)).collect();
    let mut sent = stream::iter(sending).buffer_unordered(RANKS_SERVED_AT_ONCE);
    while let Some(one) = sent.next().await {
        one?;
    }
    drop(sent);
    Ok(joined.into_iter().map(|rank| rank.and_then(|rank| rank.brought)).collect())
}

/// A rank that has proved its key.
struct JoinedRank {
    index: usize,
    stream: UnixStream,
    brought: Option<Descriptors>,
}

/// Sends a rank the descriptors of all other ranks, by index.
async fn distribute(rank: &JoinedRank, all: &[&Descriptors]) -> Result<()> {
    let others: Vec<_> = all.iter().enumerate().filter(|(index, _)| *index != rank.index).collect();
    for some in others.chunks(RANKS_AT_ONCE) {
        let descriptors = some.iter().flat_map(|(_, brought)| brought.each_ref());
        send(&rank.stream, &[some.len() as u8], descriptors).await?;
        recv(&rank.stream, &mut [0]).await?;
    }
    Ok(())
}

async fn receive(group: &HostGroup<'_>, stream: UnixStream) -> Result<JoinedRank> {
    check_user(&stream)?;
    let challenge = random::<CHALLENGE>().map_err(Error::other)?;
    send(&stream, &challenge, []).await?;
    let mut answer = [0; ANSWER];
    let brought = match recv(&stream, &mut answer).await? {
        none if none.is_empty() => None,
        descriptors => Some(descriptors.try_into().map_err(|_| too_few())?),
    };
    let (index, rest) = answer.split_at(4);
    let (theirs, signature) = rest.split_at(CHALLENGE);
    let index = u32::from_le_bytes(index.try_into().expect("4 bytes")) as usize;
    let key = group.keys.get(index).filter(|_| index > 0).ok_or(ErrorKind::InvalidData)?;
    let signed = |role| group.signed(role, index, &challenge, theirs);
    if !key.verify(&signed(b"guest"), signature) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    send(&stream, &group.me.sign(&signed(b"host.")), []).await?;
    Ok(JoinedRank { index, stream, brought })
}

async fn join(
    group: &HostGroup<'_>,
    own: Option<&Descriptors>,
) -> Result<Vec<Option<Descriptors>>> {
    let stream = connect(group).await?;
    check_user(&stream)?;
    let (mut theirs, challenge) = ([0; CHALLENGE], random::<CHALLENGE>().map_err(Error::other)?);
    recv(&stream, &mut theirs).await?;
    let signed = |role| group.signed(role, group.index, &theirs, &challenge);
    let signature = group.me.sign(&signed(b"guest"));
    let index = (group.index as u32).to_le_bytes();
    let answer = [&index[..], &challenge, &signature].concat();
    send(&stream, &answer, own.into_iter().flatten()).await?;
    let mut signature = [0; SIGNATURE];
    recv(&stream, &mut signature).await?;
    if !group.keys[0].verify(&signed(b"host."), &signature) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut all: Vec<Option<Descriptors>> = group.keys.iter().map(|_| None).collect();
    let others = all.iter_mut().enumerate().filter(|(index, _)| *index != group.index);
    let mut others: Vec<_> = others.map(|(_, location)| location).collect();
    for some in others.chunks_mut(RANKS_AT_ONCE) {
        let mut count = [0];
        let mut descriptors = recv(&stream, &mut count).await?.into_iter();
        for location in some.iter_mut() {
            let brought: Vec<_> = descriptors.by_ref().take(DESCRIPTORS).collect();
            **location = Some(brought.try_into().map_err(|_| too_few())?);
        }
        send(&stream, &count, []).await?;
    }
    Ok(all)
}

fn too_few() -> Error {
    Error::other(
        "descriptors were lost in transit: is the limit on open files (ulimit -n) too low?",
    )
}

/// Connects to the first rank. Never blocks, even while the backlog of its listener is full.
async fn connect(group: &HostGroup<'_>) -> Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(group.socket_name().as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return UnixStream::from_std(StdStream::from(socket)),
            Err(Errno::CONNREFUSED | Errno::AGAIN) => sleep(RETRY).await,
            Err(error) => return Err(error.into()),
        }
    }
}

impl HostGroup<'_> {
    /// The name of the abstract socket. It reveals nothing about the names of other communicators.
    fn socket_name(&self) -> String {
        let (name, host) = (self.name.to_le_bytes(), self.keys[0].bytes());
        let derived = self.secret.derive(b"", &[b"nexar/1 handshake socket", &name, host]);
        let digits = derived.bytes()[..16].iter().map(|byte| format!("{byte:02x}"));
        format!("nexar-{}", digits.collect::<String>())
    }

    /// What a signature covers: it is worthless in another handshake or role.
    fn signed(&self, role: &[u8; 5], index: usize, host: &[u8], rank: &[u8]) -> Vec<u8> {
        let (name, index) = (self.name.to_le_bytes(), (index as u32).to_le_bytes());
        [&b"nexar/1 shm "[..], role, &name, &index, host, rank].concat()
    }
}

/// Memory is shared only with processes of the same user.
fn check_user(stream: &UnixStream) -> Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    let same = peer == rustix::process::geteuid();
    if same { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Sends bytes, few enough for one sendmsg, with descriptors. Waits while the user has too many
/// descriptors in flight.
async fn send(
    stream: &UnixStream,
    bytes: &[u8],
    with: impl IntoIterator<Item = &OwnedFd>,
) -> Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> = with.into_iter().map(AsFd::as_fd).collect();
    let send_once = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let bytes = [IoSlice::new(bytes)];
        Ok(rustix::net::sendmsg(stream, &bytes, &mut control, SendFlags::NOSIGNAL)?)
    };
    let too_many = Some(Errno::TOOMANYREFS.raw_os_error());
    let sent = loop {
        match stream.async_io(Interest::WRITABLE, send_once).await {
            Err(error) if error.raw_os_error() == too_many => sleep(RETRY).await,
            sent => break sent?,
        }
    };
    if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Receives exactly these bytes, and returns the descriptors that arrived with them.
async fn recv(stream: &UnixStream, into: &mut [u8]) -> Result<Vec<OwnedFd>> {
    let (mut done, mut descriptors) = (0, Vec::new());
    while done < into.len() {
        let received = stream
            .async_io(Interest::READABLE, || {
                let mut space =
                    [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let received = rustix::net::recvmsg(
                    stream,
                    &mut [IoSliceMut::new(&mut into[done..])],
                    &mut control,
                    RecvFlags::CMSG_CLOEXEC,
                )?;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = message {
                        descriptors.extend(rights);
                    }
                }
                Ok(received.bytes)
            })
            .await?;
        if received == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        done += received;
    }
    Ok(descriptors)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures_util::future::join_all;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// Polls a future on a thread with its own runtime. `None` if it takes longer than `DEADLINE`,
    /// also if a system call blocks the thread.
    fn polled<T: Send + 'static>(future: impl AsyncFnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let _ = sender.send(runtime.block_on(future()));
        });
        ended.recv_timeout(DEADLINE).ok()
    }

    fn identities(ranks: usize) -> Vec<Identity> {
        (0..ranks).map(|_| Identity::random().unwrap()).collect()
    }

    fn group<'a>(
        all: &'a [Identity],
        secret: &'a Secret,
        index: usize,
        name: u64,
    ) -> HostGroup<'a> {
        let keys = all.iter().map(Identity::public).collect();
        HostGroup { name, secret, me: &all[index], index, keys }
    }

    fn file(rank: usize, of: usize) -> OwnedFd {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("nexar-test", flags).unwrap();
        rustix::fs::ftruncate(&file, (rank * DESCRIPTORS + of + 1) as u64).unwrap();
        file
    }

    #[test]
    fn every_rank_gets_the_descriptors_of_all_others_in_order() {
        let ranks = 2 * RANKS_AT_ONCE + 3;
        let received = polled(async move || {
            let (all, secret) = (identities(ranks), Secret::random().unwrap());
            let groups: Vec<_> = (0..ranks).map(|rank| group(&all, &secret, rank, 7)).collect();
            let own: Vec<Descriptors> =
                (0..ranks).map(|rank| std::array::from_fn(|of| file(rank, of))).collect();
            join_all(
                groups.iter().zip(&own).map(|(group, own)| exchange_descriptors(group, Some(own))),
            )
            .await
        });
        for (rank, received) in received.expect("no deadline is missed").into_iter().enumerate() {
            for (other, brought) in received.unwrap().into_iter().enumerate() {
                assert_eq!(brought.is_none(), other == rank);
                for (of, file) in brought.into_iter().flatten().enumerate() {
                    let length = rustix::fs::fstat(&file).unwrap().st_size as usize;
                    assert_eq!(length, other * DESCRIPTORS + of + 1);
                }
            }
        }
    }

    #[test]
    fn a_listener_whose_backlog_is_full_blocks_no_thread() {
        let ended = polled(async || {
            let (all, secret) = (identities(2), Secret::random().unwrap());
            let rank = group(&all, &secret, 1, 7);
            let address = SocketAddrUnix::new_abstract_name(rank.socket_name().as_bytes()).unwrap();
            let socket = || {
                let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
                rustix::net::socket_with(family, kind, SocketFlags::NONBLOCK, None).unwrap()
            };
            let listener = socket();
            rustix::net::bind(&listener, &address).unwrap();
            rustix::net::listen(&listener, 0).unwrap();
            let mut waiting = vec![socket()];
            while rustix::net::connect(waiting.last().unwrap(), &address).is_ok() {
                waiting.push(socket());
            }
            timeout(Duration::from_millis(50), exchange_descriptors(&rank, None)).await.is_err()
        });
        assert_eq!(ended, Some(true), "the deadline of the handshake ends it");
    }

    #[test]
    fn the_name_of_a_socket_is_derived_from_the_secret() {
        let all = identities(2);
        let name = |secret: u8, number| {
            group(&all, &Secret::from_bytes([secret; 32]), 0, number).socket_name()
        };
        assert_eq!(name(1, 7), name(1, 7));
        assert_ne!(name(1, 7), name(2, 7));
        assert_ne!(name(1, 7), name(1, 8));
    }
}
