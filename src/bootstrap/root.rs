//! The root of a unique id: takes the ranks in, and sends them all away with the same table.
//!
//! It lives in the process that made the id and serves it once. Everything a stranger could do ends
//! in TLS; a member that contradicts the others ends the initialisation for all, with the reason.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

use crate::error::{Code, Error, Result};
use crate::transport::quic::Member;
use crate::transport::quic::endpoint::Service;

use super::message::{Join, MOST_RANKS, Message, encode_table};

/// An id that nobody has joined is forgotten after this time.
const UNUSED: Duration = Duration::from_secs(15 * 60);
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

/// A rank that has said who it is.
struct Joined {
    join: Join,
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
}

pub async fn serve(mut service: Service, nonce: u64) {
    let (sender, mut joins) = mpsc::channel(64);
    let mut ranks: Vec<Joined> = Vec::new();
    let mut deadline = Instant::now() + UNUSED;
    // Once there can be no communicator, whoever still comes is told why.
    let mut verdict: Option<Error> = None;
    loop {
        tokio::select! {
            arrival = service.arrivals.recv() => {
                let Some(arrival) = arrival else { return };
                tokio::spawn(greet(arrival.connection, nonce, sender.clone()));
            }
            Some(joined) = joins.recv() => {
                debug!("id {nonce:016x}: rank {} is here", joined.join.rank);
                if let Some(error) = &verdict {
                    tokio::spawn(refuse(vec![joined], error.clone(), Busy::new()));
                    continue;
                }
                // A rank that has gone meanwhile may come again.
                ranks.retain(|rank| rank.connection.close_reason().is_none());
                if ranks.is_empty() {
                    deadline = Instant::now() + UNUSED;
                }
                let patience = Duration::from_millis(joined.join.patience_ms.into());
                deadline = deadline.min(Instant::now() + patience);
                verdict = contradiction(&ranks, &joined);
                ranks.push(joined);
                if verdict.is_none() && ranks.len() == ranks[0].join.nranks {
                    return form(ranks, nonce, Busy::new()).await;
                }
            }
            () = sleep_until(deadline) => match verdict {
                None if !ranks.is_empty() => verdict = Some(missing(&mut ranks)),
                _ => return,
            }
        }
        if let Some(error) = &verdict
            && !ranks.is_empty()
        {
            info!("id {nonce:016x}: no communicator: {error}");
            tokio::spawn(refuse(std::mem::take(&mut ranks), error.clone(), Busy::new()));
            deadline = Instant::now() + REMEMBERED;
        }
    }
}

/// The server speaks first: only then does a dialler know that its key was accepted.
async fn greet(connection: Connection, nonce: u64, joins: mpsc::Sender<Joined>) {
    let greeting = async {
        let (mut send, mut recv) = connection.open_bi().await.ok()?;
        Message::Hello.write(&mut send).await.ok()?;
        let Ok(Message::Join(join)) = Message::read(&mut recv, 0).await else { return None };
        let binding = super::binding(&connection, nonce)?;
        let proved = join.member.key.verify(&join.signed(&binding), &join.signature);
        let plausible = (1..=MOST_RANKS).contains(&join.nranks) && join.rank < join.nranks;
        (proved && plausible).then_some((join, send, recv))
    };
    match timeout(ANSWER, greeting).await {
        Ok(Some((join, send, recv))) => {
            let _ = joins.send(Joined { join, connection, send, recv }).await;
        }
        _ => connection.close(super::CLOSE_CODE, b""),
    }
}

/// Why the newcomer cannot be of one communicator with those who are here.
fn contradiction(ranks: &[Joined], new: &Joined) -> Option<Error> {
    let from = |rank: &Joined| rank.connection.remote_address().ip().to_canonical();
    for rank in ranks {
        let text = if rank.join.nranks != new.join.nranks {
            let (a, b) = (&rank.join, &new.join);
            format!(
                "ranks disagree on the number of ranks: rank {} says {}, rank {} says {}",
                a.rank, a.nranks, b.rank, b.nranks
            )
        } else if rank.join.rank == new.join.rank {
            let (a, b) = (from(rank), from(new));
            format!("rank {} came twice: from {a} and from {b}", new.join.rank)
        } else if rank.join.settings != new.join.settings {
            let (a, b) = (rank.join.rank, new.join.rank);
            format!("rank {a} and rank {b} differ in NEXAR_ALGO or in their version of nexar")
        } else if rank.join.member.key == new.join.member.key {
            format!("rank {} and rank {} show the same key", rank.join.rank, new.join.rank)
        } else {
            continue;
        };
        return Some(Error::Usage(text));
    }
    None
}

/// Who is not here: those who never came, and those who came and are gone.
fn missing(ranks: &mut Vec<Joined>) -> Error {
    let size = ranks.first().map_or(0, |rank| rank.join.nranks);
    let patience = ranks.iter().map(|rank| rank.join.patience_ms).min().unwrap_or(0);
    let absent = (0..size).filter(|rank| ranks.iter().all(|joined| joined.join.rank != *rank));
    let absent: Vec<_> = absent.map(|rank| rank.to_string()).collect();
    let gone = ranks.extract_if(.., |rank| rank.connection.close_reason().is_some());
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
async fn refuse(ranks: Vec<Joined>, error: Error, _busy: Busy) {
    let message = Arc::new(Message::refused(&error));
    let told = ranks.into_iter().map(|mut rank| {
        let message = Arc::clone(&message);
        tokio::spawn(async move {
            let _ = message.write(&mut rank.send).await;
            let _ = rank.send.finish();
            let _ = timeout(ANSWER, rank.connection.closed()).await;
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
    let hash = super::sha256(&encode_table(&members));
    let table = Arc::new(Message::Table(members));
    let shown = ranks.into_iter().map(|mut rank| {
        let table = Arc::clone(&table);
        tokio::spawn(async move {
            let confirmed = timeout(ANSWER, confirm(&mut rank, &table, hash)).await;
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
        return refuse(ranks, Error::Told { code: Code::RemoteError, text }, busy).await;
    }
    for rank in &mut ranks {
        let _ = Message::Go.write(&mut rank.send).await;
        let _ = rank.send.finish();
    }
    info!("id {nonce:016x}: {} ranks have found each other", ranks.len());
    for rank in &ranks {
        let _ = timeout(ANSWER, rank.connection.closed()).await;
    }
}

async fn confirm(rank: &mut Joined, table: &Message, hash: [u8; 32]) -> Result<bool> {
    table.write(&mut rank.send).await?;
    Ok(Message::read(&mut rank.recv, 0).await? == Message::Seen(hash))
}
