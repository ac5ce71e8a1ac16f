//! The root of a unique id: accepts all ranks and sends the same table to each.
//!
//! It lives as long as the process that created the id, and serves it once. A stranger fails in
//! TLS. A rank that contradicts another one, or runs another build, ends the initialisation on all
//! ranks; each reports the reason.

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
use super::message::{HEAD_BYTES, Join, MAX_RANKS, Message, write_encoded};
use super::session::{CLOSE_CODE, binding, sha256};

/// How long a root waits for a rank's Join, and for its confirmation of the table.
pub const ANSWER: Duration = Duration::from_secs(5);
/// How long after a failed initialisation late ranks still receive its reason.
const REMEMBERED: Duration = Duration::from_secs(30);

/// The number of roots of this process that have answers to send.
static ANSWERING: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Counts a root in `ANSWERING` while it exists.
struct Answering;

impl Answering {
    fn new() -> Self {
        ANSWERING.send_modify(|count| *count += 1);
        Self
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        ANSWERING.send_modify(|count| *count -= 1);
    }
}

/// Waits until no root of this process has answers to send.
pub async fn idle() {
    let _ = ANSWERING.subscribe().wait_for(|count| *count == 0).await;
}

/// The connection and the stream of a process that dialled the root.
struct Caller {
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
}

/// Whether a root of this process has answers to send.
pub fn is_answering() -> bool {
    *ANSWERING.borrow() > 0
}

/// A rank that has sent its Join.
struct Joined {
    join: Join,
    caller: Caller,
}

/// The first message of a caller.
enum FirstMessage {
    Join(Join),
    /// The Join of another build; `None` if it has no introduction.
    OtherBuild(Option<Introduction>),
}

/// The ranks that have joined, or the reason of the failed initialisation.
struct Root {
    nonce: u64,
    /// Whether rank 0 serves the id; else the process that created it does.
    at_rank_0: bool,
    ranks: Vec<Joined>,
    /// The earliest deadline of a rank that waits, or the end of `REMEMBERED`. `None` while no rank
    /// waits: an id is valid as long as the process that created it lives.
    deadline: Option<Instant>,
    /// The reason of the failure, sent to each late rank.
    failure: Option<Error>,
}

pub async fn serve(mut service: Service, nonce: u64, at_rank_0: bool) {
    let (sender, mut callers) = mpsc::channel(64);
    let mut root = Root { nonce, at_rank_0, ranks: Vec::new(), deadline: None, failure: None };
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
            Some((first, caller)) = callers.recv() => {
                root.admit(first, caller);
                if root.is_complete() {
                    return form(root.ranks, nonce, Answering::new()).await;
                }
            }
            () = late => {
                if root.failure.is_some() {
                    return;
                }
                root.time_out();
            }
        }
    }
}

impl Root {
    fn admit(&mut self, first: FirstMessage, caller: Caller) {
        if let Some(error) = &self.failure {
            tokio::spawn(refuse(vec![caller], error.clone(), Answering::new()));
            return;
        }
        let join = match first {
            FirstMessage::Join(join) => join,
            FirstMessage::OtherBuild(introduction) => {
                let error = self.other_build(introduction, &caller);
                return self.fail(error, Some(caller));
            }
        };
        debug!("id {:016x}: rank {} has joined", self.nonce, join.rank);
        let new = Joined { join, caller };
        // A rank that has disconnected meanwhile may join again.
        self.ranks.retain(|rank| !rank.has_disconnected());
        if self.ranks.is_empty() {
            self.deadline = None;
        }
        let own = Instant::now() + Duration::from_millis(new.join.init_timeout_ms.into());
        self.deadline = Some(self.deadline.map_or(own, |deadline| deadline.min(own)));
        match contradiction(&self.ranks, &new) {
            Some(error) => self.fail(error, Some(new.caller)),
            None => self.ranks.push(new),
        }
    }

    fn is_complete(&self) -> bool {
        self.ranks.first().is_some_and(|first| self.ranks.len() == first.join.nranks)
    }

