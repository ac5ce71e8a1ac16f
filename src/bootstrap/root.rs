//! The root of a unique id: takes the ranks in, and sends them all away with the same table.
//!
//! It lives as long as the process that made the id, and serves it once. Everything a stranger
//! could do ends in TLS; a member that contradicts the others, or runs another build, ends the
//! initialisation for all, with the reason.

use std::future::pending;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

use crate::error::{Code, Error, Result};
use crate::transport::quic::Member;
use crate::transport::quic::endpoint::Service;

use super::fingerprint::{Build, Introduction};
use super::message::{HEAD_BYTES, Join, MOST_RANKS, Message, write_encoded};
use super::session::{CLOSE_CODE, binding, sha256};

/// Time for a rank to say who it is, and to confirm the table.
pub const ANSWER: Duration = Duration::from_secs(5);
/// Ranks that come this long after a failed initialisation are told why it failed.
const REMEMBERED: Duration = Duration::from_secs(30);

/// How many roots of this process have something to tell.
static BUSY: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// One of them.
struct Busy;

impl Busy {
    fn new() -> Self {
        BUSY.send_modify(|count| *count += 1);
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.send_modify(|count| *count -= 1);
    }
}

/// Waits until no root of this process has anything to tell.
pub async fn idle() {
    let _ = BUSY.subscribe().wait_for(|count| *count == 0).await;
}

/// The connection and the stream of a process that dialled the root.
struct Caller {
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
}

/// Whether a root of this process has something to tell.
pub fn is_busy() -> bool {
    *BUSY.borrow() > 0
}

/// A rank that has said who it is.
struct Joined {
    join: Join,
    caller: Caller,
}

/// What the first message of a caller says.
enum FirstMessage {
    Join(Join),
    /// Its build is another one; `None` if it does not say which.
    OtherBuild(Option<Introduction>),
}

/// The ranks that wait for the others, or why there will be no communicator.
struct Root {
    nonce: u64,
    /// Whether rank 0 runs this root; else the process that made the id does.
    at_rank_0: bool,
    ranks: Vec<Joined>,
    /// When the first of them gives up, or when the verdict is forgotten. None while nobody waits:
    /// an id lives as long as the process that made it.
    deadline: Option<Instant>,
    /// Told to each rank that still comes.
    verdict: Option<Error>,
}

pub async fn serve(mut service: Service, nonce: u64, at_rank_0: bool) {
    let (sender, mut callers) = mpsc::channel(64);
    let mut root = Root { nonce, at_rank_0, ranks: Vec::new(), deadline: None, verdict: None };
    loop {
        let deadline = root.deadline;
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
            arrival = service.arrivals.recv() => {
                let Some(arrival) = arrival else { return };
                tokio::spawn(greet(arrival.connection, nonce, sender.clone()));
            }
            Some((said, caller)) = callers.recv() => {
                root.take(said, caller);
                if root.is_complete() {
                    return form(root.ranks, nonce, Busy::new()).await;
                }
            }
            () = late => {
                if root.verdict.is_some() {
                    return;
                }
                root.give_up();
            }
        }
    }
}

impl Root {
    fn take(&mut self, said: FirstMessage, caller: Caller) {
        if let Some(error) = &self.verdict {
            tokio::spawn(refuse(vec![caller], error.clone(), Busy::new()));
            return;
        }
        let join = match said {
            FirstMessage::Join(join) => join,
            FirstMessage::OtherBuild(introduction) => {
                let error = self.other_build(introduction, &caller);
                return self.end(error, Some(caller));
            }
        };
        debug!("id {:016x}: rank {} is here", self.nonce, join.rank);
        let new = Joined { join, caller };
        // A rank that has gone meanwhile may come again.
        self.ranks.retain(|rank| !rank.has_gone());
        if self.ranks.is_empty() {
            self.deadline = None;
        }
        let patience = Instant::now() + Duration::from_millis(new.join.patience_ms.into());
        self.deadline = Some(self.deadline.map_or(patience, |deadline| deadline.min(patience)));
        match contradiction(&self.ranks, &new) {
            Some(error) => self.end(error, Some(new.caller)),
            None => self.ranks.push(new),
        }
    }

