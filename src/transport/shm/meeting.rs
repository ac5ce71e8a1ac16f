//! How the ranks of one host come to share memory: each hands the first of them the descriptors of what it
//! has made, and gets those of all others.
//!
//! They meet at a socket without a file. Its name follows from a secret of the communicator's members, so
//! that no stranger can take it beforehand. Any process of the host may connect once the socket is there,
//! so each side proves its key of the roster, for this one meeting. That descriptors arrive at all is the
//! proof that memory is shared; no name of a host is believed. Leaves to the caller what follows if it
//! fails.
//!
//! Invariants: no call here blocks its thread, so that the caller's deadline ends every wait; a stranger
//! makes nobody wait longer; descriptors on their way are few. The kernel counts those of all processes of
//! a user against one limit, the number of files that the sender may have open.

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

/// Of what a rank has made: its shelf, its bell and its arena.
pub const DESCRIPTORS: usize = 3;
pub type Descriptors = [OwnedFd; DESCRIPTORS];

/// Pause before the next try to connect to a first rank that does not listen yet or is busy, and to send
/// descriptors while too many are on their way.
const RETRY: Duration = Duration::from_millis(2);
/// Guests that the first rank hands descriptors to at the same time.
const GUESTS_AT_ONCE: usize = 8;
/// Ranks whose descriptors one message carries. The guest acknowledges each message.
const RANKS_AT_ONCE: usize = 8;
const MOST_DESCRIPTORS: usize = RANKS_AT_ONCE * DESCRIPTORS;
/// Of those who have come and not proved anything yet.
const MOST_STRANGERS: usize = 1024;

const CHALLENGE: usize = 32;
const SIGNATURE: usize = 64;
/// What a guest answers: its index, a challenge of its own and its signature.
const ANSWER: usize = 4 + CHALLENGE + SIGNATURE;

/// The ranks that meet.
pub struct Party<'a> {
    /// The number of the communicator.
    pub name: u64,
    /// Known to the members of the communicator alone.
    pub secret: &'a Secret,
    pub me: &'a Identity,
    pub index: usize,
    /// Of all of them, in order.
    pub keys: Vec<PublicKey>,
}

/// Hands over `own`, if this rank could make it, and returns what all ranks have made, in order, this
/// rank's own not among them. Must be called inside the runtime.
pub async fn meet(
    party: &Party<'_>,
    own: Option<&Descriptors>,
) -> Result<Vec<Option<Descriptors>>> {
    match party.index {
        0 => host(party, own).await,
        _ => visit(party, own).await,
    }
}

/// The first rank lets the others come, and gives each what all have brought.
async fn host(party: &Party<'_>, own: Option<&Descriptors>) -> Result<Vec<Option<Descriptors>>> {
    let address = SocketAddr::from_abstract_name(party.socket_name())?;
    let listener = StdListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let mut guests: Vec<Option<Guest>> = party.keys.iter().map(|_| None).collect();
    let mut arriving = FuturesUnordered::new();
    while guests.iter().skip(1).any(Option::is_none) {
        tokio::select! {
            Some(arrived) = arriving.next(), if !arriving.is_empty() => {
                // A stranger is not an error: the rank may still come.
                let Ok(guest): Result<Guest> = arrived else { continue };
                let index = guest.index;
                guests[index] = Some(guest);
            }
            accepted = listener.accept(), if arriving.len() < MOST_STRANGERS => {
                arriving.push(receive(party, accepted?.0));
            }
        }
    }
    let cannot = || Error::new(ErrorKind::Unsupported, "a rank has no memory to share");
    let own = own.ok_or_else(cannot)?;
    if guests.iter().flatten().any(|guest| guest.brought.is_none()) {
        return Err(cannot());
    }
    let brought = guests.iter().map(|guest| guest.as_ref().and_then(|one| one.brought.as_ref()));
    let all: Vec<_> = brought.map(|brought| brought.unwrap_or(own)).collect();
    let handing_out: Vec<_> = guests.iter().flatten().map(|guest| hand_out(guest, &all)).collect();
    let mut handed_out = stream::iter(handing_out).buffer_unordered(GUESTS_AT_ONCE);
    while let Some(one) = handed_out.next().await {
        one?;
    }
    drop(handed_out);
    Ok(guests.into_iter().map(|guest| guest.and_then(|guest| guest.brought)).collect())
}

/// One that has proved who it is.
struct Guest {
    index: usize,
    stream: UnixStream,
    brought: Option<Descriptors>,
}

/// Gives a guest the descriptors of all other ranks, in order.
async fn hand_out(guest: &Guest, all: &[&Descriptors]) -> Result<()> {
    let others: Vec<_> =
        all.iter().enumerate().filter(|(index, _)| *index != guest.index).collect();
    for some in others.chunks(RANKS_AT_ONCE) {
        let descriptors = some.iter().flat_map(|(_, brought)| brought.each_ref());
        send(&guest.stream, &[some.len() as u8], descriptors).await?;
        recv(&guest.stream, &mut [0]).await?;
    }
    Ok(())
}

async fn receive(party: &Party<'_>, stream: UnixStream) -> Result<Guest> {
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
    let key = party.keys.get(index).filter(|_| index > 0).ok_or(ErrorKind::InvalidData)?;
    let signed = |role| party.signed(role, index, &challenge, theirs);
    if !key.verify(&signed(b"guest"), signature) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    send(&stream, &party.me.sign(&signed(b"host.")), []).await?;
    Ok(Guest { index, stream, brought })
}