    /// A rank's deadline has passed before all ranks joined: fails the initialisation. If all ranks
    /// that joined have disconnected, the root waits for other ranks instead.
    fn time_out(&mut self) {
        let error = missing(&mut self.ranks);
        if self.ranks.is_empty() {
            self.deadline = None;
        } else {
            self.fail(error, None);
        }
    }

    /// Refuses all ranks that have joined, and `newest`, and keeps the error for late ranks.
    fn fail(&mut self, error: Error, newest: Option<Caller>) {
        info!("id {:016x}: initialisation failed: {error}", self.nonce);
        let waiting = self.ranks.drain(..).map(|rank| rank.caller).chain(newest).collect();
        tokio::spawn(refuse(waiting, error.clone(), Answering::new()));
        self.failure = Some(error);
        self.deadline = Some(Instant::now() + REMEMBERED);
    }

    fn other_build(&self, introduction: Option<Introduction>, caller: &Caller) -> Error {
        let from = caller.address();
        let theirs = match introduction {
            Some(Introduction { rank, build }) => format!("rank {rank} at {from} runs {build}"),
            None => format!("a rank at {from} runs an older nexar"),
        };
        let root = if self.at_rank_0 { "rank 0" } else { "the process that created the unique id" };
        let ours = Build::of_this();
        let what = format!("{theirs}, {root} runs {ours}: install one build on all hosts");
        Error::Usage(what)
    }
}

impl Joined {
    fn has_disconnected(&self) -> bool {
        self.caller.connection.close_reason().is_some()
    }
}

impl Caller {
    fn address(&self) -> IpAddr {
        self.connection.remote_address().ip().to_canonical()
    }
}

/// Sends Hello, reads the first message and passes it on. The root sends first, because only then
/// does the rank know that its key was accepted.
async fn greet(connection: Connection, nonce: u64, callers: mpsc::Sender<(FirstMessage, Caller)>) {
    let greeting = async {
        let (mut send, mut recv) = connection.open_bi().await.ok()?;
        Message::Hello.write(&mut send).await.ok()?;
        let first = match Message::read(&mut recv, 0).await.ok()? {
            Message::Join(join) if is_authentic(&join, &connection, nonce) => {
                FirstMessage::Join(join)
            }
            Message::OtherBuild(introduction) => FirstMessage::OtherBuild(introduction),
            _ => return None,
        };
        Some((first, send, recv))
    };
    match timeout(ANSWER, greeting).await {
        Ok(Some((first, send, recv))) => {
            let _ = callers.send((first, Caller { connection, send, recv })).await;
        }
        _ => connection.close(CLOSE_CODE, b""),
    }
}

/// Whether the rank owns the key that it sends, and its number is in range.
fn is_authentic(join: &Join, connection: &Connection, nonce: u64) -> bool {
    let in_range = (1..=MAX_RANKS).contains(&join.nranks) && join.rank < join.nranks;
    in_range
        && binding(connection, nonce)
            .is_some_and(|binding| join.member.key.verify(&join.signed(&binding), &join.signature))
}

/// Why a rank cannot be in one communicator with those that have joined. `None` if it can.
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
            format!("rank {} joined twice: from {a} and from {b}", new.join.rank)
        } else if rank.join.settings != new.join.settings {
            let (a, b) = (rank.join.rank, new.join.rank);
            format!("rank {a} and rank {b} differ in NEXAR_ALGO: set the same on all ranks")
        } else if rank.join.member.key == new.join.member.key {
            format!("rank {} and rank {} have the same key", rank.join.rank, new.join.rank)
        } else {
            continue;
        };
        return Some(Error::Usage(text));
    }
    None
}