    fn is_complete(&self) -> bool {
        self.ranks.first().is_some_and(|first| self.ranks.len() == first.join.nranks)
    }

    /// A rank's patience has ended before all were here. If all that came have gone, the id waits
    /// on.
    fn give_up(&mut self) {
        let error = missing(&mut self.ranks);
        if self.ranks.is_empty() {
            self.deadline = None;
        } else {
            self.end(error, None);
        }
    }

    /// Tells all ranks that are here why there will be no communicator, and remembers it.
    fn end(&mut self, error: Error, newest: Option<Caller>) {
        info!("id {:016x}: no communicator: {error}", self.nonce);
        let waiting = self.ranks.drain(..).map(|rank| rank.caller).chain(newest).collect();
        tokio::spawn(refuse(waiting, error.clone(), Busy::new()));
        self.verdict = Some(error);
        self.deadline = Some(Instant::now() + REMEMBERED);
    }

    fn other_build(&self, introduction: Option<Introduction>, caller: &Caller) -> Error {
        let from = caller.address();
        let theirs = match introduction {
            Some(Introduction { rank, build }) => format!("rank {rank} at {from} runs {build}"),
            None => format!("a rank at {from} runs an older nexar"),
        };
        let root = if self.at_rank_0 { "rank 0" } else { "the process that made the unique id" };
        let ours = Build::of_this();
        let what = format!("{theirs}, {root} runs {ours}: install one build on all hosts");
        Error::Usage(what)
    }
}

impl Joined {
    fn has_gone(&self) -> bool {
        self.caller.connection.close_reason().is_some()
    }
}

impl Caller {
    fn address(&self) -> IpAddr {
        self.connection.remote_address().ip().to_canonical()
    }
}

/// The server speaks first: only then does a dialler know that its key was accepted.
async fn greet(connection: Connection, nonce: u64, callers: mpsc::Sender<(FirstMessage, Caller)>) {
    let greeting = async {
        let (mut send, mut recv) = connection.open_bi().await.ok()?;
        Message::Hello.write(&mut send).await.ok()?;
        let said = match Message::read(&mut recv, 0).await.ok()? {
            Message::Join(join) if is_proved(&join, &connection, nonce) => FirstMessage::Join(join),
            Message::OtherBuild(introduction) => FirstMessage::OtherBuild(introduction),
            _ => return None,
        };
        Some((said, send, recv))
    };
    match timeout(ANSWER, greeting).await {
        Ok(Some((said, send, recv))) => {
            let _ = callers.send((said, Caller { connection, send, recv })).await;
        }
        _ => connection.close(CLOSE_CODE, b""),
    }
}

/// Whether the rank owns the key that it shows, and can be one.
fn is_proved(join: &Join, connection: &Connection, nonce: u64) -> bool {
    let plausible = (1..=MOST_RANKS).contains(&join.nranks) && join.rank < join.nranks;
    plausible
        && binding(connection, nonce)
            .is_some_and(|binding| join.member.key.verify(&join.signed(&binding), &join.signature))
}

/// Why the newcomer cannot be of one communicator with those who are here.
fn contradiction(ranks: &[Joined], new: &Joined) -> Option<Error> {
    for rank in ranks {
        let text = if rank.join.nranks != new.join.nranks {
            let (a, b) = (&rank.join, &new.join);
            format!(
                "ranks disagree on the number of ranks: rank {} says {}, rank {} says {}",
                a.rank, a.nranks, b.rank, b.nranks
            )
        } else if rank.join.rank == new.join.rank {
            let (a, b) = (rank.caller.address(), new.caller.address());
            format!("rank {} came twice: from {a} and from {b}", new.join.rank)
        } else if rank.join.settings != new.join.settings {
            let (a, b) = (rank.join.rank, new.join.rank);
            format!("rank {a} and rank {b} differ in NEXAR_ALGO")
        } else if rank.join.member.key == new.join.member.key {
            format!("rank {} and rank {} show the same key", rank.join.rank, new.join.rank)
        } else {
            continue;
        };
        return Some(Error::Usage(text));
    }
    None
}

