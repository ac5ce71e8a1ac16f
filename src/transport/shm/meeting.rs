//! How the ranks of one host come to share memory: each hands the first of them the descriptors of what it
//! has made, and gets those of all others.
//!
//! They meet at a socket without a file, named after the communicator. Anybody on the host may come there,
//! so each side proves its key of the roster, for this one meeting. That descriptors arrive at all is the
//! proof that memory is shared; no name of a host is believed. Leaves to the caller what follows if it
//! fails. Invariant: every wait is bounded by the caller's deadline, a stranger makes nobody wait longer.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

use crate::transport::quic::key::{Identity, PublicKey, random};

/// Of what a rank has made: its shelf, its bell and its arena.
pub const DESCRIPTORS: usize = 3;
pub type Descriptors = [OwnedFd; DESCRIPTORS];

/// Pause before the next try to reach a first rank that does not listen yet.
const RETRY: Duration = Duration::from_millis(2);
/// Of those who have come and not proved anything yet.
const MOST_STRANGERS: usize = 1024;

const CHALLENGE: usize = 32;
const SIGNATURE: usize = 64;
/// What a guest answers: its index, a challenge of its own and its signature.
const ANSWER: usize = 4 + CHALLENGE + SIGNATURE;

/// The ranks that meet.
pub struct Party<'a> {
    /// Of the communicator.
    pub name: u64,
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
    let listener = StdListener::bind_addr(&party.address()?)?;
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
    for (index, guest) in guests.iter().enumerate().skip(1) {
        let guest = guest.as_ref().expect("all have come");
        for (other, brought) in guests.iter().enumerate().filter(|(other, _)| *other != index) {
            let theirs = brought.as_ref().and_then(|other| other.brought.as_ref()).unwrap_or(own);
            send(&guest.stream, &(other as u32).to_le_bytes(), Some(theirs)).await?;
        }
    }
    Ok(guests.into_iter().map(|guest| guest.and_then(|guest| guest.brought)).collect())
}

/// One that has proved who it is.
struct Guest {
    index: usize,
    stream: UnixStream,
    brought: Option<Descriptors>,
}

async fn receive(party: &Party<'_>, stream: UnixStream) -> Result<Guest> {
    check_user(&stream)?;
    let challenge = random::<CHALLENGE>().map_err(Error::other)?;
    send(&stream, &challenge, None).await?;
    let mut answer = [0; ANSWER];
    let brought = recv(&stream, &mut answer).await?;
    let (index, rest) = answer.split_at(4);
    let (theirs, signature) = rest.split_at(CHALLENGE);
    let index = u32::from_le_bytes(index.try_into().expect("4 bytes")) as usize;
    let key = party.keys.get(index).filter(|_| index > 0).ok_or(ErrorKind::InvalidData)?;
    let signed = |role| party.signed(role, index, &challenge, theirs);
    if !key.verify(&signed(b"guest"), signature) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    send(&stream, &party.me.sign(&signed(b"host.")), None).await?;
    Ok(Guest { index, stream, brought })
}

async fn visit(party: &Party<'_>, own: Option<&Descriptors>) -> Result<Vec<Option<Descriptors>>> {
    let stream = loop {
        match StdStream::connect_addr(&party.address()?) {
            Ok(stream) => break stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => sleep(RETRY).await,
            Err(error) => return Err(error),
        }
    };
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    check_user(&stream)?;
    let (mut theirs, challenge) = ([0; CHALLENGE], random::<CHALLENGE>().map_err(Error::other)?);
    recv(&stream, &mut theirs).await?;
    let signed = |role| party.signed(role, party.index, &theirs, &challenge);
    let signature = party.me.sign(&signed(b"guest"));
    let index = (party.index as u32).to_le_bytes();
    send(&stream, &[&index[..], &challenge, &signature].concat(), own).await?;
    let mut signature = [0; SIGNATURE];
    recv(&stream, &mut signature).await?;
    if !party.keys[0].verify(&signed(b"host."), &signature) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut all: Vec<Option<Descriptors>> = party.keys.iter().map(|_| None).collect();
    for (index, place) in all.iter_mut().enumerate().filter(|(index, _)| *index != party.index) {
        let mut other = [0; 4];
        let brought = recv(&stream, &mut other).await?;
        if u32::from_le_bytes(other) as usize != index || brought.is_none() {
            return Err(ErrorKind::InvalidData.into());
        }
        *place = brought;
    }
    Ok(all)
}

impl Party<'_> {
    /// Of a socket that has no file.
    fn address(&self) -> Result<SocketAddr> {
        let host: String = self.keys[0].bytes()[..8].iter().map(|b| format!("{b:02x}")).collect();
        SocketAddr::from_abstract_name(format!("nexar-{:016x}-{host}", self.name))
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

/// Sends bytes, few enough to go at once, with descriptors.
async fn send(stream: &UnixStream, bytes: &[u8], with: Option<&Descriptors>) -> Result<()> {
    let borrowed: Option<[BorrowedFd<'_>; DESCRIPTORS]> =
        with.map(|with| std::array::from_fn(|i| with[i].as_fd()));
    let sent = stream
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if let Some(descriptors) = &borrowed {
                control.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let sent = rustix::net::sendmsg(
                stream,
                &[IoSlice::new(bytes)],
                &mut control,
                SendFlags::NOSIGNAL,
            );
            Ok(sent?)
        })
        .await?;
    if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Receives as many bytes, and the descriptors that came with them.
async fn recv(stream: &UnixStream, into: &mut [u8]) -> Result<Option<Descriptors>> {
    let (mut done, mut descriptors) = (0, Vec::new());
    while done < into.len() {
        let received = stream
            .async_io(Interest::READABLE, || {
                let mut space =
                    [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
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
    if descriptors.is_empty() {
        return Ok(None);
    }
    descriptors.try_into().map(Some).map_err(|_| ErrorKind::InvalidData.into())
}