async fn visit(party: &Party<'_>, own: Option<&Descriptors>) -> Result<Vec<Option<Descriptors>>> {
    let stream = connect(party).await?;
    check_user(&stream)?;
    let (mut theirs, challenge) = ([0; CHALLENGE], random::<CHALLENGE>().map_err(Error::other)?);
    recv(&stream, &mut theirs).await?;
    let signed = |role| party.signed(role, party.index, &theirs, &challenge);
    let signature = party.me.sign(&signed(b"guest"));
    let index = (party.index as u32).to_le_bytes();
    let answer = [&index[..], &challenge, &signature].concat();
    send(&stream, &answer, own.into_iter().flatten()).await?;
    let mut signature = [0; SIGNATURE];
    recv(&stream, &mut signature).await?;
    if !party.keys[0].verify(&signed(b"host."), &signature) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut all: Vec<Option<Descriptors>> = party.keys.iter().map(|_| None).collect();
    let others = all.iter_mut().enumerate().filter(|(index, _)| *index != party.index);
    let mut others: Vec<_> = others.map(|(_, place)| place).collect();
    for some in others.chunks_mut(RANKS_AT_ONCE) {
        let mut count = [0];
        let mut descriptors = recv(&stream, &mut count).await?.into_iter();
        for place in some.iter_mut() {
            let brought: Vec<_> = descriptors.by_ref().take(DESCRIPTORS).collect();
            **place = Some(brought.try_into().map_err(|_| too_few())?);
        }
        send(&stream, &count, []).await?;
    }
    Ok(all)
}

fn too_few() -> Error {
    Error::other(
        "descriptors were lost on their way: is the limit on open files (ulimit -n) too low?",
    )
}

/// Connects to the first rank. Never blocks, also not while the queue of its listener is full.
async fn connect(party: &Party<'_>) -> Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(party.socket_name().as_bytes())?;
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

impl Party<'_> {
    /// The name of the socket, which has no file. A name that a stranger sees tells nothing of others.
    fn socket_name(&self) -> String {
        let (name, host) = (self.name.to_le_bytes(), self.keys[0].bytes());
        let derived = self.secret.derive(b"", &[b"nexar/1 handshake socket", &name, host]);
        let digits = derived.bytes()[..16].iter().map(|byte| format!("{byte:02x}"));
        format!("nexar-{}", digits.collect::<String>())
    }

    /// What a signature covers: it is worth nothing in another meeting or from another role.
    fn signed(&self, role: &[u8; 5], index: usize, host: &[u8], guest: &[u8]) -> Vec<u8> {
        let (name, index) = (self.name.to_le_bytes(), (index as u32).to_le_bytes());
        [&b"nexar/1 shm "[..], role, &name, &index, host, guest].concat()
    }
}

/// Memory is shared with processes of the same user only.
fn check_user(stream: &UnixStream) -> Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    let same = peer == rustix::process::geteuid();
    if same { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Sends bytes, few enough to go at once, with descriptors. Waits while the user has too many descriptors
/// on their way.
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

/// Receives as many bytes, and returns the descriptors that came with them.
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

    /// Has a thread with a runtime of its own poll a future. `None` if it takes longer than `DEADLINE`,
    /// also where a system call holds the thread.
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

    fn party<'a>(all: &'a [Identity], secret: &'a Secret, index: usize, name: u64) -> Party<'a> {
        let keys = all.iter().map(Identity::public).collect();
        Party { name, secret, me: &all[index], index, keys }
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
        let met = polled(async move || {
            let (all, secret) = (identities(ranks), Secret::random().unwrap());
            let parties: Vec<_> = (0..ranks).map(|rank| party(&all, &secret, rank, 7)).collect();
            let own: Vec<Descriptors> =
                (0..ranks).map(|rank| std::array::from_fn(|of| file(rank, of))).collect();
            join_all(parties.iter().zip(&own).map(|(party, own)| meet(party, Some(own)))).await
        });
        for (rank, met) in met.expect("no deadline is missed").into_iter().enumerate() {
            for (other, brought) in met.unwrap().into_iter().enumerate() {
                assert_eq!(brought.is_none(), other == rank);
                for (of, file) in brought.into_iter().flatten().enumerate() {
                    let length = rustix::fs::fstat(&file).unwrap().st_size as usize;
                    assert_eq!(length, other * DESCRIPTORS + of + 1);
                }
            }
        }
    }

    #[test]
    fn a_listener_whose_queue_is_full_holds_no_thread() {
        let ended = polled(async || {
            let (all, secret) = (identities(2), Secret::random().unwrap());
            let guest = party(&all, &secret, 1, 7);
            let address =
                SocketAddrUnix::new_abstract_name(guest.socket_name().as_bytes()).unwrap();
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
            timeout(Duration::from_millis(50), meet(&guest, None)).await.is_err()
        });
        assert_eq!(ended, Some(true), "the deadline of the meeting ends it");
    }

    #[test]
    fn the_name_of_a_socket_follows_from_the_secret() {
        let all = identities(2);
        let name = |secret: u8, number| {
            party(&all, &Secret::from_bytes([secret; 32]), 0, number).socket_name()
        };
        assert_eq!(name(1, 7), name(1, 7));
        assert_ne!(name(1, 7), name(2, 7));
        assert_ne!(name(1, 7), name(1, 8));
    }
}