/// The missing ranks: those that never joined, and those that joined and are gone.
fn missing(ranks: &mut Vec<Joined>) -> Error {
    let size = ranks.first().map_or(0, |rank| rank.join.nranks);
    let patience = ranks.iter().map(|rank| rank.join.patience_ms).min().unwrap_or(0);
    let absent = (0..size).filter(|rank| ranks.iter().all(|joined| joined.join.rank != *rank));
    let absent: Vec<_> = absent.map(|rank| rank.to_string()).collect();
    let gone = ranks.extract_if(.., |rank| rank.has_gone());
    let gone: Vec<_> = gone.map(|rank| rank.join.rank.to_string()).collect();
    let tell = |who: &[String], what: [&str; 2]| match who {
        [] => None,
        [one] => Some(format!("rank {one} of {size} {}", what[0])),
        _ => Some(format!("ranks {} of {size} {}", who.join(", "), what[1])),
    };
    let absent = tell(&absent, ["has not come", "have not come"]);
    let gone = tell(&gone, ["came and was lost", "came and were lost"]);
    let blame: Vec<_> = absent.into_iter().chain(gone).collect();
    Error::Timeout { limit_ms: patience.into(), blame: blame.join("; ") }
}

/// Tells everybody who is here why there will be no communicator.
async fn refuse(callers: Vec<Caller>, error: Error, _busy: Busy) {
    let message = Arc::new(Message::refused(&error));
    let told = callers.into_iter().map(|mut caller| {
        let message = Arc::clone(&message);
        tokio::spawn(async move {
            let _ = message.write(&mut caller.send).await;
            let _ = caller.send.finish();
            let _ = timeout(ANSWER, caller.connection.closed()).await;
        })
    });
    for told in told.collect::<Vec<_>>() {
        let _ = told.await;
    }
}

/// All ranks are here: they get the table, confirm it, and may go.
async fn form(mut ranks: Vec<Joined>, nonce: u64, busy: Busy) {
    ranks.sort_by_key(|rank| rank.join.rank);
    let members: Vec<Member> = ranks.iter().map(|rank| rank.join.member.clone()).collect();
    // One copy for all ranks: n copies of n entries would be gigabytes of a large job.
    let table = Bytes::from(Message::Table(members).encode());
    let hash = sha256(&table[HEAD_BYTES..]);
    let shown = ranks.into_iter().map(|mut rank| {
        let table = table.clone();
        tokio::spawn(async move {
            let confirmed = timeout(ANSWER, confirm(&mut rank, table, hash)).await;
            (rank, matches!(confirmed, Ok(Ok(true))))
        })
    });
    let (mut ranks, mut lost) = (Vec::new(), None);
    for shown in shown.collect::<Vec<_>>() {
        match shown.await {
            Ok((rank, true)) => ranks.push(rank),
            Ok((rank, false)) => lost = Some(rank.join.rank),
            Err(_) => lost = Some(usize::MAX),
        }
    }
    if let Some(rank) = lost {
        let text = format!("rank {rank} was lost during initialisation");
        let callers = ranks.into_iter().map(|rank| rank.caller).collect();
        return refuse(callers, Error::Told { code: Code::RemoteError, text }, busy).await;
    }
    for rank in &mut ranks {
        let _ = Message::Go.write(&mut rank.caller.send).await;
        let _ = rank.caller.send.finish();
    }
    info!("id {nonce:016x}: {} ranks have found each other", ranks.len());
    for rank in &ranks {
        let _ = timeout(ANSWER, rank.caller.connection.closed()).await;
    }
}

async fn confirm(rank: &mut Joined, table: Bytes, hash: [u8; 32]) -> Result<bool> {
    write_encoded(&mut rank.caller.send, table).await?;
    Ok(Message::read(&mut rank.caller.recv, 0).await? == Message::Seen(hash))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::transport::key::Identity;
    use crate::transport::quic::endpoint::Endpoint;

    #[tokio::test(start_paused = true)]
    async fn an_id_that_nobody_joins_is_served_as_long_as_its_process_lives() {
        let endpoint = Endpoint::open(&(0..=0)).unwrap();
        let root = Identity::random().unwrap();
        let service = endpoint.serve("root.test.nexar".to_owned(), &root, HashSet::new());
        let serving = tokio::spawn(serve(service, 7, false));
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
        assert!(!serving.is_finished());
        endpoint.end_service("root.test.nexar");
        assert!(serving.await.is_ok(), "a retired id is served no more");
    }
}
