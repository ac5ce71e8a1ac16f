//! Texts about the ranks that a call waits for.
//!
//! Leaves to the mesh which ranks are missing.

use crate::message::{MessageCall, RecvCall};
use crate::rank::Rank;
use crate::transport::{Absent, Missing};

/// Most stragglers that one line of the log names.
const MOST_NAMED: usize = 8;

/// Describes the missing ranks for the error of a call that has reached its deadline.
pub fn of_timeout(missing: &Missing) -> String {
    let Missing { absent, unknown } = missing;
    let names = |ranks: &mut dyn Iterator<Item = Rank>| {
        let names: Vec<_> = ranks.map(|rank| rank.to_string()).collect();
        names.join(", ")
    };
    let absent_names = names(&mut absent.iter().map(|absent| absent.rank));
    match (absent.len(), unknown.len()) {
        (0, 0) => "all ranks have entered the call".to_owned(),
        (0, _) => format!("nothing is known of {}", names(&mut unknown.iter().copied())),
        (1, _) => format!("{absent_names} has not entered the call"),
        _ => format!("{absent_names} have not entered the call"),
    }
}

/// Describes what a message waits for.
pub fn of_message(call: &MessageCall) -> String {
    match call {
        MessageCall::Send { to, .. } => format!("{to} has not received it"),
        MessageCall::Recv(RecvCall { wanted, .. }) | MessageCall::Probe(wanted) => {
            match wanted.source {
                Some(from) => format!("{from} has not sent it"),
                None => "no rank has sent it".to_owned(),
            }
        }
    }
}

/// Describes the missing ranks for the log, about a call that is still running.
pub fn of_straggling(missing: &Missing) -> String {
    let absent = missing.absent.iter().map(|Absent { rank, last }| match last {
        Some(last) => format!("{rank}, which is at #{last}"),
        None => format!("{rank}, which has made no call"),
    });
    let unknown = missing.unknown.iter().map(|rank| format!("{rank}, of which nothing is known"));
    let mut all: Vec<_> = absent.chain(unknown).collect();
    if all.is_empty() {
        return "waits, though all ranks have entered it".to_owned();
    }
    let more = all.len().saturating_sub(MOST_NAMED);
    all.truncate(MOST_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("waits for {}{more}", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stragglers_are_named_with_their_last_calls_up_to_a_limit() {
        let absent = |rank, last| Absent { rank: Rank(rank), last };
        let mut missing = Missing { absent: vec![absent(3, Some(11))], unknown: Vec::new() };
        assert_eq!(of_straggling(&missing), "waits for rank 3, which is at #11");
        missing.absent.push(absent(4, None));
        missing.unknown.push(Rank(9));
        assert_eq!(
            of_straggling(&missing),
            "waits for rank 3, which is at #11; rank 4, which has made no call; \
             rank 9, of which nothing is known"
        );
        missing.absent = (0..28).map(|rank| absent(rank, Some(0))).collect();
        let text = of_straggling(&missing);
        assert!(text.ends_with("rank 7, which is at #0; and 21 more"), "{text}");
        let none = Missing { absent: Vec::new(), unknown: Vec::new() };
        assert_eq!(of_straggling(&none), "waits, though all ranks have entered it");
    }
}