/// Removes the ranks that have disconnected. Returns an error that names them and the ranks that
/// have not joined.
fn missing(ranks: &mut Vec<Joined>) -> Error {
    let size = ranks.first().map_or(0, |rank| rank.join.nranks);
    let timeout_ms = ranks.iter().map(|rank| rank.join.init_timeout_ms).min().unwrap_or(0);
    let absent = (0..size).filter(|rank| ranks.iter().all(|joined| joined.join.rank != *rank));
    let absent: Vec<_> = absent.map(|rank| rank.to_string()).collect();
    let lost = ranks.extract_if(.., |rank| rank.has_disconnected());
    let lost: Vec<_> = lost.map(|rank| rank.join.rank.to_string()).collect();
    let sentence = |ranks: &[String], [singular, plural]: [&str; 2]| match ranks {
        [] => None,
        [one] => Some(format!("rank {one} of {size} {singular}")),
        _ => Some(format!("ranks {} of {size} {plural}", ranks.join(", "))),
    };
    let absent = sentence(&absent, ["has not joined", "have not joined"]);
    let lost = sentence(&lost, ["joined and was lost", "joined and were lost"]);
    let blame: Vec<_> = absent.into_iter().chain(lost).collect();
    Error::Timeout { limit_ms: timeout_ms.into(), blame: blame.join("; ") }
}

/// Sends a refusal to all callers and waits until each has closed its connection.
async fn refuse(callers: Vec<Caller>, error: Error, _answering: Answering) {
    let message = Arc::new(Message::refused(&error));
    let refusals = callers.into_iter().map(|mut caller| {
        let message = Arc::clone(&message);
        tokio::spawn(async move {
            let _ = message.write(&mut caller.send).await;
            let _ = caller.send.finish();
            let _ = timeout(ANSWER, caller.connection.closed()).await;
        })
    });
    for refusal in refusals.collect::<Vec<_>>() {
        let _ = refusal.await;
    }
}

/// All ranks have joined: sends the table, waits for all confirmations, sends Go.
async fn form(mut ranks: Vec<Joined>, nonce: u64, answering: Answering) {
    ranks.sort_by_key(|rank| rank.join.rank);
    let members: Vec<Member> = ranks.iter().map(|rank| rank.join.member.clone()).collect();
    // One copy for all ranks: n copies of n entries would take gigabytes in a large job.
    let table = Bytes::from(Message::Table(members).encode());
    let hash = sha256(&table[HEAD_BYTES..]);
    let confirmations = ranks.into_iter().map(|mut rank| {
        let (number, table) = (rank.join.rank, table.clone());
        let confirmation = tokio::spawn(async move {
            let confirmed = timeout(ANSWER, confirm(&mut rank, table, hash)).await;
            matches!(confirmed, Ok(Ok(true))).then_some(rank)
        });
        (number, confirmation)
    });
    let (mut ranks, mut lost) = (Vec::new(), None);
    for (number, confirmation) in confirmations.collect::<Vec<_>>() {
        match confirmation.await {
            Ok(Some(rank)) => ranks.push(rank),
            Ok(None) | Err(_) => lost = Some(number),
        }
    }
    if let Some(rank) = lost {
        let text = format!("rank {rank} was lost during initialisation");
        let callers = ranks.into_iter().map(|rank| rank.caller).collect();
        return refuse(callers, Error::Reported { code: Code::RemoteError, text }, answering).await;
    }
    for rank in &mut ranks {
        let _ = Message::Go.write(&mut rank.caller.send).await;
        let _ = rank.caller.send.finish();
    }
    info!("id {nonce:016x}: all {} ranks have joined", ranks.len());
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
    async fn an_id_without_ranks_is_served_as_long_as_its_process_lives() {
        let endpoint = Endpoint::open(&(0..=0), "any port").unwrap();
        let root = Identity::random().unwrap();
        let service = endpoint.serve("root.test.nexar".to_owned(), &root, HashSet::new());
        let serving = tokio::spawn(serve(service, 7, false));
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
        assert!(!serving.is_finished());
        endpoint.end_service("root.test.nexar");
        assert!(serving.await.is_ok(), "a retired id is no longer served");
    }
}
